"""DiLoCo with harmful numbers: one peer's NaN stays with that peer, and that peer recovers."""

from __future__ import annotations

import logging
import math
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pccl  # noqa: E402
from conftest import PATIENCE_S, run_threads  # noqa: E402
from diloco_trainee import MODES, Trainee, kept, vector  # noqa: E402
from pccl.diloco import DiLoCo, Event  # noqa: E402
from pccl.diloco._cores import SHARE_MIN  # noqa: E402
from pccl.diloco._norm import norm  # noqa: E402

each_mode = pytest.mark.parametrize("mode", MODES)
HURT_IN_ROUND = 2


def train_three(
    master: str, spoil: Any, rounds: int, *, of_last: dict[str, Any] | None = None, **options: Any
) -> list[tuple[Trainee, DiLoCo, list[Event]]]:
    """Three peers. spoil(trainee) is called for the last one before the last inner step of a round."""
    end = threading.Barrier(3)

    def body(index: int) -> tuple[Trainee, DiLoCo, list[Event]]:
        events: list[Event] = []
        trainee = Trainee(index)
        trainee.optimizer = torch.optim.Adam(trainee.model.parameters(), lr=0.01)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                min_peers=3,
                on_event=lambda event: events.append(kept(event)),
                **(options | (of_last or {}) if index == 2 else options),
            )
            with diloco:
                trainee.train(diloco, HURT_IN_ROUND * options["H"] - 1)
                if index == 2:
                    spoil(trainee)
                trainee.train(diloco, rounds * options["H"])
                end.wait(PATIENCE_S)
        return trainee, diloco, events

    return run_threads(3, body)


def spoil_one_element(value: float) -> Any:
    def spoil(trainee: Trainee) -> None:
        with torch.no_grad():
            trainee.model[0].weight[3, 2] = value

    return spoil


@pytest.mark.parametrize("value", [math.nan, math.inf])
@each_mode
def test_one_element_of_one_peer_poisons_nobody(master: str, mode: str, value: float, caplog: Any) -> None:
    options = MODES[mode]
    fragments = options.get("fragments", 1)
    with caplog.at_level(logging.WARNING, "pccl"):
        results = train_three(master, spoil_one_element(value), 7, **options)
    for trainee, diloco, events in results:
        for tensor in (diloco.outer, diloco.momentum, vector(trainee.model)):
            assert torch.isfinite(tensor).all()
        assert all(torch.isfinite(event.tensor).all() for event in events if event.tensor is not None)
        assert torch.equal(diloco.outer, results[0][1].outer)
        assert not any(event.kind == "skipped" for event in events)
    rejected = [event for event in results[2][2] if event.kind == "rejected"]
    assert 1 <= len(rejected) <= fragments and "not finite" in rejected[0].detail
    assert not any(event.kind == "rejected" for _, _, events in results[:2] for event in events)
    assert "contributes nothing to this average" in caplog.text
    # The peer has recovered, its moments included: what it learned later counts again.
    launches = [event for event in results[2][2] if event.kind == "launch"]
    silent = [event for event in launches if not event.tensor.any()]
    assert len(silent) == len(rejected) and launches[-1] is not silent[-1]
    missing = sum(event.fragment == fragments - 1 for event in silent)
    assert results[0][1].batches == (3 * 7 - missing) * options["H"]


def test_the_average_is_that_of_the_others(master: str) -> None:
    results = train_three(master, spoil_one_element(math.nan), 3, H=4)
    launched = [[event.tensor for event in events if event.kind == "launch"] for _, _, events in results]
    applied = [event.tensor for event in results[0][2] if event.kind == "outer_step"]
    assert torch.allclose(applied[0], (launched[0][0] + launched[1][0] + launched[2][0]) / 3, atol=1e-7)
    assert torch.equal(applied[1], (launched[0][1] + launched[1][1]) / 2)


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_sum_that_is_not_finite_is_skipped_by_all(master: str, quantize: str | None, caplog: Any) -> None:
    """Each addend is finite. With int8 the sum of the codes is finite, too, but the sum that it stands for is not."""

    def body(index: int) -> tuple[list[str], Any]:
        kinds: list[str] = []
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                H=2,
                min_peers=2,
                quantize=quantize,
                on_event=lambda event: kinds.append(event.kind),
            )
            with diloco:
                trainee.train(diloco, 1)
                with torch.no_grad():
                    trainee.model[0].weight[0, 0] = -3e38
                diloco.advance()
                trainee.train(diloco, 6)
                end.wait(PATIENCE_S)
            return [kind for kind in kinds if kind in ("skipped", "outer_step")], vector(trainee.model)

    end = threading.Barrier(2)
    with caplog.at_level(logging.WARNING, "pccl"):
        (kinds, ours), (theirs_kinds, theirs) = run_threads(2, body)
    assert kinds == theirs_kinds == ["skipped", "outer_step", "outer_step"]
    assert torch.isfinite(ours).all() and torch.equal(ours, theirs)
    assert "the sum of the pseudo-gradients" in caplog.text and "max_norm" in caplog.text


def test_a_bound_on_the_norm(master: str) -> None:
    def push(trainee: Trainee) -> None:
        with torch.no_grad():
            trainee.model[2].weight += 100.0

    results = train_three(master, push, 4, H=4, of_last={"max_norm": 50.0})
    rejected = [event for event in results[2][2] if event.kind == "rejected"]
    assert len(rejected) == 1 and "max_norm is 50" in rejected[0].detail
    assert float((results[0][1].outer - vector(Trainee(0).model)).abs().max()) < 10
    assert results[0][1].batches == 4 * (3 * 4 - 1)


def test_a_model_that_is_not_finite_does_not_begin_a_run(master: str) -> None:
    trainee = Trainee(0)
    spoil_one_element(math.nan)(trainee)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm)
        with pytest.raises(pccl.PCCLArgumentError, match="not finite.*initialize it"):
            diloco.join()
        assert diloco.world == 1
        for bad in (0.0, -1.0, math.nan):
            with pytest.raises(ValueError, match="max_norm"):
                DiLoCo(trainee.model, trainee.optimizer, comm, max_norm=bad)


def test_the_norm_of_long_vectors() -> None:
    vector_ = torch.randn(2 * SHARE_MIN + 3, generator=torch.Generator().manual_seed(1))
    assert norm(vector_) == pytest.approx(float(vector_.double().norm()))
    for value in (math.nan, math.inf, -math.inf):
        for place in (0, SHARE_MIN, vector_.numel() - 1):
            spoiled = vector_.clone()
            spoiled[place] = value
            assert not math.isfinite(norm(spoiled))
    assert math.isfinite(norm(torch.full((5,), 3e38)))
