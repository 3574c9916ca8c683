"""Tensors that pretend to be on a GPU, on streams whose work happens as late as the waits of the package allow. So a
wait that is missing shows as wrong bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pccl import _memory, _staging  # noqa: E402

GARBAGE = 77


class LateStream:
    def __init__(self, lock: Any) -> None:
        self._work: list[Callable[[], object]] = []
        self._done = 0
        self._lock = lock

    def do(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._work.append(work)

    def up_to_now(self) -> Callable[[], None]:
        with self._lock:
            end = len(self._work)

        def run() -> None:
            with self._lock:
                while self._done < end:
                    self._done += 1
                    self._work[self._done - 1]()

        return run

    def wait_stream(self, other: LateStream) -> None:
        self.do(other.up_to_now())

    def record_event(self) -> LateEvent:
        return LateEvent(self.up_to_now())

    def synchronize(self) -> None:
        self.up_to_now()()


class LateEvent:
    def __init__(self, run: Callable[[], None]) -> None:
        self.synchronize = run


class LateStreams:
    """``tensor()`` makes a tensor that pretends to be on a GPU. ``everything``: all do, except page-locked ones."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._mine = threading.local()
        self._on_gpu: list[Any] = []
        self._page_locked: list[Any] = []
        self.everything = False
        self.stored = 0

    def tensor(self, *values: float, dtype: Any = torch.float32) -> Any:
        return self.put(torch.tensor(values, dtype=dtype))

    def put(self, tensor: Any) -> Any:
        """The tensor pretends to be on a GPU from now on."""
        self._on_gpu.append(tensor.untyped_storage())
        return tensor

    def device_of(self, tensor: Any) -> str:
        def among(storages: list[Any]) -> bool:
            return any(tensor.untyped_storage().data_ptr() == one.data_ptr() for one in storages)

        gpu = not among(self._page_locked) if self.everything else among(self._on_gpu)
        return "cuda" if gpu else "cpu"

    # ---- what staging asks for

    def page_locked(self, elements: int, dtype: Any) -> Any:
        made = torch.full((elements,), GARBAGE).to(dtype)
        self._page_locked.append(made.untyped_storage())
        return made

    def current(self, device: Any = None) -> LateStream:
        if not hasattr(self._mine, "stream"):
            self._mine.stream = LateStream(self._lock)
        stream: LateStream = self._mine.stream
        return stream

    def make(self, device: Any) -> LateStream:
        return LateStream(self._lock)

    def copy(self, stream: LateStream, target: Any, source: Any) -> None:
        assert target.shape == source.shape and target.dtype == source.dtype
        if self.device_of(source) == "cpu":
            self.stored += 1
        stream.do(lambda: target.copy_(source))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[LateStreams]:
    streams = LateStreams()
    monkeypatch.setattr(_staging, "streams", streams)
    monkeypatch.setattr(_staging, "_made", {})
    monkeypatch.setattr(_memory, "device_of", streams.device_of)
    yield streams
