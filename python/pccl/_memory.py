"""What the library needs to know about an array: its address, length and type. An array in CPU memory is never copied;
if it cannot be used in place, the error names the remedy. Neither torch nor numpy is imported here, only recognized."""

from __future__ import annotations

import struct
import sys
from typing import Any, NamedTuple

from pccl import _native
from pccl._enums import DataType, DeviceType
from pccl._errors import PCCLArgumentError, argument_error


# By format character of the struct module, which the buffer protocol uses.
_BY_FORMAT = {
    "B": DataType.UINT8,
    "b": DataType.INT8,
    "h": DataType.INT16,
    "H": DataType.UINT16,
    "i": DataType.INT32,
    "I": DataType.UINT32,
    "q": DataType.INT64,
    "Q": DataType.UINT64,
    "l": DataType.INT64 if struct.calcsize("l") == 8 else DataType.INT32,
    "L": DataType.UINT64 if struct.calcsize("L") == 8 else DataType.UINT32,
    "e": DataType.FLOAT16,
    "f": DataType.FLOAT,
    "d": DataType.DOUBLE,
}

_BY_DEVICE = {"cpu": DeviceType.CPU, "cuda": DeviceType.CUDA}


class Memory(NamedTuple):
    pointer: int
    elements: int
    data_type: DataType
    device_type: DeviceType
    kind: str
    # Objects that must live as long as the library uses the memory: the array and, for torch, its storage, because a
    # tensor can be given another storage.
    owners: tuple[Any, ...]


def memory_of(array: Any, what: str, function: str, *, written: bool) -> Memory:
    """``what`` names the argument in errors. ``written``: the library may write to the array. That is allowed for a
    tensor that requires grad: autograd does not record it, as it does not record ``torch.distributed.all_reduce``."""
    kind = kind_of(array)
    if kind == "torch":
        return _torch_memory(array, what, function)
    if kind == "numpy":
        return _numpy_memory(array, what, function, written)
    raise argument_error(
        function,
        f"{what} is a {type(array).__module__}.{type(array).__qualname__}; use a torch tensor or a numpy array "
        "(numpy.asarray() and torch.from_dlpack() make one of most others without a copy)",
    )


def kind_of(array: Any) -> str:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return "numpy"
    return ""


def device_of(tensor: Any) -> str:
    """The kind of a tensor's device. Tests have tensors that pretend to be on a GPU."""
    kind: str = tensor.device.type
    return kind


def _torch_memory(tensor: Any, what: str, function: str) -> Memory:
    def bad(cause: str) -> PCCLArgumentError:
        return argument_error(function, f"{what}: {cause}")

    if hasattr(tensor, "placements") and hasattr(tensor, "to_local"):
        raise bad(
            "is a DTensor, of which this process holds a part; use tensor.to_local() (and a peer group per shard)"
        )
    device = device_of(tensor)
    if device not in _BY_DEVICE:
        raise bad(
            f"is on device '{tensor.device}'; this build works on CPU and CUDA memory: "
            + ("materialize it first" if device == "meta" else "use tensor.cpu(), and copy the result back")
        )
    import torch

    if tensor.layout is not torch.strided:
        raise bad(f"has layout {tensor.layout}; use tensor.to_dense()")
    try:
        data_type = DataType.from_torch_dtype(tensor.dtype)
    except ValueError as error:
        raise bad(str(error)) from None
    if not tensor.is_contiguous():
        raise bad("is not contiguous; use tensor.contiguous(), and read the result from that copy")
    if tensor.is_neg():
        raise bad("is a lazily negated view; use tensor.resolve_neg()")
    count = tensor.numel()
    storage = tensor.untyped_storage()
    end = (tensor.storage_offset() + count) * data_type.itemsize
    if count and end > storage.nbytes():
        raise bad("has lost its memory (storage resized or freed); use it while it is materialized")
    return Memory(tensor.data_ptr(), count, data_type, _BY_DEVICE[device], "torch", (tensor, storage))


def _numpy_memory(array: Any, what: str, function: str, written: bool) -> Memory:
    # The fast path for the usual case. The code below takes the rest (bfloat16, for example) and makes the errors.
    plain = _native.plain_buffer(array, written)
    if plain is not None and plain[2] in _BY_FORMAT:
        return Memory(plain[0], plain[1], _BY_FORMAT[plain[2]], DeviceType.CPU, "numpy", (array,))

    def bad(cause: str) -> PCCLArgumentError:
        return argument_error(function, f"{what}: {cause}")

    try:
        data_type = DataType.from_numpy_dtype(array.dtype)
    except ValueError as error:
        raise bad(str(error)) from None
    flags = array.flags
    if not flags.c_contiguous:
        raise bad("is not contiguous; use numpy.ascontiguousarray(array), and read the result from that copy")
    if written and not flags.writeable:
        raise bad("is read-only; use a writable array, for example array.copy()")
    pointer: int = array.__array_interface__["data"][0]
    return Memory(pointer, array.size, data_type, DeviceType.CPU, "numpy", (array,))


def same_kind(send: Memory, recv: Memory, function: str) -> None:
    """Raises unless both buffers of a reduction have the same kind, kind of device and type."""
    if send.kind != recv.kind:
        raise argument_error(
            function, f"send is a {send.kind} array and recv a {recv.kind} array; use two of one kind"
        )
    if send.device_type is not recv.device_type:
        raise argument_error(
            function, "one of send and recv is on the CPU and the other one on a GPU; use two on one device"
        )
    if send.data_type is not recv.data_type:
        raise argument_error(
            function,
            f"send has type {send.data_type.name} and recv {recv.data_type.name}; convert one of them",
        )
