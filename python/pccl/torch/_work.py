"""What a collective of the process group returns: a handle for the launches that it consists of."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pccl import _lanes, _memory, _staging
from pccl._errors import PCCLError
from pccl._operation import AsyncHandle
from pccl.torch import _failure
from pccl.torch._run import Run

Tensors = Sequence[torch.Tensor]
Handle = AsyncHandle[Any]
# Puts the results into place. Its argument are the infos of the handles.
Finish = Callable[[list[Any]], None]


def recorded(name: str) -> contextlib.AbstractContextManager[object]:
    """A range for torch.profiler; does nothing while the profiler is off."""
    if not torch.autograd._profiler_enabled():
        return contextlib.nullcontext()
    range_: contextlib.AbstractContextManager[object] = torch.autograd.profiler.record_function(name)
    return range_


class Work(dist.Work):
    """Done when all its handles are done and ``finish`` has put the results into place."""

    def __init__(
        self,
        run: Run | None,
        operation: str,
        handles: list[Handle],
        result: list[torch.Tensor],
        finish: Finish | None,
        seconds: float,
        size: int | None = None,
    ) -> None:
        """``size``: ranks that take part; None: all."""
        super().__init__()
        self._size = size if size is not None else run.size if run is not None else 1
        self.operation = operation
        self.seconds = seconds
        self._run = run
        self._handles = handles
        self._result = result
        self._finish = finish
        self._lock = threading.Lock()
        self._lane = _lanes.next_lane()
        self._done = False
        self._error: Exception | None = None
        self._raw: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None
        if run is None or not handles:
            self._complete()
        else:
            run.watch(self, time.monotonic() + seconds)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Raises if the collective failed. A time-out (0: none) ends the whole group, like the time-out of the
        group."""
        with recorded(f"pccl:{self.operation}.wait"):
            return self._wait(timeout)

    def _wait(self, timeout: timedelta | None) -> bool:
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        deadline = time.monotonic() + seconds if seconds > 0 else None
        try:
            for handle in self._handles:
                handle.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            assert self._run is not None
            self._run.expire(self.operation, seconds)
        self._complete()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self.look(in_lane=False)

    def look(self, in_lane: bool = True) -> bool:
        """Completes it if it is done, and returns whether it is. ``in_lane``: as for :meth:`_complete`."""
        # A list: each handle begins to find out.
        if not self._done and all([handle.done() for handle in self._handles]):
            self._complete(in_lane)
        return self._done

    def look_for_nobody(self) -> None:
        """As look(), unless somebody has its future: that is completed when the last handle is done, in this order."""
        if self._future is None:
            self.look()

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        with self._lock:
            if self._future is not None:
                return self._future
            self._raw = torch.futures.Future()
            # Code that waits for the future in C++ gets a failure only from a callback that raises.
            self._future = self._raw.then(self._outcome)
            if self._done:
                self._raw.set_result(None)
                return self._future
        self._left = len(self._handles)
        for handle in self._handles:
            handle.add_done_callback(self._one_done)
        return self._future

    def _outcome(self, _: object) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._result

    def _one_done(self, _: Handle) -> None:
        # One thread makes all calls. It has to go on, and callbacks of the future may wait for another collective.
        self._left -= 1
        if not self._left:
            self._complete(in_lane=True)

    def _complete(self, in_lane: bool = False) -> None:
        """A waiting thread or the callback thread does this, whichever comes first. The other one waits for it.
        ``in_lane``: another thread calls the callbacks of the future."""
        with self._lock:
            if self._done:
                return
            run = self._run
            try:
                infos = [self._check(handle, run) for handle in self._handles] if run is not None else []
                if self._finish is not None:
                    self._finish(infos)
                    self._wait_for_gpus()
            except Exception as error:
                self._error = error if run is None else run.fail(error)
            self._done = True
            self._finish = None
            raw = self._raw
        if run is not None:
            run.unwatch(self)
        if raw is not None and in_lane:
            _lanes.run(self._lane, lambda: raw.set_result(None))
        elif raw is not None:
            raw.set_result(None)

    def _wait_for_gpus(self) -> None:
        """This may be another thread than that of the program, with another current stream."""
        for device in {tensor.device for tensor in self._result if _memory.device_of(tensor) == "cuda"}:
            _staging.streams.current(device).synchronize()

    def _check(self, handle: Handle, run: Run) -> Any:
        try:
            info = handle.result()
        except PCCLError as error:
            raise run.failure_of(error, self.operation)
        # If a peer was lost before the operation began, the others have completed it. This group needs all ranks.
        if info.local_world_size != self._size:
            raise _failure.lost(self.operation, info.local_world_size, self._size)
        return info


# As for the collectives: torch.compile must call these without tracing them.
for _name in ("wait", "is_completed", "is_success", "exception", "result", "synchronize", "get_future"):
    setattr(Work, _name, torch._disable_dynamo(getattr(Work, _name)))
