"""Descriptions that calls take and return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pccl._enums import DataType, DeviceType, DistributionHint, QuantizationAlgorithm, ReduceOp
from pccl._errors import argument_error
from pccl._memory import Memory, memory_of, same_kind

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


@dataclass
class ReduceOperandDescriptor:
    """Describes the elements of a reduction.

    :param datatype: their type; the same as that of the arrays.
    :param distribution_hint: how they are distributed, if that is known; quantization may use it.
    """

    datatype: DataType
    distribution_hint: DistributionHint = DistributionHint.NONE


@dataclass
class QuantizationOptions:
    """How float32 and float64 elements are sent. Without options they are sent as they are; the defaults here send a
    quarter of the bytes of float32. Each block of 512 elements has two parameters of its own. Every hop rounds to
    nearest, with an error of at most half a step. All members get the same bytes.

    :param quantized_datatype: an integer type of 8 to 32 bits, or UINT64 with MIN_MAX.
    :param algorithm: how the range of a block is chosen.
    """

    quantized_datatype: DataType = DataType.UINT8
    algorithm: QuantizationAlgorithm = QuantizationAlgorithm.MIN_MAX


@dataclass
class ReduceDescriptor:
    """One reduction without its arrays, as in pcclReduceDescriptor_t.

    :param count: number of elements, not bytes: the first ``count`` elements of the arrays are reduced.
    :param op: the operation.
    :param tag: 0 to 2**64 - 1; reductions that run at the same time have different tags.
    :param operand_descriptor: the type of the elements.
    :param quantization_options: None: elements are sent as they are.
    """

    count: int
    op: ReduceOp
    tag: int
    operand_descriptor: ReduceOperandDescriptor
    quantization_options: QuantizationOptions | None = None


@dataclass
class ReduceOpDescriptor:
    """One reduction of :meth:`Communicator.all_reduce_multiple_with_retry`. If made from tensors or arrays, it keeps
    them alive. If made from pointers, the owner of the memory must keep it alive.

    :param sendbuf_ptr: address of the input.
    :param recvbuf_ptr: address of the result; may be the same.
    :param reduce_descriptor: the reduction.
    """

    sendbuf_ptr: int
    recvbuf_ptr: int
    reduce_descriptor: ReduceDescriptor
    _owners: tuple[Any, ...] = field(default=(), repr=False, compare=False, kw_only=True)

    @classmethod
    def from_torch(
        cls, send: torch.Tensor, recv: torch.Tensor, reduce_descriptor: ReduceDescriptor
    ) -> ReduceOpDescriptor:
        """Makes a descriptor of tensors, which are used in place.

        :param send: a contiguous CPU tensor of the descriptor's type, with at least ``count`` elements. Its first
            ``count`` elements are reduced.
        :param recv: the same tensor, or another one like it. Elements after the first ``count`` do not change.
        :param reduce_descriptor: the reduction.
        :raises PCCLArgumentError: the tensors cannot be used in place, or do not match the descriptor.
        """
        return cls._from_arrays(send, recv, reduce_descriptor, "torch")

    @classmethod
    def from_numpy(
        cls, send: NDArray[Any], recv: NDArray[Any], reduce_descriptor: ReduceDescriptor
    ) -> ReduceOpDescriptor:
        """Makes a descriptor of arrays, which are used in place.

        :param send: a contiguous array of the descriptor's type, with at least ``count`` elements. Its first ``count``
            elements are reduced.
        :param recv: the same array, or another one like it that is writable. Elements after the first ``count`` do not
            change.
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
        return cls(source.pointer, target.pointer, descriptor, _owners=source.owners + target.owners)


