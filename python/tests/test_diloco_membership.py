"""DiLoCo and its run, with peers as threads of this process: joining again, refusals, and masters that are not there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl  # noqa: E402
from conftest import PATIENCE_S, Script, run_threads  # noqa: E402
from diloco_trainee import Trainee  # noqa: E402
from pccl.diloco import DiLoCo, Event  # noqa: E402


def test_out_of_the_run_at_the_end_of_a_round_it_joins_again(master: str) -> None:
    events: list[Event] = []
    trainee = Trainee(0)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2, overlap=True, on_event=lambda e: events.append(e))
        diloco.join()
        trainee.train(diloco, 1)
        comm.abort()
        trainee.train(diloco, 4)  # nothing is in flight yet, so the vote is the first to notice
    assert [e.kind for e in events if e.kind in ("joined", "lost")] == ["joined", "lost", "joined"]


def test_an_interrupted_peer_leaves_and_may_join_again(master: str, script: Callable[..., Script], tree: Path) -> None:
    trainee = Trainee(0)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=1, min_peers=2)
        program = script(
            """
import signal, sys
sys.path.insert(0, sys.argv[2])
import pccl
from diloco_trainee import Trainee
from pccl.diloco import DiLoCo

trainee = Trainee(1)
comm = pccl.Communicator(sys.argv[1])
diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=1, min_peers=2)
diloco.join()
def stop(*_):
    if comm.stats()["all_reduce"]["launched"] != 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
try:
    trainee.train(diloco, 1)
except KeyboardInterrupt:
    print("interrupted", comm.state)
diloco.join()
print("joined", diloco.inner_step)
""",
            master,
            str(tree / "python/tests"),
        )
        diloco.join()
        # This peer takes no part in the average meanwhile.
        assert program.line() == "interrupted lost"
        while diloco.world == 2 or not comm.are_peers_pending():
            comm.are_peers_pending()
        trainee.train(diloco, 1)
        assert program.line() == "joined 1"
        assert program.end()[0] == 0


def test_a_peer_of_another_configuration_is_told(master: str) -> None:
    refused = threading.Event()

    def body(index: int) -> str:
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            if index == 0:
                diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2)
                diloco.join()
                started.set()
                while not refused.is_set():
                    trainee.train(diloco, diloco.inner_step + 2)
                return ""
            started.wait(PATIENCE_S)
            other = DiLoCo(trainee.model, trainee.optimizer, comm, H=3)
            try:
                with pytest.raises(pccl.PCCLError) as failure:
                    other.join()
            finally:
                refused.set()
            return str(failure.value)

    started = threading.Event()
    message = run_threads(2, body)[1]
    assert "diloco.counters(H=" in message, message


def test_a_new_master_after_the_run_was_ended(port: int) -> None:
    """After the master has ended the run, training goes on at the next master on the same address, with what was
    learned."""
    address = f"127.0.0.1:{port}"
    with pccl.MasterNode(address) as node:
        node.run()
        half_way = threading.Barrier(3)

        def body(index: int) -> list[str]:
            if index == 2:
                half_way.wait(PATIENCE_S)
                node.close()
                after.append(pccl.MasterNode(address))
                after[0].run()
                return []
            kinds: list[str] = []
            steps: list[int] = []
            trainee = Trainee(index)
            with pccl.Communicator(address) as comm:
                diloco = DiLoCo(
                    trainee.model,
                    trainee.optimizer,
                    comm,
                    H=2,
                    min_peers=2,
                    on_event=lambda e: (kinds.append(e.kind), steps.append(e.outer_step))[0],
                )
                diloco.join()
                trainee.train(diloco, 10)
                half_way.wait(PATIENCE_S)
                # Both are in the new run before either ends.
                while "lost" not in kinds or diloco.world < 2:
                    trainee.train(diloco, diloco.inner_step + 1)
                together.wait(PATIENCE_S)
            assert min(steps[kinds.index("lost") :]) >= 5
            return kinds

        after: list[pccl.MasterNode] = []
        together = threading.Barrier(2)
        try:
            for kinds in run_threads(3, body)[:2]:
                assert kinds.count("joined") == 2 and kinds.count("lost") == 1
        finally:
            for one in after:
                one.close()


def test_a_master_that_does_not_answer(port: int) -> None:
    trainee = Trainee(0)
    with pccl.Communicator(f"127.0.0.1:{port}") as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm, rejoin_timeout_s=0.1)
        with pytest.raises(pccl.PCCLError, match="Failed to connect to the master node"):
            diloco.join()
        assert diloco.world == 1


def test_calls_in_the_wrong_order_and_options_that_cannot_work(master: str) -> None:
    trainee = Trainee(0)

    def made(**options: Any) -> DiLoCo:
        return DiLoCo(trainee.model, trainee.optimizer, comm, **options)

    with pccl.Communicator(master) as comm:
        with pytest.raises(RuntimeError, match="join"):
            made().advance()
        for options, word in (
            ({"quantize": "int3"}, "quantize"),
            ({"delay": 1}, "overlap"),
            ({"H": 0}, "H is 0"),
            ({"mix": 1.0}, "mix"),
            ({"min_peers": 0}, "min_peers"),
            ({"H": 10_000, "fragments": 5_000}, "fragments"),
            ({"outer": {"rate": 1}}, "rate"),
            ({"eager": True}, "eager goes with overlap=True"),
            ({"eager": True, "overlap": True, "fragments": 2}, "eager goes with overlap=True, one fragment"),
            ({"eager": True, "overlap": True, "mix": 0.5}, "no mix"),
            ({"fragments": []}, "fragments is 0"),
            ({"fragments": [["0"], ["5"]]}, "'5' is no module of the model"),
            ({"fragments": [["0"], ["0.weight", "2"]]}, "parameter 0.weight is in two of them"),
            ({"fragments": [["0"], []]}, "the one at 1 is empty"),
            ({"fragments": [["0"], [torch.nn.Linear(2, 2)]]}, "a Linear is no module of the model"),
        ):
            with pytest.raises(ValueError, match=word):
                made(**options)
        saved = made(H=4).state_dict()
        with pytest.raises(ValueError, match="H=4"):
            made(H=5).load_state_dict(saved)


def test_a_member_that_differs_is_repaired(master: str) -> None:
    def body(index: int) -> tuple[list[str], Any]:
        kinds: list[str] = []
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                H=2,
                min_peers=3,
                on_event=lambda event: kinds.append(event.kind),
            )
            diloco.join()
            trainee.train(diloco, 3)
            if index == 2:
                diloco.outer[7] += 1.0
            trainee.train(diloco, 6)
            # Closing at once could leave the others alone in their last round.
            end.wait(PATIENCE_S)
            return kinds, diloco.outer.clone()

    end = threading.Barrier(3)
    results = run_threads(3, body)
    assert [kinds.count("repaired") for kinds, _ in results] == [0, 0, 1]
    assert torch.equal(results[0][1], results[1][1]) and torch.equal(results[0][1], results[2][1])


def test_the_first_peer_says_how_many_begin_together(master: str) -> None:
    first = pccl.Communicator(master)

    def body(index: int) -> int:
        trainee = Trainee(index)
        if index == 0:
            comm = first
        else:
            while not first.stats()["membership"]["connects"]:
                time.sleep(0.002)  # only spares the processor
            comm = pccl.Communicator(master)
        with comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2, min_peers=(2, 1000)[index])
            diloco.join()
            assert diloco.inner_step == 0 and diloco.world == 2
            trainee.train(diloco, 4)
            end.wait(PATIENCE_S)
        return diloco.batches

    end = threading.Barrier(2)
    assert run_threads(2, body) == [8, 8]


def _checkpoint(options: dict[str, Any], last_step: int) -> dict[str, Any]:
    """Of a run of its own."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(f"127.0.0.1:{node.port}") as comm:
            trainee = Trainee(0)
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, **options)
            diloco.join()
            trainee.train(diloco, last_step)
            return diloco.state_dict()


