"""Tensors on a GPU in calls of the library, which works on CPU memory.

A tensor is copied to page-locked memory, the call uses the copy, and its result is copied to the GPU when the outcome
is known. So a call that fails leaves tensors on a GPU as they were. Copies run on a stream of their own, one per
device: they wait for what the program's current stream holds at that time, and not for what it gets later. torch keeps
page-locked memory for the next copies.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from pccl._enums import DataType, DeviceType
from pccl._errors import argument_error

if TYPE_CHECKING:
    import torch


class Streams(Protocol):
    """What staging needs of torch.cuda. Tests have one whose copies happen as late as the waits allow."""

    def page_locked(self, elements: int, dtype: Any) -> torch.Tensor:
        """CPU memory that a device reads and writes without help of the CPU; not initialized."""

    def current(self, device: Any) -> Any:
        """The stream of that device on which the calling thread works."""

    def make(self, device: Any) -> Any:
        """Another stream of that device."""

    def copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begins a copy on the stream. One of the tensors is page-locked, the other one on the device."""


class _Cuda:
    def page_locked(self, elements: int, dtype: Any) -> torch.Tensor:
        import torch

        return torch.empty(elements, dtype=dtype, device="cpu", pin_memory=True)

    def current(self, device: Any) -> Any:
        import torch

        return torch.cuda.current_stream(device)

    def make(self, device: Any) -> Any:
        import torch

        return torch.cuda.Stream(device)

    def copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        import torch

        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)


streams: Streams = _Cuda()
_made: dict[Any, Any] = {}
_lock = threading.Lock()


def _stream_of(device: Any) -> Any:
    with _lock:
        stream = _made.get(device)
        if stream is None:
            stream = _made[device] = streams.make(device)
        return stream


class Fetch:
    """A copy of a tensor on a GPU to page-locked memory, which begins at once. ``host`` has its elements as a vector
    after wait(). Any thread may call wait()."""

    def __init__(self, source: torch.Tensor) -> None:
        self._source = source.detach().reshape(-1)
        self.host = streams.page_locked(self._source.numel(), self._source.dtype)
        stream = _stream_of(source.device)
        stream.wait_stream(streams.current(source.device))
        streams.copy(stream, self.host, self._source)
        self._copied = stream.record_event()

    def wait(self) -> torch.Tensor:
        """Blocks until the copy is there, and returns it."""
        self._copied.synchronize()
        return self.host


def room(elements: int, dtype: Any) -> torch.Tensor:
    """Page-locked memory for a result of that many elements of a dtype of torch; not initialized."""
    return streams.page_locked(elements, dtype)


def room_for_result(host: torch.Tensor) -> torch.Tensor:
    """Page-locked memory for the reduction of ``host``. A reduction in place takes longer: it keeps its input."""
    return room(host.numel(), host.dtype)


def store(host: torch.Tensor, target: torch.Tensor) -> None:
    """Copies page-locked memory to a contiguous tensor on a GPU of as many elements. Blocks until it is there, so that
    every stream may read it. What the program's stream held when ``host`` was fetched is done and needs no wait."""
    stream = _stream_of(target.device)
    streams.copy(stream, target.detach().view(-1), host)
    stream.record_event().synchronize()


class _Bytes:
    """Device memory behind a pointer, as torch.as_tensor() takes it."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


def at_pointer(pointer: int, elements: int, data_type: DataType, what: str, function: str) -> torch.Tensor:
    """The bytes of device memory, without a copy.

    :raises PCCLArgumentError: torch is not there, or takes the pointer for none of a CUDA device.
    """
    try:
        import torch

        return torch.as_tensor(_Bytes(pointer, elements * data_type.itemsize), device="cuda")
    except (ImportError, RuntimeError, AssertionError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise argument_error(
            function, f"{what} is CUDA memory, and torch cannot use it here: {cause}; use CPU memory"
        ) from None


def is_on_gpu(device_type: DeviceType) -> bool:
    return device_type == DeviceType.CUDA
