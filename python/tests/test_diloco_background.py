"""Pseudo-gradients and outer steps that the thread of a transfer computes while the training goes on."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl  # noqa: E402
from conftest import PATIENCE_S, run_threads  # noqa: E402
from diloco_trainee import MODES, Trainee, train_together, vector  # noqa: E402
from pccl.diloco import DiLoCo, Event  # noqa: E402

BACKGROUND = ["whole", "streaming", "streaming_full", "streaming_int8", "streaming_top_k"]


def train_without_events(master: str, mode: str, last_step: int) -> list[tuple[Any, Any]]:
    def body(index: int) -> tuple[Any, Any]:
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, min_peers=2, **MODES[mode])
            with diloco:
                trainee.train(diloco, last_step)
        return diloco.outer, diloco.momentum

    return run_threads(2, body)


@pytest.mark.parametrize("mode", BACKGROUND)
def test_the_bytes_do_not_depend_on_whether_anybody_looks(mode: str) -> None:
    """For an event, step() waits for the pseudo-gradient; without one it does not."""
    results = []
    for train in (
        lambda address: train_without_events(address, mode, 5 * MODES[mode]["H"]),
        lambda address: [
            (diloco.outer, diloco.momentum)
            for _, diloco, _ in train_together(address, 2, 5 * MODES[mode]["H"], **MODES[mode])
        ],
    ):
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            results += train(f"127.0.0.1:{node.port}")
    for outer, momentum in results:
        assert torch.equal(outer, results[0][0]) and torch.equal(momentum, results[0][1])


@pytest.mark.parametrize("mode", ["whole", "streaming", "streaming_int8", "streaming_top_k"])
def test_a_rejection_without_events(master: str, mode: str, caplog: Any) -> None:
    """The peer may notice it some inner steps later. Nobody else notices it."""
    options = MODES[mode]
    end = threading.Barrier(2)

    def body(index: int) -> tuple[Any, Any, int, int]:
        trainee = Trainee(index)
        trainee.optimizer = torch.optim.Adam(trainee.model.parameters(), lr=0.01)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, min_peers=2, **options)
            with diloco:
                trainee.train(diloco, 2 * options["H"] - 1)
                if index == 1:
                    with torch.no_grad():
                        trainee.model[0].weight.fill_(math.nan)
                trainee.train(diloco, 6 * options["H"])
                end.wait(PATIENCE_S)
        return vector(trainee.model), diloco.momentum, diloco.batches, diloco.outer_step

    first, second = run_threads(2, body)
    assert torch.isfinite(first[0]).all() and torch.isfinite(first[1]).all()
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1]) and first[2:] == second[2:]
    assert first[2] >= 9 * options["H"]  # of 12: the peer counts again later
    assert first[3] == 6 * options.get("fragments", 1)  # no outer step was skipped
    assert "contributes nothing to this average" in caplog.text


@pytest.mark.parametrize(("mode", "step", "applied"), [("streaming", 13, 7), ("streaming_full", 12, 5)])
def test_a_checkpoint_between_the_end_of_a_transfer_and_its_landing(
    master: str, mode: str, step: int, applied: int
) -> None:
    """Outer parameters and the number of outer steps belong together. Within a round, the state has the outer step that
    the thread has made, and nothing in flight. At the end of a round, it has what is in flight, and not that step."""
    seen: dict[int, Any] = {}
    together = threading.Barrier(2)

    def body(index: int) -> Any:
        def note(event: Event) -> None:
            if event.kind == "outer_step" and index == 0:
                seen[event.outer_step] = diloco.outer.clone(), diloco.batches

        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, min_peers=2, on_event=note, **MODES[mode])
            with diloco:
                trainee.train(diloco, step)
                before = diloco.outer_step
                assert diloco._transfer is not None and diloco._transfer._thread is not None
                diloco._transfer._thread.join()
                state = diloco.state_dict()
                assert diloco.outer_step == before
                together.wait(PATIENCE_S)
                trainee.train(diloco, 18)
        return state

    for state in run_threads(2, body):
        outer, batches = seen[state["outer_step"]]
        assert torch.equal(state["outer"], outer) and state["batches"] == batches
        assert state["outer_step"] == applied and (state["in_flight"] is None) == (mode == "streaming")


def test_a_failure_in_the_thread_is_one_of_step(master: str) -> None:
    def lr(rounds: int) -> float:
        return 0.7 if rounds < 2 else -1.0

    failures = []

    def body(index: int) -> None:
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model, trainee.optimizer, comm, min_peers=2, outer={"lr": lr}, **MODES["streaming"]
            )
            with pytest.raises(ValueError, match="lr is -1.0 after 2 rounds"), diloco:
                trainee.train(diloco, 60)
            failures.append(index)

    run_threads(2, body)
    assert sorted(failures) == [0, 1]