def test_a_fresh_peer_that_waits_alone_does_not_replace_a_checkpoint(master: str) -> None:
    saved = _checkpoint({"H": 2}, 20)
    waits, end = threading.Event(), threading.Barrier(2)

    def body(index: int) -> tuple[int, int, Any]:
        trainee = Trainee(index, model_seed=index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2, min_peers=2)
            if index == 0:
                update_topology, votes = diloco._membership.update_topology, []

                def counted() -> None:
                    update_topology()
                    votes.append(1)
                    if len(votes) == 3:
                        waits.set()

                diloco._membership.update_topology = counted  # type: ignore[method-assign]
            else:
                assert waits.wait(PATIENCE_S)
                diloco.load_state_dict(saved)
            diloco.join()
            end.wait(PATIENCE_S)
            return diloco.inner_step, diloco.outer_step, diloco.outer.clone()

    for inner_step, outer_step, outer in run_threads(2, body):
        assert (inner_step, outer_step) == (20, saved["outer_step"]) and torch.equal(outer, saved["outer"])


@pytest.mark.parametrize("revision", ["of the checkpoint", "of a newcomer"])
def test_a_peer_that_is_far_ahead_of_the_run_keeps_its_state(master: str, revision: str) -> None:
    """Fresh peers have begun the run anew. The peer that has trained is not overwritten; it raises."""
    saved = _checkpoint({"H": 2}, 20)
    if revision == "of a newcomer":
        saved["revision"] = 0
    begun, ended = threading.Event(), threading.Event()

    def fresh() -> int:
        trainee = Trainee(0, model_seed=1)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2)
            diloco.join()
            begun.set()
            while not ended.is_set():
                if diloco.inner_step < 4:
                    trainee.train(diloco, 4)
                else:  # admits the other one without an outer step
                    diloco._end_round()
            return diloco.outer_step

    def veteran() -> int:
        assert begun.wait(PATIENCE_S)
        trainee = Trainee(1)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2)
            diloco.load_state_dict(saved)
            try:
                with pytest.raises(pccl.PCCLError, match=r"the run is at outer step . \(inner step .\), and this peer"):
                    diloco.join()
            finally:
                ended.set()
            kept = diloco.state_dict()
            for name in ("outer", "momentum", "local"):
                assert torch.equal(kept[name], saved[name]), name
            assert [kept[name] for name in ("inner_step", "revision")] == [20, saved["revision"]]
            return diloco.outer_step

    assert run_threads(2, lambda index: (fresh, veteran)[index]()) == [2, saved["outer_step"]]


def test_peers_with_checkpoints_of_one_run_go_on_together(master: str) -> None:
    """The first peer has the older one, and has begun. So the newer one is replaced, though it is ahead."""
    checkpoints = [_checkpoint({"H": 2}, 6)]
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(f"127.0.0.1:{node.port}") as comm:
            trainee = Trainee(0)
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2)
            diloco.load_state_dict(checkpoints[0])
            diloco.join()
            trainee.train(diloco, 20)
            checkpoints.append(diloco.state_dict())
    begun, joined = threading.Event(), threading.Event()

    def body(index: int) -> int:
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2)
            diloco.load_state_dict(checkpoints[index])
            if index == 1:
                assert begun.wait(PATIENCE_S)
            diloco.join()
            begun.set()
            if index == 1:
                joined.set()
            while not joined.is_set():
                diloco._end_round()
            return diloco.inner_step

    assert run_threads(2, body) == [6, 6]
