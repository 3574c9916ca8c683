"""Handles of launched collectives."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pccl import _native
from pccl._enums import Result
from pccl._errors import PCCLError, PCCLTimeoutError, error_for
from pccl._limits import Timeout, seconds_of
from pccl._values import ReduceInfo

if TYPE_CHECKING:
    import asyncio

Info = TypeVar("Info")


class AsyncHandle(Generic[Info]):
    """A collective in progress. Call at least one method on every handle before update_topology(), or await it in
    asyncio (``await handle`` returns what result() returns). The library calls this awaiting the collective. If a
    handle is dropped, the collective still runs to its end. Any thread may call any method."""

    def __init__(
        self,
        operation: _native.Operation,
        release: Callable[[], object],
        read: Callable[[int, int, int], Info],
        function: str,
        land: Callable[[], None] | None = None,
    ) -> None:
        """``release`` releases the arrays; it is called when the collective is done. ``read`` makes the info from the
        number of members and the bytes sent and received; they are 0 after a failure. ``function`` is named in errors.
        ``land`` puts a result into place that the library has written elsewhere. It is called once, after a success,
        also if the handle is dropped."""
        self._operation = operation
        self._release = release
        self._read = read
        self._function = function
        self._outcome: tuple[int, Info, str] | None = None
        self._land = land
        self._landing = threading.Lock()
        self._failure: Exception | None = None
        if land is not None:
            _notifier.add(self, _land_done)

    def wait(self, timeout: Timeout = None) -> tuple[bool, int, Info]:
        """Blocks until the collective is done. Does not raise if it failed. May be called again.

        :param timeout: seconds or a timedelta; None: no limit.
        :returns: (is_success, status, info). status is the number of a :class:`Result`; info has zeros after a
            failure, and no members or pieces.
        :raises PCCLTimeoutError: not done in time. The collective goes on, and wait() may be called again. To end it
            for all members, call Communicator.abort().
        """
        status, info, _ = self._wait(timeout)
        return status == Result.SUCCESS, status, info

    def done(self) -> bool:
        """Returns whether wait() would return at once. Never blocks."""
        if self._outcome is None:
            self._operation.start()
            return self._land is None and self._operation.done()
        return True

    def result(self, timeout: Timeout = None) -> Info:
        """Blocks until the collective is done, and returns its info.

        :param timeout: seconds or a timedelta; None: no limit.
        :raises PCCLError: it failed; the same kinds as for the call that blocks.
        :raises PCCLTimeoutError: not done in time; as for :meth:`wait`.
        """
        status, info, cause = self._wait(timeout)
        if status != Result.SUCCESS:
            raise error_for(status, self._function, cause)
        return info

    def exception(self, timeout: Timeout = None) -> PCCLError | None:
        """Blocks until the collective is done.

        :param timeout: seconds or a timedelta; None: no limit.
        :returns: its failure, or None.
        :raises PCCLTimeoutError: not done in time; as for :meth:`wait`.
        """
        status, _, cause = self._wait(timeout)
        return None if status == Result.SUCCESS else error_for(status, self._function, cause)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Registers a callback and returns at once.

        :param callback: called with the handle when the collective is done. One thread of this package calls all
            callbacks, one after the other, so they should be short. If a callback raises, the exception is logged.
        """
        _notifier.add(self, callback)

    def __await__(self) -> Generator[Any, None, Info]:
        import asyncio  # takes longer than the import of the rest of this package

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not future.done():
                future.set_result(None)

        def wake(_: AsyncHandle[Info]) -> None:
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:
                pass  # the loop was closed; nobody waits any more

        self.add_done_callback(wake)
        yield from future
        return self.result()

    def _wait(self, timeout: Timeout) -> tuple[int, Info, str]:
        if self._outcome is None:
            seconds = seconds_of(timeout, self._function)
            if not self._operation.wait(seconds):
                raise PCCLTimeoutError(
                    Result.PENDING_ASYNC_OPS,
                    self._function,
                    f"the collective is not done after {seconds:g} s; it goes on. Wait again, or end it for all "
                    "members with abort()",
                )
            status, world, tx_bytes, rx_bytes, cause = self._operation.outcome()
            if self._land is not None:
                self._land_once(status)
            self._outcome = status, self._read(world, tx_bytes, rx_bytes), cause
            self._release()
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def _land_once(self, status: int) -> None:
        """Whoever comes second waits for the first."""
        with self._landing:
            land = self._land
            if land is not None and status == Result.SUCCESS:
                try:
                    land()
                except Exception as error:
                    self._failure = error
            self._land = None


class AsyncReduceHandle(AsyncHandle[ReduceInfo]):
    """A reduction in progress, made by :meth:`Communicator.all_reduce_async`."""

    def __init__(
        self, operation: _native.Operation, release: Callable[[], object], land: Callable[[], None] | None = None
    ) -> None:
        super().__init__(operation, release, ReduceInfo, "pcclAwaitAsyncReduce", land)


def _land_done(handle: AsyncHandle[Any]) -> None:
    handle._land_once(handle._operation.outcome()[0])


class _Notifier:
    """Runs callbacks in one thread, which starts with the first callback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        self._waiting: dict[int, tuple[AsyncHandle[Any], list[Callable[[Any], object]]]] = {}
        self._token_of: dict[int, int] = {}
        self._thread: threading.Thread | None = None

    def add(self, handle: AsyncHandle[Any], callback: Callable[[Any], object]) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="pccl-callbacks", daemon=True)
                thread.start()
                self._thread = thread
            token = self._token_of.get(id(handle))
            if token is not None:
                self._waiting[token][1].append(callback)
                return
            token = next(self._tokens)
            # First, because it may raise. The thread needs the lock, so it finds what follows.
            handle._operation.notify(token)
            self._waiting[token] = (handle, [callback])
            self._token_of[id(handle)] = token

    def stop(self) -> None:
        thread = self._thread
        if thread is not None:
            _native.stop_completions()
            thread.join(5)

    def forget(self) -> None:
        """For a child of fork(), which does not have the thread."""
        self.__init__()  # type: ignore[misc]

    def _run(self) -> None:
        while (token := _native.next_completed()) is not None:
            with self._lock:
                if token not in self._waiting:  # a signal handler raised in add(), after notify()
                    continue
                handle, callbacks = self._waiting.pop(token)
                self._token_of.pop(id(handle), None)
            for callback in callbacks:
                try:
                    callback(handle)
                except BaseException:  # SystemExit, too: this thread serves all communicators
                    logging.getLogger("pccl").exception("a callback of a collective failed")
            del handle, callbacks


_notifier = _Notifier()
