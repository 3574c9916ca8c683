"""Handles: every way of waiting, and what keeps arrays alive."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, admit, run_threads
from pccl import ReduceOp, _lanes, _operation

RunPeers = Callable[..., list[Any]]


class Pair:
    """Two members in this thread: a launch of one waits for the other."""

    def __init__(self, master: str) -> None:
        self.first, self.second = pccl.Communicator(master), pccl.Communicator(master)
        self.first.connect()
        thread = threading.Thread(target=self.second.connect, daemon=True)
        thread.start()
        admit(self.first, 2)
        thread.join(PATIENCE_S)

    def close(self) -> None:
        self.first.close()
        self.second.close()


@pytest.fixture
def pair(master: str) -> Any:
    made = Pair(master)
    yield made
    made.close()


def launch(communicator: pccl.Communicator, value: float, tag: int = 0) -> tuple[numpy.ndarray, pccl.AsyncReduceHandle]:
    array = numpy.full(1000, value, numpy.float32)
    return array, communicator.all_reduce_async(array, array, op=ReduceOp.SUM, tag=tag)


def test_wait_is_cached(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    other, answer = launch(pair.second, 2)
    ok, status, info = handle.wait()
    assert (ok, status, info.local_world_size) == (True, 0, 2)
    assert handle.wait() == (ok, status, info)
    assert handle.done() and handle.result() == info and handle.exception() is None
    assert answer.wait()[0]
    assert (array == 3).all() and (other == 3).all()


def test_time_out(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    assert not handle.done()
    with pytest.raises(TimeoutError, match="not done after 0.01 s"):
        handle.wait(0.01)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    _, answer = launch(pair.second, 2)
    assert handle.result(PATIENCE_S).local_world_size == 2
    assert answer.wait(PATIENCE_S)[0]
    assert (array == 3).all()


def test_failure_is_a_status_and_not_an_exception(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    pair.second.close()
    ok, status, info = handle.wait()
    assert (ok, status) == (False, pccl.Result.RANK_CONNECTION_LOST)
    assert info == pccl.ReduceInfo(0, 0, 0)
    assert handle.wait() == (ok, status, info)
    with pytest.raises(pccl.PCCLConnectionLostError):
        handle.result()
    assert isinstance(handle.exception(), pccl.PCCLConnectionLostError)
    assert (array == 1).all()


def test_launched_operations_are_pending(pair: Pair) -> None:
    _, handle = launch(pair.first, 1)
    with pytest.raises(pccl.PCCLPendingAsyncOpsError, match="await"):
        pair.first.update_topology()
    with pytest.raises(pccl.PCCLArgumentError, match="tag 0"):
        launch(pair.first, 1)
    _, answer = launch(pair.second, 1)
    assert handle.wait()[0] and answer.wait()[0]


def test_waiting_in_another_order(pair: Pair) -> None:
    first = [launch(pair.first, 1, tag) for tag in range(20)]
    second = [launch(pair.second, 2, tag) for tag in reversed(range(20))]
    for array, handle in reversed(first):
        assert handle.wait()[0] and (array == 3).all()
    for array, handle in second:
        assert handle.wait()[0] and (array == 3).all()


def test_callbacks(pair: Pair) -> None:
    called: list[tuple[str, pccl.AsyncReduceHandle]] = []
    all_called = threading.Event()
    _, handle = launch(pair.first, 1)
    handle.add_done_callback(lambda given: called.append(("early", given)))
    handle.add_done_callback(lambda given: 1 // 0)  # is logged, and the other callbacks still run
    _, answer = launch(pair.second, 2)
    assert handle.wait()[0] and answer.wait()[0]

    def late(given: pccl.AsyncReduceHandle) -> None:
        called.append(("late", given))
        all_called.set()

    handle.add_done_callback(late)
    assert all_called.wait(PATIENCE_S)
    assert called == [("early", handle), ("late", handle)]


def test_a_callback_that_exits_stops_no_other(pair: Pair) -> None:
    called = threading.Event()
    _, handle = launch(pair.first, 1)
    handle.add_done_callback(lambda _: sys.exit(3))
    _, answer = launch(pair.second, 2)
    answer.add_done_callback(lambda _: called.set())
    assert called.wait(PATIENCE_S)


def test_asyncio(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        async def reduce() -> int:
            arrays = [numpy.full(5000, index + 1, numpy.float32) for _ in range(8)]
            handles = [
                communicator.all_reduce_async(array, array, op=ReduceOp.SUM, tag=tag)
                for tag, array in enumerate(arrays)
            ]

            async def outcome(handle: pccl.AsyncReduceHandle) -> pccl.ReduceInfo:
                return await handle

            infos = await asyncio.gather(*(outcome(handle) for handle in handles))
            assert all((array == 6).all() for array in arrays)
            assert await handles[0] == infos[0]
            return sum(info.local_world_size for info in infos)

        assert asyncio.run(reduce()) == 24

    run_peers(3, body)


def test_awaiting_a_failure_raises(pair: Pair) -> None:
    async def reduce() -> None:
        _, handle = launch(pair.first, 1)
        pair.second.close()
        with pytest.raises(pccl.PCCLConnectionLostError):
            await handle

    asyncio.run(reduce())


def test_an_await_can_be_cancelled(pair: Pair) -> None:
    async def reduce() -> None:
        array, handle = launch(pair.first, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await handle
        _, answer = launch(pair.second, 2)
        assert (await handle).local_world_size == 2
        assert (await answer).local_world_size == 2
        assert (array == 3).all()

    asyncio.run(reduce())


def test_arrays_live_as_long_as_the_reduction(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    seen = weakref.ref(array)
    del array, handle
    gc.collect()
    assert seen() is not None, "the reduction writes there"
    other, answer = launch(pair.second, 2)
    assert answer.wait()[0] and (other == 3).all()
    # The next launch finds that the first one is done, and releases what it kept.
    deadline = 1000
    while seen() is not None and deadline:
        again, handle = launch(pair.first, 1, tag=1)
        answer = launch(pair.second, 1, tag=1)[1]
        assert handle.wait()[0] and answer.wait()[0]
        deadline -= 1
    assert seen() is None


class InterruptedComm:
    """Stands before the native communicator: a signal handler raises when a launch has just succeeded."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._comm, name)

        def interrupted(*arguments: Any) -> None:
            function(*arguments)
            raise KeyboardInterrupt

        return interrupted if name.endswith("_async") else function


