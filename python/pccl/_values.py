"""Descriptions that calls take and give."""

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
    """What the elements of a reduction are.

    :param datatype: their type, that of the arrays.
    :param distribution_hint: how they are distributed, where one knows; quantization may use it.
    """

    datatype: DataType
    distribution_hint: DistributionHint = DistributionHint.NONE


@dataclass
class QuantizationOptions:
    """How elements of float32 and float64 travel. No options at all mean as they are; these defaults mean a quarter of
    the bytes of float32. Blocks of 512 elements have two parameters each; every hop rounds to nearest, with an error of
    at most half a step. Every member gets the same bytes.

    :param quantized_datatype: an integer type of 8 to 32 bits, or UINT64 with MIN_MAX.
    :param algorithm: how a block's range is chosen.
    """

    quantized_datatype: DataType = DataType.UINT8
    algorithm: QuantizationAlgorithm = QuantizationAlgorithm.MIN_MAX


@dataclass
class ReduceDescriptor:
    """One reduction without its arrays, as pcclReduceDescriptor_t has it.

    :param count: elements, not bytes: as many of the arrays, from the first on.
    :param op: what is done.
    :param tag: 0 to 2**64 - 1, another one for each reduction at a time.
    :param operand_descriptor: the type of the elements.
    :param quantization_options: None: they travel as they are.
    """

    count: int
    op: ReduceOp
    tag: int
    operand_descriptor: ReduceOperandDescriptor
    quantization_options: QuantizationOptions | None = None


@dataclass
class ReduceOpDescriptor:
    """One reduction of :meth:`Communicator.all_reduce_multiple_with_retry`. Made from tensors or arrays it keeps them
    alive; made from pointers, their owner must.

    :param sendbuf_ptr: address of the input.
    :param recvbuf_ptr: address of the result; may be the same.
    :param reduce_descriptor: what is done with them.
    """

    sendbuf_ptr: int
    recvbuf_ptr: int
    reduce_descriptor: ReduceDescriptor
    _owners: tuple[Any, ...] = field(default=(), repr=False, compare=False, kw_only=True)

    @classmethod
    def from_torch(
        cls, send: torch.Tensor, recv: torch.Tensor, reduce_descriptor: ReduceDescriptor
    ) -> ReduceOpDescriptor:
        """Of tensors, which are used where they lie.

        :param send: a contiguous CPU tensor, of the type and with at least as many elements as the descriptor says. Its
            first ``count`` elements are reduced.
        :param recv: the same tensor, or another one like it; elements behind the first ``count`` stay as they are.
        :param reduce_descriptor: what is done with them.
        :raises PCCLArgumentError: they cannot be used as they lie, or are not what the descriptor says.
        """
        return cls._from_arrays(send, recv, reduce_descriptor, "torch")

    @classmethod
    def from_numpy(
        cls, send: NDArray[Any], recv: NDArray[Any], reduce_descriptor: ReduceDescriptor
    ) -> ReduceOpDescriptor:
        """Of arrays, which are used where they lie.

        :param send: a contiguous array, of the type and with at least as many elements as the descriptor says. Its
            first ``count`` elements are reduced.
        :param recv: the same array, or another one like it that is writable; elements behind the first ``count`` stay
            as they are.
        :param reduce_descriptor: what is done with them.
        :raises PCCLArgumentError: they cannot be used as they lie, or are not what the descriptor says.
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
    """One array of a shared state. Made from a tensor or an array it keeps it alive; made from a pointer, its owner
    must.

    :param name: what it is matched by between members; unique, 1 to 1024 bytes.
    :param data_ptr: address of the memory.
    :param numel: elements, not bytes; 0 is allowed.
    :param dtype: type of the elements; the same on all members, like numel.
    :param device_type: CPU in this build.
    :param allow_content_inequality: members may hold different bytes; a newcomer receives them once.
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
        """Of a tensor, which is used where it lies.

        :param tensor: contiguous, on the CPU; a parameter, too.
        :param name: as of the class.
        :param allow_content_inequality: as of the class.
        :raises PCCLArgumentError: it cannot be used as it lies; the text names the way out.
        """
        return cls._from_array(tensor, name, allow_content_inequality, "torch")

    @classmethod
    def from_numpy(
        cls, tensor: NDArray[Any], name: str, *, allow_content_inequality: bool = False
    ) -> TensorInfo:
        """Of an array, which is used where it lies.

        :param tensor: contiguous and writable.
        :param name: as of the class.
        :param allow_content_inequality: as of the class.
        :raises PCCLArgumentError: it cannot be used as it lies; the text names the way out.
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
        """A tensor can be given other memory (``tensor.data = ...``), of which the library would know nothing."""
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
    """Of one synchronization.

    :param tx_bytes: bytes of content that this peer sent.
    :param rx_bytes: bytes of content that it received; 0 if it held what the others hold.
    """

    tx_bytes: int
    rx_bytes: int


@dataclass
class ReduceInfo:
    """Of one reduction.

    :param local_world_size: members of the group that took part. Divide a sum by this, not by an attribute read later.
    :param tx_bytes: bytes of payload that this peer sent, about ``2 (w - 1) / w`` times the array's.
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
    """What all peers of a group keep equal: a revision and named arrays, which stay yours and are used where they lie.

    :param tensor_infos: the arrays; names, types and sizes are the same on all members.
    :raises PCCLArgumentError: there is none.
    """

    revision: int
    """Steps so far: 0 at first, or that of a checkpoint; set by a synchronization, counted up by push_revision()."""
    tensor_infos: list[TensorInfo]
    """The arrays."""

    def __init__(self, tensor_infos: list[TensorInfo]) -> None:
        if not tensor_infos:
            raise argument_error("SharedState", "tensor_infos must not be empty")
        self.tensor_infos = list(tensor_infos)
        self.revision = 0

    def push_revision(self) -> None:
        """Counts the revision up. Once after each synchronization, whether the step was taken or skipped."""
        self.revision += 1

    def __repr__(self) -> str:
        return f"SharedState(revision={self.revision}, {len(self.tensor_infos)} tensors)"


def state_memory(array: Any, name: str, function: str) -> Memory:
    return memory_of(array, f"'{name}'", function, written=True)


def reduce_memory(send: Any, recv: Any, function: str) -> tuple[Memory, Memory]:
    """Of arrays of one size."""
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
    """The numbers of pcclReduceDescriptor_t."""
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
