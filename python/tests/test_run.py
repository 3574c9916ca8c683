"""pccl.Run: one loop for newcomers and members, with peers that come, go, and are thrown out."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from conftest import PATIENCE_S, run_threads, wait_until

import pccl
from pccl import _run

numpy = pytest.importorskip("numpy")


class Peer:
    """Numbers that are exact in any order, so that all members and every reduction can be checked by equality."""

    def __init__(self, master: str, steps: int | None, min_peers: int = 1, revision: int = 0) -> None:
        self.weights = numpy.zeros(1000)
        self.state = pccl.SharedState([pccl.TensorInfo.from_numpy(self.weights, "weights")])
        self.state.revision = revision
        self.communicator = pccl.Communicator(master, peer_timeout_ms=20_000)
        self.run = pccl.Run(self.communicator, self.state, steps=steps, min_peers=min_peers)
        self.begun: list[int] = []  # revisions
        self.received: list[bool] = []
        self.sizes: list[int] = []

    def __enter__(self) -> Peer:
        self.run.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.run.__exit__(*error)
        self.communicator.close()

    def begin(self) -> bool:
        goes_on = self.run.step()
        self.received.append(self.run.received)
        if goes_on:
            self.begun.append(self.state.revision)
        return goes_on

    def train(self) -> None:
        one = numpy.ones(1000)
        self.sizes.append(self.run.all_reduce(one, op=pccl.ReduceOp.SUM))
        assert (one == self.sizes[-1]).all()
        self.weights += self.sizes[-1]


def test_steps_are_counted_and_members_begin_together(master: str) -> None:
    def body(_: int) -> Peer:
        with Peer(master, steps=5, min_peers=3) as peer:
            while peer.begin():
                peer.train()
            assert not peer.run.step()  # it stays at its end
        return peer

    for peer in run_threads(3, body):
        assert peer.begun == [0, 1, 2, 3, 4] and peer.sizes == [3] * 5
        assert (peer.weights == 15).all() and peer.state.revision == 5
        assert peer.received == [False] * 6


def test_waiting_for_peers_is_told_once(master: str, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(_run, "WARN_AFTER_S", 0.0)

    def body(index: int) -> None:
        with Peer(master, steps=1, min_peers=2) as peer:
            if index == 1:
                wait_until(lambda: "1 of the 2 peers" in caplog.text, "the other one says that it waits")
            while peer.begin():
                peer.train()

    with caplog.at_level("WARNING", "pccl"):
        run_threads(2, body)
    assert caplog.text.count("of the 2 peers that it needs") == 1


def test_a_newcomer_needs_no_other_program(master: str) -> None:
    come = threading.Event()

    def body(index: int) -> Peer:
        if index == 2:
            assert come.wait(PATIENCE_S)
        with Peer(master, steps=None, min_peers=2) as peer:
            while peer.begin():
                peer.train()
                if peer.state.revision == 3:
                    come.set()
                if peer.sizes[-1] == 3:
                    seen.setdefault(peer.state.revision, []).append(float(peer.weights[0]))
                if peer.sizes[-3:] == [3, 3, 3]:
                    break
        return peer

    seen: dict[int, list[float]] = {}
    veteran, _, newcomer = run_threads(3, body)
    assert newcomer.begun[0] >= 3 and newcomer.begun == veteran.begun[-3:]
    assert newcomer.received == [True, False, False]
    assert all(len(set(weights)) == 1 for weights in seen.values())


def test_a_peer_that_was_thrown_out_comes_back(master: str) -> None:
    def body(index: int) -> Peer:
        with Peer(master, steps=12, min_peers=2) as peer:
            while peer.begin():
                if index == 1 and peer.state.revision == 4 and len(peer.begun) == 5:
                    peer.communicator.abort()
                    array = numpy.full(10, 7.0)
                    assert peer.run.world_size == 1
                    assert peer.run.all_reduce(array) == 1 and (array == 7).all()
                    peer.weights += 1000.0
                    continue
                peer.train()
        return peer

    stayed, back = run_threads(2, body)
    assert (stayed.weights == back.weights).all() and stayed.state.revision == back.state.revision == 12
    # The run goes on with two members only, so the step that was cut short for one counts for the other alone.
    assert stayed.sizes.count(1) == 1 and stayed.sizes.count(2) == 11
    assert back.received.count(True) == 1 and back.begun == stayed.begun


def test_a_failing_program_does_not_hold_up_the_others(master: str) -> None:
    def stay() -> list[int]:
        with Peer(master, steps=None) as peer:
            while peer.begin() and not (2 in peer.sizes and peer.sizes[-1] == 1):
                peer.train()
        return peer.sizes

    def fail() -> list[int]:
        peer = Peer(master, steps=None)
        with pytest.raises(OSError, match="no more data"), peer:
            while peer.begin():
                if 2 in peer.sizes:
                    raise OSError("no more data")
                peer.train()
        return peer.sizes

    stayed, failed = run_threads(2, lambda index: fail() if index else stay())
    assert stayed.count(2) == failed.count(2) == 1


def test_numbers_that_cannot_work(master: str) -> None:
    for options in ({"steps": 1, "min_peers": 0}, {"steps": -1}):
        with pytest.raises(ValueError, match="min_peers is"):
            Peer(master, **options)


def test_stop_leaves_alone(master: str) -> None:
    def body(index: int) -> Peer:
        with Peer(master, steps=6, min_peers=1) as peer:
            while peer.begin():
                peer.train()
                if index == 1 and peer.sizes[-1] == 2:
                    peer.run.stop()
        return peer

    stayed, left = run_threads(2, body)
    assert stayed.state.revision == 6
    assert left.sizes.count(2) <= 1


def test_checkpoint_of_a_former_run(master: str) -> None:
    with Peer(master, steps=12, revision=10) as peer:
        while peer.begin():
            peer.train()
    assert peer.begun == [10, 11]
    # Nobody is there, and the next run begins where its only peer is.
    with Peer(master, steps=12, revision=12) as peer:
        assert not peer.begin() and peer.state.revision == 12


def test_many_arrays_and_arrays_that_cannot_be_reduced(master: str) -> None:
    def body(index: int) -> None:
        with Peer(master, steps=3, min_peers=2) as peer:
            while peer.begin():
                arrays = [numpy.full(100 + k, float(index + k)) for k in range(20)]
                assert peer.run.all_reduce(*arrays) == 2
                assert all((array == k + 0.5).all() for k, array in enumerate(arrays))
                assert peer.run.all_reduce() == 2
                with pytest.raises(pccl.PCCLArgumentError):
                    peer.run.all_reduce(numpy.ones(3), numpy.ones((4, 4))[:, 1])
                disagreeing = numpy.ones(10 + index)
                with pytest.raises(pccl.PCCLArgumentError):
                    peer.run.all_reduce(disagreeing, numpy.ones(3))

    run_threads(2, body)


def test_other_arrays_than_those_of_the_run(master: str) -> None:
    begun, end = threading.Event(), threading.Event()

    def body(index: int) -> None:
        if index == 0:
            with Peer(master, steps=None) as peer:
                while peer.begin() and not end.is_set():
                    begun.set()
            return
        assert begun.wait(PATIENCE_S)
        with pccl.Communicator(master) as communicator:
            state = pccl.SharedState([pccl.TensorInfo.from_numpy(numpy.zeros(3), "biases")])
            try:
                with pccl.Run(communicator, state) as run, pytest.raises(pccl.PCCLError, match="'biases'"):
                    run.step()
            finally:
                end.set()

    run_threads(2, body)


def test_a_master_that_does_not_answer(port: int) -> None:
    communicator = pccl.Communicator(f"127.0.0.1:{port}")
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(numpy.zeros(3), "weights")])
    with pytest.raises(pccl.PCCLMasterConnectionError), pccl.Run(communicator, state, rejoin_timeout_s=0.1) as run:
        run.step()


def test_world_sizes_of_a_communicator(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        assert communicator.world_size == communicator.global_world_size == 1
        communicator.connect()
        other = pccl.Communicator(master, peer_group=1)
        joining = threading.Thread(target=other.connect)
        joining.start()
        while communicator.global_world_size == 1:
            communicator.update_topology()
        joining.join(PATIENCE_S)
        assert (communicator.world_size, other.global_world_size, other.world_size) == (1, 2, 1)
        other.close()
        assert other.world_size == 1
        wait_until(lambda: left_alone(communicator), "the other one is gone")


def left_alone(communicator: pccl.Communicator) -> bool:
    communicator.are_peers_pending()
    return communicator.global_world_size == 1


def test_a_failed_synchronization_has_its_own_error(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        communicator.abort()
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(numpy.zeros(3), "weights")])
        with pytest.raises(pccl.PCCLSyncError) as failure:
            communicator.sync_shared_state(state)
        assert isinstance(failure.value, pccl.PCCLUsageError) and failure.value.cause


def test_the_end_of_the_block_leaves_the_run(master: str) -> None:
    alone = threading.Event()

    def stay() -> None:
        with Peer(master, steps=None) as peer:
            while peer.begin() and not (2 in peer.sizes and peer.sizes[-1] == 1):
                peer.train()
        alone.set()

    def leave() -> None:
        peer = Peer(master, steps=None)
        with peer.communicator as communicator:
            with peer.run:
                while peer.begin() and 2 not in peer.sizes:
                    peer.train()
            assert alone.wait(PATIENCE_S)
            communicator.connect()
            assert communicator.world_size == 1

    run_threads(2, lambda index: leave() if index else stay())


def test_the_only_member_is_lost_before_a_newcomer_has_its_state(master: str) -> None:
    """The newcomer begins anew with what it has: nobody holds the state that the run expects."""
    other = numpy.full(1000, 5.0)
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(other, "weights")])
    with pccl.Communicator(master) as holder:
        holder.connect()
        for _ in range(3):
            holder.sync_shared_state(state)
            state.push_revision()

        def body(index: int) -> Any:
            if index == 0:
                while holder.world_size < 2:
                    holder.update_topology()
                holder.abort()
                return None
            with Peer(master, steps=4) as peer:
                while peer.begin():
                    peer.train()
            return peer

        _, newcomer = run_threads(2, body)
    assert newcomer.begun == [0, 1, 2, 3] and newcomer.sizes == [1] * 4
    assert (newcomer.weights == 4).all()