@dataclass
class TensorInfo:
    """One array of a shared state. If made from a tensor or an array, it keeps it alive. If made from a pointer, the
    owner of the memory must keep it alive.

    :param name: matches the array between members; unique, 1 to 1024 bytes.
    :param data_ptr: address of the memory.
    :param numel: number of elements, not bytes; 0 is allowed.
    :param dtype: type of the elements. numel and dtype are the same on all members.
    :param device_type: CPU in this build.
    :param allow_content_inequality: members may hold different bytes; a newcomer receives the array once.
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
        if self.data_ptr == 0 and not (self._owners and self.numel == 0):
            raise argument_error("TensorInfo", f"data_ptr of '{self.name}' must not be zero")

    @classmethod
    def from_torch(
        cls, tensor: torch.Tensor, name: str, *, allow_content_inequality: bool = False
    ) -> TensorInfo:
        """Makes an entry of a tensor, which is used in place.

        :param tensor: contiguous, on the CPU; may be a parameter.
        :param name: as for the class.
        :param allow_content_inequality: as for the class.
        :raises PCCLArgumentError: the tensor cannot be used in place; the text names the remedy.
        """
        return cls._from_array(tensor, name, allow_content_inequality, "torch")

    @classmethod
    def from_numpy(
        cls, tensor: NDArray[Any], name: str, *, allow_content_inequality: bool = False
    ) -> TensorInfo:
        """Makes an entry of an array, which is used in place.

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

    def _check_unmoved(self, function: str) -> None:
        """Raises if the tensor was given other memory (``tensor.data = ...``), which the library would not notice."""
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
    """The result of a synchronization.

    :param tx_bytes: bytes of content that this peer sent.
    :param rx_bytes: bytes of content that it received; 0 if it held the winning content already.
    """

    tx_bytes: int
    rx_bytes: int


@dataclass
class ReduceInfo:
    """The result of a reduction.

    :param local_world_size: number of members of the group that took part. Divide a sum by this number, not by an
        attribute that is read later.
    :param tx_bytes: bytes of payload that this peer sent, about ``2 (w - 1) / w`` times the array's for w members.
    :param rx_bytes: bytes of payload that it received.
    """

    local_world_size: int
    tx_bytes: int
    rx_bytes: int

    @property
    def world_size(self) -> int:
        """Another name of ``local_world_size``."""
        return self.local_world_size


class SharedState:
    """What all peers of a group keep equal: a revision and named arrays. The arrays stay yours and are used in place.

    :param tensor_infos: the arrays; names, types and sizes are the same on all members.
    :raises PCCLArgumentError: the list is empty.
    """

    revision: int
    """Number of steps: 0 at first, or that of a checkpoint. A synchronization sets it, push_revision() increments
    it."""
    tensor_infos: list[TensorInfo]
    """The arrays."""

    def __init__(self, tensor_infos: list[TensorInfo]) -> None:
        if not tensor_infos:
            raise argument_error("SharedState", "tensor_infos must not be empty")
        self.tensor_infos = list(tensor_infos)
        self.revision = 0

    def push_revision(self) -> None:
        """Increments the revision. Call it once after each synchronization, whether the step was taken or skipped."""
        self.revision += 1

    def __repr__(self) -> str:
        return f"SharedState(revision={self.revision}, {len(self.tensor_infos)} tensors)"


def state_memory(array: Any, name: str, function: str) -> Memory:
    return memory_of(array, f"'{name}'", function, written=True)


def reduce_memory(send: Any, recv: Any, function: str) -> tuple[Memory, Memory]:
    """Memory of two arrays of the same kind, type and size."""
    source, target = _alike(send, recv, function)
    if source.elements != target.elements:
        raise argument_error(
            function, f"send has {source.elements} elements and recv {target.elements}; use arrays of one size"
        )
    return source, target


def _alike(send: Any, recv: Any, function: str) -> tuple[Memory, Memory]:
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


Reduction = tuple[int, int, int, int, int, int, int]


def reduction_of(descriptor: ReduceDescriptor) -> Reduction:
    """The fields of pcclReduceDescriptor_t as numbers."""
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
