"""``timeout``: a call that blocks ends in time, its peer has left the run, and the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, admit, run_threads, wait_until
from pccl._limits import limit

pytestmark = pytest.mark.torch_free

Call = Callable[[pccl.Communicator, Any], Any]

SUM = pccl.ReduceOp.SUM
# Each makes one call that needs the other member.
CALLS: dict[str, Call] = {
    "update_topology": lambda comm, limit: comm.update_topology(timeout=limit),
    "are_peers_pending": lambda comm, limit: comm.are_peers_pending(timeout=limit),
    "optimize_topology": lambda comm, limit: comm.optimize_topology(timeout=limit),
    "sync_shared_state": lambda comm, limit: comm.sync_shared_state(
        pccl.SharedState([pccl.TensorInfo.from_numpy(numpy.ones(3), "one")]), timeout=limit
    ),
    "all_reduce": lambda comm, limit: comm.all_reduce(ARRAY, ARRAY, op=SUM, timeout=limit),
    "all_reduce_multiple_with_retry": lambda comm, limit: comm.all_reduce_multiple_with_retry(
        [
            pccl.ReduceOpDescriptor.from_numpy(
                ARRAY, ARRAY, pccl.ReduceDescriptor(3, SUM, 1, pccl.ReduceOperandDescriptor(pccl.DataType.DOUBLE))
            )
        ],
        timeout=limit,
    ),
    "all_gather": lambda comm, limit: comm.all_gather(ARRAY, timeout=limit),
    "broadcast": lambda comm, limit: comm.broadcast(ARRAY, ARRAY, root=comm.peer_id, timeout=limit),
    "reduce_scatter": lambda comm, limit: comm.reduce_scatter(ARRAY, numpy.zeros(2), op=SUM, timeout=limit),
    "reduce": lambda comm, limit: comm.reduce(ARRAY, ARRAY, op=SUM, root=comm.peer_id, timeout=limit),
    "gather": lambda comm, limit: comm.gather(ARRAY, numpy.zeros(6), root=comm.peer_id, timeout=limit),
    "scatter": lambda comm, limit: comm.scatter(numpy.arange(4.0), numpy.zeros(2), root=comm.peer_id, timeout=limit),
    "all_to_all": lambda comm, limit: comm.all_to_all(numpy.arange(4.0), numpy.zeros(4), timeout=limit),
    "barrier": lambda comm, limit: comm.barrier(timeout=limit),
}
ARRAY = numpy.arange(3.0)


@pytest.fixture
def pair(master: str) -> Any:
    made = [pccl.Communicator(master) for _ in range(2)]

    def enter(index: int) -> None:
        made[index].connect()
        admit(made[index], 2)

    run_threads(2, enter)
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("limit", [0.1, timedelta(milliseconds=100)])
@pytest.mark.parametrize("name", CALLS)
def test_each_call_ends_in_time(pair: list[pccl.Communicator], name: str, limit: Any) -> None:
    """In a thread, too: Python runs signal handlers on the main thread alone, which is another mechanism."""
    comm, other = pair

    def call(_: int) -> None:
        with pytest.raises(pccl.PCCLTimeoutError, match="time limit.*left the run") as failure:
            CALLS[name](comm, limit)
        assert isinstance(failure.value, (pccl.PCCLError, TimeoutError))
        assert failure.value.result != pccl.Result.SUCCESS

    if isinstance(limit, timedelta):
        run_threads(1, call)
    else:
        call(0)
    assert (ARRAY == numpy.arange(3.0)).all()  # as before the call
    assert comm.state == pccl.CommunicatorState.LOST and comm.world_size == 1
    # The other one is not left with a vote of a peer that is gone, and both can meet again.
    wait_until(lambda: other.world_size == 1 or not other.are_peers_pending(), "the other is alone")
    run_threads(2, lambda index: comm.connect() if index == 0 else admit(other, 2))
    run_threads(2, lambda index: pair[index].barrier())


def test_in_time_a_limit_changes_nothing(pair: list[pccl.Communicator]) -> None:
    def body(index: int) -> Any:
        comm, array = pair[index], numpy.full(4, index + 1.0)
        assert not comm.are_peers_pending(timeout=PATIENCE_S)
        comm.update_topology(timeout=timedelta(seconds=PATIENCE_S))
        info = comm.all_reduce(array, array, op=SUM, timeout=PATIENCE_S)
        assert (array == 3).all() and info.local_world_size == 2
        assert comm.all_gather(array, timeout=PATIENCE_S).local_world_size == 2
        # The limit ends with its call: the next one has none.
        with limit(0, "test"):
            pass
        if index == 0:
            time.sleep(0.2)  # a limit that is over would show after 50 ms
        return comm.barrier().local_world_size

    assert run_threads(2, body) == [2, 2]


def test_the_limit_of_one_thread_is_not_that_of_another(pair: list[pccl.Communicator]) -> None:
    comm, other = pair
    began = threading.Event()

    def waits() -> None:
        began.set()
        comm.barrier(tag=7)
        done.set()

    done = threading.Event()
    waiting = threading.Thread(target=waits)
    waiting.start()
    assert began.wait(PATIENCE_S)
    handle = comm.barrier_async(tag=8)
    for _ in range(3):
        with pytest.raises(pccl.PCCLTimeoutError, match="not done after 0.01 s; it goes on.*abort"):
            handle.wait(0.01)
    with pytest.raises(pccl.PCCLTimeoutError):
        handle.result(timedelta(0))
    assert not done.is_set() and comm.state == pccl.CommunicatorState.MEMBER
    other.barrier(tag=7)
    other.barrier(tag=8)
    waiting.join(PATIENCE_S)
    assert done.is_set() and handle.result(timedelta(seconds=PATIENCE_S)).local_world_size == 2


def test_a_limit_within_a_limit(pair: list[pccl.Communicator]) -> None:
    """A signal handler may use one in between two steps of a call."""

    def call(_: int) -> None:
        with limit(0.01, "outer"):
            with limit(3600, "inner"):
                pass
            with pytest.raises(pccl.PCCLTimeoutError):
                pair[0].barrier()

    run_threads(1, call)


def test_connect_ends_in_time(master: str, port: int) -> None:
    with pccl.Communicator(master) as member, pccl.Communicator(master) as newcomer:
        member.connect()
        # The member makes no call, so nobody admits the newcomer.
        with pytest.raises(pccl.PCCLTimeoutError, match="time limit"):
            newcomer.connect(timeout=0.1)
        assert newcomer.state == pccl.CommunicatorState.NEW
        # Else the member may still admit the peer of the first attempt, and no other one.
        wait_until(lambda: not member.are_peers_pending(), "the master knows that the first attempt is over")
        run_threads(2, lambda index: newcomer.connect(timeout=PATIENCE_S) if index else admit(member, 2))
        assert newcomer.state == pccl.CommunicatorState.MEMBER
    with pccl.Communicator(f"127.0.0.1:{port}") as lonely:
        began = time.monotonic()
        with pytest.raises(pccl.PCCLTimeoutError):
            lonely.connect(n_attempts=10_000, timeout=0.2)
        assert time.monotonic() - began < PATIENCE_S


def test_what_is_no_time_is_refused(pair: list[pccl.Communicator]) -> None:
    for wrong in (-1, float("nan"), timedelta(seconds=-1)):
        with pytest.raises(pccl.PCCLArgumentError, match="timeout is .*use seconds"):
            pair[0].barrier(timeout=wrong)
    assert pair[0].state == pccl.CommunicatorState.MEMBER


def test_state(master: str) -> None:
    comm = pccl.Communicator(master)
    assert comm.state == "new"
    comm.connect()
    assert comm.state == "member"
    comm.abort()
    assert comm.state == "lost"
    comm.connect()
    assert comm.state == "member"
    comm.close()
    assert comm.state == "closed"
