"""Enumerations of the interface. Their values are those of ``pccl.h``."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import torch


class Result(IntEnum):
    """Result of a call of the library."""

    SUCCESS = 0
    NOT_INITIALIZED = 1
    INTERNAL_ERROR = 2
    INVALID_ARGUMENT = 3
    INVALID_USAGE = 4
    TOO_FEW_PEERS = 5
    MASTER_CONNECTION_FAILED = 6
    RANK_CONNECTION_FAILED = 7
    RANK_CONNECTION_LOST = 8
    NO_SHARED_STATE_AVAILABLE = 9
    PENDING_ASYNC_OPS = 10
    UPDATE_TOPOLOGY_FAILED = 11
    TOPOLOGY_OPTIMIZATION_FAILED = 12


class CommunicatorState(StrEnum):
    """What :attr:`Communicator.state` tells."""

    NEW = "new"
    """connect() has not succeeded yet."""
    MEMBER = "member"
    """In the run."""
    LOST = "lost"
    """Removed from the run, or it has left, or the master is gone: connect() joins again."""
    CLOSED = "closed"
    """close() was called."""


class ReduceOp(IntEnum):
    """The operation, applied element by element. MAX and MIN propagate NaN."""

    SUM = 0
    AVG = 1
    PROD = 2
    MAX = 3
    MIN = 4


class Attribute(IntEnum):
    """World sizes, for :meth:`Communicator.get_attribute`. They count members, not peers that wait to be admitted.

    GLOBAL_WORLD_SIZE counts all members of the run, and LOCAL_WORLD_SIZE (another name of PEER_GROUP_WORLD_SIZE) the
    members of this peer's group. NUM_DISTINCT_PEER_GROUPS counts the groups that have members, and
    LARGEST_PEER_GROUP_WORLD_SIZE the members of the largest group. NUM_GANGS counts the gangs of the run."""

    GLOBAL_WORLD_SIZE = 1
    LOCAL_WORLD_SIZE = 2
    PEER_GROUP_WORLD_SIZE = 2
    NUM_DISTINCT_PEER_GROUPS = 3
    LARGEST_PEER_GROUP_WORLD_SIZE = 4
    NUM_GANGS = 5


class SharedStateSyncStrategy(IntEnum):
    """Which members send and which receive in a synchronization. ENFORCE_POPULAR: the content that most members hold
    wins; if one member uses it, all must. SEND_ONLY members must all hold the same content, and receive nothing;
    RECEIVE_ONLY members receive that content."""

    ENFORCE_POPULAR = 0
    RECEIVE_ONLY = 1
    SEND_ONLY = 2


class DistributionHint(IntEnum):
    """How the elements of a quantized reduction are distributed."""

    NONE = 0
    NORMAL = 1
    UNIFORM = 2


class QuantizationAlgorithm(IntEnum):
    """How the range of a block is chosen. MIN_MAX spaces the codes evenly from the smallest to the largest element.
    ZERO_POINT_SCALE takes the mean as zero point, and the scale from the largest distance to it; with
    DistributionHint.NORMAL from at most 6 standard deviations, so that rare outliers are clipped (codes of up to 32
    bits)."""

    NONE = 0
    MIN_MAX = 1
    ZERO_POINT_SCALE = 2


class DeviceType(IntEnum):
    """The device that memory is on."""

    CPU = 0
    CUDA = 1

    @staticmethod
    def from_torch_device_type(device_type: str) -> DeviceType:
        """Returns the device type with that name.

        :param device_type: ``tensor.device.type``.
        :raises ValueError: it is neither ``"cpu"`` nor ``"cuda"``.
        """
        found = {"cpu": DeviceType.CPU, "cuda": DeviceType.CUDA}.get(device_type)
        if found is None:
            raise ValueError(f"Unsupported device type: {device_type}; use 'cpu' or 'cuda'")
        return found


class DataType(IntEnum):
    """Types of elements. FLOAT is float32 and DOUBLE float64."""

    UINT8 = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    UINT32 = 4
    INT32 = 5
    UINT64 = 6
    INT64 = 7
    FLOAT16 = 8
    BFLOAT16 = 9
    FLOAT = 10
    DOUBLE = 11

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEM_SIZES[self]

    def to_torch_dtype(self) -> torch.dtype:
        """Returns the dtype of torch."""
        import torch

        dtype: torch.dtype = getattr(torch, _NAMES[self])
        return dtype

    @staticmethod
    def from_torch_dtype(dtype: torch.dtype) -> DataType:
        """Returns the data type for a dtype of torch.

        :param dtype: ``tensor.dtype``.
        :raises ValueError: the library has no such type; the text lists those that it has.
        """
        found = _KNOWN_TORCH.get(dtype)
        if found is None:
            found = _BY_NAME.get(str(dtype).removeprefix("torch."))
            if found is None or not str(dtype).startswith("torch."):
                raise ValueError(f"Unsupported torch dtype: {dtype}; {_SUPPORTED}")
            _KNOWN_TORCH[dtype] = found
        return found

    def to_numpy_dtype(self) -> numpy.dtype[Any]:
        """Returns the dtype of numpy.

        :raises ValueError: for BFLOAT16 without the package ml_dtypes.
        """
        import numpy

        if self is DataType.BFLOAT16:
            # numpy has no bfloat16 of its own; ml_dtypes adds it.
            try:
                import ml_dtypes
            except ImportError:
                raise ValueError(
                    "numpy has no bfloat16: install ml_dtypes, or use torch tensors"
                ) from None
            bfloat16: numpy.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return numpy.dtype(_NAMES[self])

    @staticmethod
    def from_numpy_dtype(dtype: numpy.dtype[Any] | type) -> DataType:
        """Returns the data type for a dtype of numpy.

        :param dtype: ``array.dtype``, or a type such as ``numpy.float32``.
        :raises ValueError: the library has no such type, or its byte order is foreign.
        """
        found = _KNOWN_NUMPY.get(dtype)
        if found is not None:
            return found
        import numpy

        dtype = numpy.dtype(dtype)
        found = _BY_NAME.get(dtype.name)
        if found is None or not dtype.isnative:
            order = "" if dtype.isnative else " of foreign byte order"
            raise ValueError(f"Unsupported numpy dtype: {dtype.name}{order}; {_SUPPORTED}")
        _KNOWN_NUMPY[dtype] = found
        return found


_NAMES = {
    DataType.UINT8: "uint8",
    DataType.INT8: "int8",
    DataType.INT16: "int16",
    DataType.UINT16: "uint16",
    DataType.UINT32: "uint32",
    DataType.INT32: "int32",
    DataType.UINT64: "uint64",
    DataType.INT64: "int64",
    DataType.FLOAT16: "float16",
    DataType.BFLOAT16: "bfloat16",
    DataType.FLOAT: "float32",
    DataType.DOUBLE: "float64",
}
# Caches for types of numpy and torch, because every reduction looks its type up.
_KNOWN_TORCH: dict[Any, DataType] = {}
_KNOWN_NUMPY: dict[Any, DataType] = {}
_BY_NAME = {name: member for member, name in _NAMES.items()}
_ITEM_SIZES = {
    member: 8 if name.endswith("64") else 4 if name.endswith("32") else 2 if name.endswith("16") else 1
    for member, name in _NAMES.items()
}
_SUPPORTED = "convert to one of " + ", ".join(_BY_NAME)