LAUNCHES: dict[str, Callable[[pccl.Communicator, numpy.ndarray], pccl.AsyncHandle[Any]]] = {
    "all_reduce": lambda comm, array: comm.all_reduce_async(array, array, op=ReduceOp.SUM),
    "broadcast": lambda comm, array: comm.broadcast_async(array, array, root=max(one.peer_id for one in comm.members)),
}


@pytest.mark.parametrize("kind", LAUNCHES)
def test_a_signal_during_a_launch_leaves_nothing_behind(pair: Pair, kind: str) -> None:
    both = pair.first, pair.second
    run_threads(2, lambda index: both[index].barrier())
    comm = pair.first._comm
    pair.first._comm = InterruptedComm(comm)  # type: ignore[assignment]
    array, other = numpy.ones(1000), numpy.ones(1000)
    seen = weakref.ref(array)
    try:
        LAUNCHES[kind](pair.first, array)
    except KeyboardInterrupt:
        pass
    else:
        pytest.fail("not interrupted")
    pair.first._comm = comm
    del array
    gc.collect()
    assert seen() is not None, "the operation uses it"
    assert LAUNCHES[kind](pair.second, other).wait()[0]
    # It counts as awaited, and its tag is free.
    run_threads(2, lambda index: both[index].update_topology())
    for _ in range(1000):
        if seen() is None:
            break
        handle, answer = LAUNCHES[kind](pair.first, numpy.ones(1)), LAUNCHES[kind](pair.second, numpy.ones(1))
        assert handle.wait()[0] and answer.wait()[0]
    assert seen() is None


