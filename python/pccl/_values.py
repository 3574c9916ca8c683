"""Parameters and results of calls: descriptors of reductions, the shared state, and the infos that calls return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pccl._enums import DataType, DeviceType, DistributionHint, QuantizationAlgorithm, ReduceOp
from pccl._errors import argument_error
from pccl._memory import Memory, memory_of, same_kind
from pccl._staging import at_pointer, is_on_gpu

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


@dataclass
class ReduceOperandDescriptor:
    """Describes the elements of a reduction.

    :param datatype: type of the elements, the same as that of the arrays.
    :param distribution_hint: how the values are distributed, if that is known; only quantization uses it.
    """

    datatype: DataType
    distribution_hint: DistributionHint = DistributionHint.NONE


@dataclass
class QuantizationOptions:
    """How float32 or float64 elements are rounded to integers before they are sent. The defaults send about a quarter
    of the bytes of float32. Each block of 512 elements is sent with two numbers that describe its range. The range is
    divided into equal steps, and every hop rounds to the nearest one, with an error of at most half a step. All members
    get the same bytes.

    :param quantized_datatype: an integer type of 8 to 32 bits, or UINT64 with MIN_MAX.
    :param algorithm: how the range of a block is chosen.
    """

    quantized_datatype: DataType = DataType.UINT8
    algorithm: QuantizationAlgorithm = QuantizationAlgorithm.MIN_MAX


@dataclass
class ReduceDescriptor:
    """Describes a reduction without its arrays, as pcclReduceDescriptor_t in C.

    :param count: number of elements, not bytes: the first ``count`` elements of the arrays are reduced.
    :param op: the operation.
    :param tag: 0 to 2**64 - 1; reductions that run at the same time have different tags.
    :param operand_descriptor: the type of the elements.
    :param quantization_options: None: the elements are sent unchanged.
    """

    count: int
    op: ReduceOp
    tag: int
    operand_descriptor: ReduceOperandDescriptor
    quantization_options: QuantizationOptions | None = None


@dataclass
class ReduceOpDescriptor:
    """One reduction of :meth:`Communicator.all_reduce_multiple_with_retry`. If it is made from tensors or arrays, it
    keeps them alive. If it is made from pointers, the caller must keep the memory alive until the call returns.

    :param sendbuf_ptr: address of the input, which is on the CPU, or where the tensor is that from_torch() got.
    :param recvbuf_ptr: address of the result; may be ``sendbuf_ptr``, to reduce in place.
    :param reduce_descriptor: the reduction.
    """

    sendbuf_ptr: int
    recvbuf_ptr: int
    reduce_descriptor: ReduceDescriptor
    _owners: tuple[Any, ...] = field(default=(), repr=False, compare=False, kw_only=True)
    # send and recv, if they are on a GPU.
    _on_gpu: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, repr=False, compare=False, kw_only=True)

    @classmethod
    def from_torch(
        cls, send: torch.Tensor, recv: torch.Tensor, reduce_descriptor: ReduceDescriptor
    ) -> ReduceOpDescriptor:
        """Makes a descriptor for tensors. On the CPU they are not copied: the reduction reads and writes them directly.

        :param send: a contiguous tensor on the CPU or on a CUDA device, of the descriptor's type, with at least
            ``count`` elements. Its first ``count`` elements are reduced.
        :param recv: the same tensor, or another one with the same properties that does not overlap ``send``. Elements
            after the first ``count`` do not change.
        :param reduce_descriptor: the reduction.
        :raises PCCLArgumentError: the tensors cannot be used in place, or do not match the descriptor.
        """
        return cls._from_arrays(send, recv, reduce_descriptor, "torch")

    @classmethod
    def from_numpy(
        cls, send: NDArray[Any], recv: NDArray[Any], reduce_descriptor: ReduceDescriptor
    ) -> ReduceOpDescriptor:
        """Makes a descriptor for arrays. They are not copied: the reduction reads and writes them directly.

        :param send: a contiguous array of the descriptor's type, with at least ``count`` elements. Its first ``count``
            elements are reduced.
        :param recv: the same array, or another one with the same properties that does not overlap ``send``; writable.
            Elements after the first ``count`` do not change.
        :param reduce_descriptor: the reduction.
        :raises PCCLArgumentError: the arrays cannot be used in place, or do not match the descriptor.
        """
        return cls._from_arrays(send, recv, reduce_descriptor, "numpy")

    @classmethod
    def _from_arrays(cls, send: Any, recv: Any, descriptor: ReduceDescriptor, kind: str) -> ReduceOpDescriptor:
        function = f"ReduceOpDescriptor.from_{kind}"
        source, target = _alike(send, recv, function)
        if source.kind != kind:
            raise argument_error(function, f"send is a {source.kind} array; use from_{source.kind}")
        if not 0 <= descriptor.count <= min(source.elements, target.elements):
            raise argument_error(
                function,
                f"the descriptor counts {descriptor.count} elements, send has {source.elements} and recv "
                f"{target.elements}; count no more than both have",
            )
        check_operand(descriptor.operand_descriptor, source, function)
        return cls(
            source.pointer,
            target.pointer,
            descriptor,
            _owners=source.owners + target.owners,
            _on_gpu=(send, recv) if is_on_gpu(source.device_type) else None,
        )


@dataclass
class TensorInfo:
    """One array of a shared state. If it is made from a tensor or an array, it keeps that alive. If it is made from a
    pointer, the caller must keep the memory alive during each synchronization.

    :param name: members match their arrays by name; unique in a state, 1 to 1024 bytes without a zero byte.
    :param data_ptr: address of the memory.
    :param numel: number of elements, not bytes; 0 is allowed.
    :param dtype: type of the elements. numel and dtype are the same on all members.
    :param device_type: CPU or CUDA. Members of a group may differ.
    :param allow_content_inequality: the content is not compared, so members may hold different bytes. A newcomer
        receives the array in its first synchronization.
    """

    name: str
    data_ptr: int
    numel: int = field(kw_only=True)
    dtype: DataType = field(kw_only=True)
    device_type: DeviceType = field(kw_only=True)
    allow_content_inequality: bool = field(kw_only=True)
    _array: Any = field(default=None, repr=False, compare=False, kw_only=True)
    _owners: tuple[Any, ...] = field(default=(), repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.name, str) and "\0" in self.name:
            raise argument_error("TensorInfo", f"the name {self.name!r} has a zero byte; leave it out")
        if isinstance(self.name, str) and not is_utf8(self.name):
            raise argument_error("TensorInfo", f"the name {self.name!r} has a lone surrogate; leave it out")
        if self.data_ptr == 0 and not (self._owners and self.numel == 0):
            raise argument_error("TensorInfo", f"data_ptr of '{self.name}' must not be zero")

    @classmethod
    def from_torch(
        cls, tensor: torch.Tensor, name: str, *, allow_content_inequality: bool = False
    ) -> TensorInfo:
        """Makes an entry for a tensor. On the CPU it is not copied: synchronizations read and write it directly. A
        tensor on a CUDA device is copied to the CPU in each synchronization, and back if bytes were received.

        :param tensor: contiguous, on the CPU or on a CUDA device; may be a parameter.
        :param name: as for the class.
        :param allow_content_inequality: as for the class.
        :raises PCCLArgumentError: the tensor cannot be used in place; the text names the remedy.
        """
        return cls._from_array(tensor, name, allow_content_inequality, "torch")

    @classmethod
    def from_numpy(
        cls, tensor: NDArray[Any], name: str, *, allow_content_inequality: bool = False
    ) -> TensorInfo:
        """Makes an entry for an array. It is not copied: synchronizations read and write it directly.

        :param tensor: contiguous and writable.
        :param name: as for the class.
        :param allow_content_inequality: as for the class.
        :raises PCCLArgumentError: the array cannot be used in place; the text names the remedy.
        """
        return cls._from_array(tensor, name, allow_content_inequality, "numpy")

    @classmethod
    def _from_array(cls, array: Any, name: str, allow_content_inequality: bool, kind: str) -> TensorInfo:
        function = f"TensorInfo.from_{kind}"
        memory = state_memory(array, name, function)
        if memory.kind != kind:
            raise argument_error(function, f"'{name}' is a {memory.kind} array; use from_{memory.kind}")
        return cls(
            name,
            memory.pointer,
            numel=memory.elements,
            dtype=memory.data_type,
            device_type=memory.device_type,
            allow_content_inequality=allow_content_inequality,
            _array=array,
            _owners=memory.owners,
        )

    def _gpu_tensor(self, function: str) -> torch.Tensor:
        """The array of an entry on a GPU, or its bytes."""
        if self._array is not None:
            tensor: torch.Tensor = self._array
            return tensor
        return at_pointer(self.data_ptr, self.numel, self.dtype, f"'{self.name}'", function)

    def _check_unmoved(self, function: str) -> None:
        """Raises PCCLArgumentError if the tensor has got other memory (``tensor.data = ...``): the library would use
        the old memory."""
        if self._array is None:
            return
        now = state_memory(self._array, self.name, function)
        if (now.pointer, now.elements, now.data_type) != (self.data_ptr, self.numel, self.dtype):
            raise argument_error(
                function,
                f"'{self.name}' has other memory than when its TensorInfo was made; make the SharedState again after "
                "replacing tensors, or copy into them in place",
            )


@dataclass
class SharedStateSyncInfo:
    """The bytes that one synchronization transferred, without overhead of the protocol.

    :param tx_bytes: bytes of content that this peer sent.
    :param rx_bytes: bytes of content that this peer received; 0 if it held the winning content already.
    """

    tx_bytes: int
    rx_bytes: int


@dataclass
class ReduceInfo:
    """Facts about a reduction that succeeded.

    :param local_world_size: number of members of the group that took part. Divide a sum by this number, not by an
        attribute that is read later.
    :param tx_bytes: bytes of payload that this peer sent: about ``2 (w - 1) / w`` times those of the array with w
        members; fewer with quantization.
    :param rx_bytes: bytes of payload that this peer received.
    """

    local_world_size: int
    tx_bytes: int
    rx_bytes: int

    @property
    def world_size(self) -> int:
        """Another name of ``local_world_size``."""
        return self.local_world_size


class SharedState:
    """What all peers of a group keep equal: a revision and named arrays. The caller owns the arrays. On the CPU they are
    not copied: synchronizations read and write them directly.

    :param tensor_infos: the arrays; names, types and sizes are the same on all members.
    :raises PCCLArgumentError: the list is empty.
    """

    revision: int
    """Version number of the state, usually the number of steps: 0 at first, or that of a checkpoint. A synchronization
    sets it to that of the group; push_revision() increments it."""
    tensor_infos: list[TensorInfo]
    """The arrays."""

    def __init__(self, tensor_infos: list[TensorInfo]) -> None:
        if not tensor_infos:
            raise argument_error("SharedState", "tensor_infos must not be empty")
        self.tensor_infos = list(tensor_infos)
        self.revision = 0

    def push_revision(self) -> None:
        """Increments the revision. Call it once after each successful synchronization, also if the step that followed
        was skipped."""
        self.revision += 1

    def __repr__(self) -> str:
        return f"SharedState(revision={self.revision}, {len(self.tensor_infos)} tensors)"


def state_memory(array: Any, name: str, function: str) -> Memory:
    return memory_of(array, f"'{name}'", function, written=True)


def reduce_memory(send: Any, recv: Any, function: str) -> tuple[Memory, Memory]:
    """Returns the memory of both arrays. Raises if their kind (torch or numpy), type or size differ."""
    source, target = _alike(send, recv, function)
    if source.elements != target.elements:
        raise argument_error(
            function, f"send has {source.elements} elements and recv {target.elements}; use arrays of one size"
        )
    return source, target


def _alike(send: Any, recv: Any, function: str) -> tuple[Memory, Memory]:
    """Returns the memory of both arrays. Raises if their kind or type differ; sizes may differ."""
    target = memory_of(recv, "recv", function, written=True)
    if send is recv:
        return target, target
    source = memory_of(send, "send", function, written=False)
    same_kind(source, target, function)
    return source, target


def check_operand(operand: ReduceOperandDescriptor, memory: Memory, function: str) -> None:
    if operand.datatype != memory.data_type:
        raise argument_error(
            function,
            f"operand_descriptor says {DataType(operand.datatype).name} and the arrays are {memory.data_type.name}; "
            "leave it out, or convert the arrays",
        )


# The fields of pcclReduceDescriptor_t in their order, as numbers: count, op, tag, data type, distribution hint,
# quantized type, quantization algorithm.
Reduction = tuple[int, int, int, int, int, int, int]


def reduction_of(descriptor: ReduceDescriptor) -> Reduction:
    """Converts a descriptor to the form that the native module takes."""
    operand = descriptor.operand_descriptor
    quantization = descriptor.quantization_options
    if quantization is None:
        quantized, algorithm = operand.datatype, QuantizationAlgorithm.NONE
    else:
        quantized, algorithm = quantization.quantized_datatype, quantization.algorithm
    return (
        descriptor.count,
        descriptor.op,
        descriptor.tag,
        operand.datatype,
        operand.distribution_hint,
        quantized,
        algorithm,
    )


def is_utf8(text: str) -> bool:
    """Whether the library can take it. Text from bytes that are not UTF-8 has lone surrogates: that of ``os.environ``
    and ``sys.argv``, for example."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
