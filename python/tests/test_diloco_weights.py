"""DiLoCo with averages that weigh peers by their samples, and with a schedule of the outer learning rate."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pccl  # noqa: E402
from diloco_trainee import MODES, Trainee, train_together, vector  # noqa: E402
from pccl.diloco import DiLoCo, Event  # noqa: E402
from pccl.diloco._encoding import BASE, CODE_BASE, CODE_DIGITS, DIGITS, WEIGHT_LIMIT  # noqa: E402
from pccl.diloco._encoding import put_weight, weight_of  # noqa: E402
from pccl.diloco._outer import OuterSGD  # noqa: E402


def samples_of(index: int, inner_step: int) -> int:
    """Very different ones, and none at all of one peer for a while."""
    return 0 if index == 1 and 4 < inner_step <= 12 else (index + 1) ** 3 * 10 + inner_step


def train_weighted(address: str, count: int, last_step: int, **options: Any) -> Any:
    return train_together(address, count, last_step, samples_of=samples_of, weighted=True, **options)


@pytest.mark.parametrize("mode", ["sync", "sync_fragments", "one_step_behind", "streaming", "sync_int8", "sync_ring"])
def test_an_average_weighs_each_peer_by_its_samples(master: str, mode: str) -> None:
    options = MODES[mode]
    fragments, last_step = options.get("fragments", 1), 4 * options["H"]
    results = train_weighted(master, 3, last_step, **options)
    applied = [event for event in results[0][2] if event.kind == "outer_step"]
    launched = [[event for event in events if event.kind == "launch"] for _, _, events in results]
    assert len(applied) >= 3 * fragments
    batches = 0
    for turn, average in enumerate(applied):
        weights, expected = 0, torch.zeros_like(average.tensor)
        for index, launches in enumerate(launched):
            launch = launches[turn]
            assert launch.fragment == average.fragment
            since = launches[turn - fragments].inner_step if turn >= fragments else 0
            weight = sum(samples_of(index, step) for step in range(since + 1, launch.inner_step + 1))
            weights += weight
            expected += weight * launch.tensor
        expected /= weights
        # What the encodings round: with int8 half a code of 42 levels for each of three peers, and what is kept of it.
        largest = max(float(one[turn].tensor.abs().max()) for one in launched)
        tolerance = 1e-6 if options.get("quantize") is None else 3 * largest / 42
        assert torch.allclose(average.tensor, expected, atol=tolerance)
        if average.fragment == fragments - 1:
            batches += weights
    for _, diloco, _ in results:
        assert torch.equal(diloco.outer, results[0][1].outer)
        assert diloco.batches == batches


@pytest.mark.parametrize("mode", ["one_step_behind", "one_step_behind_int8"])
def test_weights_in_a_checkpoint(mode: str) -> None:
    """With one step behind, a pseudo-gradient and its weight are in flight at the end of a round."""
    options, whole, half = MODES[mode], 24, 12
    results = []
    for parts in ([whole], [half, whole]):
        checkpoints: list[Any] = []
        for last_step in parts:
            with pccl.MasterNode("127.0.0.1:0") as node:
                node.run()
                trained = train_weighted(
                    f"127.0.0.1:{node.port}", 2, last_step, checkpoints=checkpoints, **options
                )
        results.append(trained)
    for (one, one_diloco, _), (other, other_diloco, _) in zip(*results, strict=True):
        assert torch.equal(vector(one.model), vector(other.model))
        assert one_diloco.batches == other_diloco.batches > 0


@pytest.mark.parametrize("mode", ["sync", "whole"])
def test_training_that_a_lost_transfer_leaves_in_the_model_keeps_its_weight(master: str, mode: str) -> None:
    """This peer is thrown out and comes back with its own parameters. The next average has all that it learned."""
    options, kinds = MODES[mode], []
    trainee = Trainee(0)
    given, launched = 0, 0  # samples, and how many of them there were at the last launch

    def note(event: Event) -> None:
        nonlocal launched
        kinds.append(event.kind)
        if event.kind == "launch":
            launched = given

    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm, weighted=True, on_event=note, **options)
        with diloco:
            comm.abort()
            while diloco.inner_step < 4 * options["H"]:
                given += 3
                diloco.advance(samples=3)
        assert kinds.count("lost") == 1 and kinds.count("outer_step") >= 2
        assert diloco.batches == launched


def test_a_checkpoint_from_within_a_round_keeps_the_samples_since_its_begin() -> None:
    checkpoints: list[Any] = []
    for last_step in (6, 8):
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            [(_, diloco, _)] = train_weighted(f"127.0.0.1:{node.port}", 1, last_step, checkpoints=checkpoints, H=4)
    # The second round begins again, with what its first two steps have changed.
    assert diloco.batches == sum(samples_of(0, step) for step in (1, 2, 3, 4, 5, 6, 5, 6, 7, 8))


def test_a_checkpoint_from_within_a_round_keeps_the_samples_of_what_is_in_flight() -> None:
    checkpoints: list[Any] = []
    for last_step in (7, 8):
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            [(_, diloco, _)] = train_weighted(
                f"127.0.0.1:{node.port}", 1, last_step, checkpoints=checkpoints, H=4, overlap=True, delay=2
            )
    # What step 6 had launched is dropped, and the model still has it when step 6 comes once more.
    assert diloco.batches == sum(samples_of(0, step) for step in (1, 2, 3, 4, 5, 6, 7, 5, 6))


@pytest.mark.parametrize(("digits", "base", "members"), [(DIGITS, BASE, 4096), (CODE_DIGITS, CODE_BASE, 16)])
def test_sums_of_weights_are_exact(digits: int, base: int, members: int) -> None:
    dtype = torch.float32 if base == BASE else torch.int8
    for weight in (0, 1, base - 1, base, 10**9 + 7, WEIGHT_LIMIT - 1):
        own = torch.empty(digits, dtype=dtype)
        put_weight(weight, own, base)
        total = torch.zeros(digits, dtype=dtype)
        for _ in range(members):
            total += own
        assert weight_of(total, base) == members * weight


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_counts_nothing(value: float) -> None:
    digits = torch.zeros(DIGITS)
    put_weight(12345, digits, BASE)
    digits[1] += value
    assert weight_of(digits, BASE) == 0


def test_samples_go_with_weighted_alone(master: str) -> None:
    trainee = Trainee(0)
    with pccl.Communicator(master) as comm:
        with DiLoCo(trainee.model, trainee.optimizer, comm, H=4, weighted=True) as diloco:
            with pytest.raises(ValueError, match="needs the samples"):
                diloco.step()
            for bad in (-1, WEIGHT_LIMIT):
                with pytest.raises(ValueError, match="samples is"):
                    diloco.advance(samples=bad)
            assert diloco.inner_step == 0
            diloco.advance(samples=0)
    with pccl.Communicator(master) as comm:
        with DiLoCo(trainee.model, trainee.optimizer, comm, H=4) as diloco:
            with pytest.raises(ValueError, match="weighted=True"):
                diloco.step(samples=3)


def test_the_outer_learning_rate_follows_its_schedule(master: str) -> None:
    rates = [0.5, 0.25, 0.125]
    outer = {"lr": lambda rounds: rates[rounds], "momentum": 0.0}
    results = train_together(master, 2, 12, H=4, fragments=2, outer=outer)
    start = vector(Trainee(0).model).detach()
    for _, diloco, events in results:
        steps = [event for event in events if event.kind == "outer_step"]
        expected = start.clone()
        for turn, step in enumerate(steps):
            half = slice(0, start.numel() // 2) if step.fragment == 0 else slice(start.numel() // 2, None)
            expected[half] -= rates[turn // 2] * step.tensor
        assert torch.allclose(diloco.outer, expected, atol=1e-6)


@pytest.mark.parametrize("lr", [0.0, float("nan"), lambda rounds: -1.0, lambda rounds: float("inf")])
def test_learning_rates_that_cannot_work(lr: Any) -> None:
    with pytest.raises(ValueError, match="outer: lr"):
        OuterSGD({"lr": lr})