def test_a_launch_that_fails_keeps_nothing(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        array = numpy.ones(1000)
        with pytest.raises(pccl.PCCLTooFewPeersError):
            communicator.all_reduce_async(array, array, op=ReduceOp.SUM)
        assert not communicator._in_flight


class ClosingComm:
    """Stands before the native communicator, and notes whether an array lives while that one closes."""

    def __init__(self, comm: Any, array: weakref.ref[Any], inside: Callable[[], object] = lambda: None) -> None:
        self._comm, self._array, self._inside, self._closed = comm, array, inside, False
        self.lived: list[bool] = []

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._inside()
        self.lived.append(self._array() is not None)
        self._comm.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


def test_a_dropped_communicator_closes_before_its_arrays_go(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    comm = pair.first._comm = ClosingComm(pair.first._comm, weakref.ref(array))
    del array, handle
    pair.first = pair.second
    gc.collect()
    assert comm.lived == [True]


def test_two_threads_close_and_the_arrays_stay_until_the_end(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    begun, second_done = threading.Event(), threading.Event()

    def inside() -> None:
        begun.set()
        second_done.wait(0.2)  # the second one waits for this one

    comm = pair.first._comm = ClosingComm(pair.first._comm, weakref.ref(array), inside)
    del array, handle

    def close(index: int) -> None:
        if index == 1:
            assert begun.wait(PATIENCE_S)
        pair.first.close()
        if index == 1:
            second_done.set()

    run_threads(2, close)
    assert comm.lived == [True]


def test_a_launch_does_not_walk_over_those_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    class Operation:
        done = False

        def is_launched(self) -> bool:
            return True

    class Pending:
        asked = 0

        def __init__(self, operation: Operation) -> None:
            self.operation = operation

        def done_or_dropped(self) -> bool:
            Pending.asked += 1
            return self.operation.done

    class Library:
        made = 0

        def all_reduce_async(self, operation: Operation, *_: Any) -> None:
            Library.made += 1
            operation.done = Library.made % 3 == 0

        def waits_here(self) -> bool:
            return False

        def close(self) -> None: ...

    launches = 3000
    monkeypatch.setattr("pccl._native.Operation", Operation)
    monkeypatch.setattr("pccl._native.Pending", Pending)
    with pccl.Communicator("127.0.0.1:1") as communicator:
        monkeypatch.setattr(communicator, "_comm", Library())
        array = numpy.ones(1)
        handles = [communicator.all_reduce_async(array, array, op=ReduceOp.SUM, tag=tag) for tag in range(launches)]
        assert Pending.asked <= 4 * launches
        # Later launches release what is done. At the end little more than their own is kept.
        del handles
        kept = communicator._in_flight
        assert len(kept) < launches
        for tag in range(launches):
            communicator.all_reduce_async(array, array, op=ReduceOp.SUM, tag=tag)
        assert sum(pending.operation.done for pending in kept) < launches / 3  # type: ignore[attr-defined]


def test_waited_arrays_are_let_go_at_once(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    seen = weakref.ref(array)
    assert launch(pair.second, 2)[1].wait()[0]
    assert handle.wait()[0]
    del array
    gc.collect()
    assert seen() is None


def test_torch_storage_lives_too(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    tensor, other = torch.full((1000,), 1.0), torch.full((1000,), 2.0)
    storage = tensor.data
    handle = pair.first.all_reduce_async(tensor, tensor, op=ReduceOp.SUM)
    tensor.data = torch.zeros(1)  # takes the storage away from the tensor, not from the reduction
    assert pair.second.all_reduce_async(other, other, op=ReduceOp.SUM).wait()[0]
    assert handle.wait()[0]
    assert storage.eq(3).all()


def test_closing_completes_what_runs(pair: Pair) -> None:
    array, handle = launch(pair.first, 1)
    told = threading.Event()
    handle.add_done_callback(lambda _: told.set())
    pair.first.close()
    assert told.wait(PATIENCE_S)
    ok, status, _ = handle.wait()
    assert not ok and status != pccl.Result.SUCCESS
    assert (array == 1).all()


def test_closed_before_anybody_asked(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    _, handle = launch(pair.first, 1)
    _, dropped = launch(pair.first, 1, tag=1)
    pair.first.close()
    caplog.clear()
    with pytest.raises(pccl.PCCLUsageError, match="the communicator was closed"):
        handle.result()
    del dropped
    assert "pcclCreateCommunicator" not in caplog.text


def test_launched_here_awaited_there(master: str) -> None:
    def peer(index: int) -> None:
        with pccl.Communicator(master) as communicator:
            communicator.connect()
            admit(communicator, 2)
            handles = [launch(communicator, index, tag) for tag in range(30)]
            order = handles if index else handles[::-1]

            def wait() -> None:
                for array, handle in order:
                    assert handle.wait()[0] and (array == 1).all()

            waiter = threading.Thread(target=wait)
            waiter.start()
            waiter.join()
            communicator.update_topology()

    run_threads(2, peer)


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_lane_goes_on_when_no_thread_could_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = _lanes._Lane(0)
    queued, begun, may_end, done = (threading.Event() for _ in range(4))
    with monkeypatch.context() as scarce:
        refuse_threads(scarce)
        with pytest.raises(RuntimeError):
            lane.run(queued.set)

    def first() -> None:
        begun.set()
        assert may_end.wait(PATIENCE_S)

    lane.run(first)
    assert queued.wait(PATIENCE_S) and begun.wait(PATIENCE_S)
    with monkeypatch.context() as scarce:
        refuse_threads(scarce)
        lane.run(done.set)  # the thread that is there takes it
        may_end.set()
        assert done.wait(PATIENCE_S)


def test_a_callback_that_could_not_be_added_can_be_added_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Operation:
        tokens: list[int] = []

        def notify(self, token: int) -> None:
            self.tokens.append(token)
            if len(self.tokens) == 1:
                raise KeyboardInterrupt

    class Handle:
        _operation = Operation()

    notifier = _operation._Notifier()
    handle: Any = Handle()
    with monkeypatch.context() as scarce:
        refuse_threads(scarce)
        with pytest.raises(RuntimeError):
            notifier.add(handle, print)
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    with pytest.raises(KeyboardInterrupt):
        notifier.add(handle, print)
    notifier.add(handle, print)
    assert len(started) == 1
    assert len(Operation.tokens) == 2
    assert list(notifier._waiting) == Operation.tokens[1:]
