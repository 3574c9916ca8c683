"""A transfer of the DiLoCo helper: retries, and what its thread does. The library is replaced by a queue of outcomes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl  # noqa: E402
from pccl import PCCLError, Result, _repeated  # noqa: E402
from pccl._membership import Lost  # noqa: E402
from pccl.diloco._encoding import Reduction  # noqa: E402
from pccl.diloco._transfer import Transfer  # noqa: E402

WAIT_S = 30.0


class Group:
    """Stands for Membership, Communicator and handles: each reduction waits for the next outcome that a test puts in."""

    def __init__(self) -> None:
        self.outcomes: queue.Queue[Result] = queue.Queue()
        self.launched: list[tuple[int, float]] = []
        self.world_size = 3
        self.lost = False
        self.aborted = False
        self.taken = threading.Event()  # an outcome
        self.comm: Any = self

    def raise_if_lost(self, cause: object) -> None:
        if self.lost:
            raise Lost(str(cause))

    def all_reduce_async(self, send: Any, receive: Any, *, tag: int, **_: Any) -> Any:
        self.launched.append((tag, float(send[0])))

        def wait() -> tuple[bool, int, Any]:
            outcome = self.outcomes.get(timeout=WAIT_S)
            self.taken.set()
            if outcome == Result.TOO_FEW_PEERS:
                self.world_size = 1
            return outcome == Result.SUCCESS, outcome, SimpleNamespace(local_world_size=self.world_size)

        def result() -> None:
            raise PCCLError(Result.INVALID_ARGUMENT, "all_reduce", "the members do not agree")

        return SimpleNamespace(wait=wait, result=result)

    def get_attribute(self, _: pccl.Attribute) -> int:
        return self.world_size

    def abort(self) -> None:
        self.aborted = True
        self.outcomes.put(Result.MASTER_CONNECTION_FAILED)


class Steps:
    """An exchange of two reductions. It notes the threads that compute, and can be held up while it computes."""

    def __init__(self) -> None:
        self.buffer = torch.zeros(1)
        self.threads: set[int] = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def run(self) -> Generator[Reduction, int, int]:
        for stage in (0, 1):
            self.threads.add(threading.get_ident())
            assert self.go_on.wait(WAIT_S)
            self.buffer += 1
            world = yield Reduction(stage, self.buffer, self.buffer, pccl.ReduceOp.SUM)
        return 10 * world


def start(group: Group, steps: Steps, in_background: bool, retries: list[int]) -> Transfer:
    note = lambda: retries.append(threading.get_ident())  # noqa: E731
    return Transfer(group, steps.run(), 7, note, in_background)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_background", [False, True])
def test_lost_peers_cost_a_retry_of_the_same_reduction(in_background: bool) -> None:
    group, steps, retries = Group(), Steps(), []
    for outcome in (Result.SUCCESS, Result.RANK_CONNECTION_LOST, Result.RANK_CONNECTION_LOST, Result.SUCCESS):
        group.outcomes.put(outcome)
    transfer = start(group, steps, in_background, retries)
    assert transfer.finish() == 30
    assert group.launched == [(7, 1.0), (8, 2.0), (8, 2.0), (8, 2.0)]
    # Callbacks of the user are called on the thread of the user.
    assert retries == [threading.get_ident()] * 2
    assert (steps.threads == {threading.get_ident()}) != in_background


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_alone(in_background: bool, lost: bool) -> None:
    group, steps = Group(), Steps()
    group.lost = lost
    group.outcomes.put(Result.TOO_FEW_PEERS)
    transfer = start(group, steps, in_background, [])
    if lost:
        with pytest.raises(Lost, match="no longer a member"):
            transfer.finish()
    else:
        assert transfer.finish() is None


@pytest.mark.parametrize("in_background", [False, True])
def test_failures_that_no_retry_cures(in_background: bool) -> None:
    group = Group()
    group.outcomes.put(Result.INVALID_ARGUMENT)
    with pytest.raises(PCCLError, match="do not agree"):
        start(group, Steps(), in_background, []).finish()


def test_the_caller_does_not_wait_for_the_encoding() -> None:
    group, steps = Group(), Steps()
    steps.go_on.clear()
    transfer = start(group, steps, True, [])
    transfer.poll()  # returns, although nothing is encoded yet
    assert not group.launched
    steps.go_on.set()
    group.outcomes.put(Result.SUCCESS)
    group.outcomes.put(Result.SUCCESS)
    assert transfer.finish() == 30


def test_buffers_rest_while_the_transfer_is_paused() -> None:
    group, steps = Group(), Steps()
    transfer = start(group, steps, True, [])
    with transfer.paused():
        assert float(steps.buffer) == 1.0  # the first reduction is encoded
        group.outcomes.put(Result.SUCCESS)
        assert group.taken.wait(WAIT_S)  # now the thread waits for the end of the pause
        assert float(steps.buffer) == 1.0
    group.outcomes.put(Result.SUCCESS)
    assert transfer.finish() == 30 and float(steps.buffer) == 2.0


def test_abort_ends_a_transfer_that_waits() -> None:
    group = Group()
    transfer = start(group, Steps(), True, [])
    transfer.abort()
    assert group.aborted
    with pytest.raises(PCCLError):
        transfer.poll()
    # It has ended: nothing is left to abort.
    group.aborted = False
    transfer.abort()
    assert not group.aborted


def test_retries_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_repeated, "RETRIES_MAX", 3)
    group, retries = Group(), []
    for outcome in [Result.RANK_CONNECTION_LOST] * 4:  # the fourth is awaited, because it was launched
        group.outcomes.put(outcome)
    with pytest.raises(PCCLError, match="3 times in a row"):
        start(group, Steps(), False, retries).finish()
    assert len(retries) == 3 and len(group.launched) == 4 and group.outcomes.empty()
