"""The parts of the DiLoCo helper, each compared with an independent computation of the same."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pccl  # noqa: E402
from pccl.diloco import _cores  # noqa: E402
from pccl.diloco._cores import CHUNK, SHARE_MIN, over_ranges  # noqa: E402
from pccl.diloco._encoding import BASE, BLOCK, Codes, Encoding, Plain, Ring, put_weight  # noqa: E402
from pccl.diloco._outer import OuterSGD  # noqa: E402
from pccl.diloco._parameters import Parameters  # noqa: E402
from pccl.diloco._schedule import Schedule  # noqa: E402

# ---- schedule


def all_schedules(period_max: int) -> Generator[Schedule, None, None]:
    for period in range(1, period_max + 1):
        for fragments in range(1, period + 1):
            for delay in range(period // fragments + 1):
                yield Schedule(period, fragments, delay)


def test_each_round_launches_and_lands_each_fragment_once_and_one_at_a_time() -> None:
    for schedule in all_schedules(12):
        in_flight: int | None = None
        landed: list[int] = []
        for step in range(1, 5 * schedule.period + 1):
            landing, launching = schedule.landing(step), schedule.launching(step)
            if schedule.delay == 0:
                assert landing == launching
            elif landing is not None and (in_flight is not None or landed):
                assert in_flight == landing
                in_flight = None
            if landing is not None and step > schedule.period:
                landed.append(landing)
            if schedule.ends_round(step):
                # Newcomers are admitted here, before the launch: nothing may be in flight.
                assert in_flight is None
            if launching is not None and schedule.delay > 0:
                assert in_flight is None
                in_flight = launching
        assert landed == list(range(schedule.fragments)) * 4, schedule


def test_fragments_cover_the_parameters_evenly() -> None:
    for schedule in all_schedules(7):
        for elements in (schedule.fragments, 100, 101, 1023):
            bounds = [schedule.bounds(fragment, elements) for fragment in range(schedule.fragments)]
            assert [begin for begin, _ in bounds] == [0] + [end for _, end in bounds[:-1]] and bounds[-1][1] == elements
            sizes = [end - begin for begin, end in bounds]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("period", "fragments", "delay", "word"),
    [(0, 1, 0, "H"), (4, 5, 0, "fragments"), (4, 2, 3, "delay"), (4, 1, -1, "delay")],
)
def test_impossible_schedules(period: int, fragments: int, delay: int, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Schedule(period, fragments, delay)


# ---- outer optimizer


def single(value: float) -> float:
    """Rounded to binary32, to nearest even."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_outer_step_is_the_rounded_arithmetic_of_its_definition(momentum: float, nesterov: bool) -> None:
    optimizer = OuterSGD({"lr": 0.7, "momentum": momentum, "nesterov": nesterov})
    size = 300
    draw = numpy.random.default_rng(1)
    start = draw.standard_normal(size).astype(numpy.float32)
    parameters = start.copy()
    moments = numpy.zeros(size, numpy.float32) if momentum else None
    # In binary64 a product of two binary32 numbers is exact, and rounding a sum a second time changes nothing. So each
    # operation rounded by single() is the binary32 operation.
    lr, mu = single(0.7), single(momentum)
    expected, expected_moments = [float(p) for p in start], [0.0] * size
    for weight in (1, 2, 3, 7, 16777217):  # the last one is no binary32 number
        gradient = draw.standard_normal(size).astype(numpy.float32)
        summed = gradient.copy()
        optimizer.step(parameters, moments, summed, weight)
        for i, g in enumerate(single(float(g) / single(weight)) for g in gradient):
            assert float(summed[i]) == g
            m = direction = g
            if momentum:
                m = single(single(mu * expected_moments[i]) + g)
                direction = single(single(mu * m) + g) if nesterov else m
            expected_moments[i] = m
            expected[i] = single(expected[i] - single(lr * direction))
    assert parameters.tolist() == expected
    if moments is not None:
        assert moments.tolist() == expected_moments


def test_outer_step_agrees_with_torch_and_does_not_depend_on_where_arrays_begin() -> None:
    size = 2 * CHUNK + 17
    draw = numpy.random.default_rng(2)
    start = draw.standard_normal(size).astype(numpy.float32)
    gradients = [draw.standard_normal(size).astype(numpy.float32) for _ in range(3)]
    reference = torch.nn.Parameter(torch.from_numpy(start.copy()))
    of_torch = torch.optim.SGD([reference], lr=0.7, momentum=0.9, nesterov=True)
    results = []
    for offset in (0, 1, 3):
        room, moments = numpy.zeros(size + 4, numpy.float32), numpy.zeros(size + 4, numpy.float32)
        parameters = room[offset : offset + size]
        parameters[:] = start
        for gradient in gradients:
            OuterSGD().step(parameters, moments[offset : offset + size], gradient, 1)
        results.append(parameters.copy())
    for gradient in gradients:
        reference.grad = torch.from_numpy(gradient)
        of_torch.step()
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()
    assert numpy.allclose(results[0], reference.detach().numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"momentum": 1.0}, {"beta": 1}, {"momentum": 0.0, "nesterov": True}])
def test_outer_options_that_cannot_work(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="outer"):
        OuterSGD(bad)


# ---- several cores


@pytest.mark.parametrize("elements", [0, 1, BLOCK, SHARE_MIN, 2 * SHARE_MIN - 1, 2 * SHARE_MIN, 5 * SHARE_MIN + 7])
def test_ranges_cover_everything_once(elements: int) -> None:
    ranges: list[tuple[int, int]] = []
    over_ranges(lambda begin, end: ranges.append((begin, end)), elements, BLOCK)
    ranges.sort()
    assert [begin for begin, _ in ranges] == [0] + [end for _, end in ranges[:-1]] and ranges[-1][1] == elements
    assert all(begin % BLOCK == 0 for begin, _ in ranges)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_range_that_fails(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cores, "_cores", lambda: 2)
    done: list[int] = []

    def work(begin: int, end: int) -> None:
        if (begin > 0) == failing:
            raise FloatingPointError("of this range")
        done.append(end - begin)

    with pytest.raises(FloatingPointError, match="of this range"):
        over_ranges(work, 4 * SHARE_MIN)
    assert done == [2 * SHARE_MIN]


# ---- encodings


def exchange_among(
    encodings: list[Encoding], begin: int, elements: int, weights: list[int], again: bool = False
) -> list[int]:
    """Simulates the library for exchanges: same reduction on all members, sums in member order, results to all."""
    factors = [1 if again else weight for weight in weights]
    exchanges = [
        one.exchange(begin, elements, weight, factor, again=again)
        for one, weight, factor in zip(encodings, weights, factors, strict=True)
    ]
    current = [next(one) for one in exchanges]
    totals: list[int] = []
    while not totals:
        sent = torch.stack([one.send for one in current])
        if current[0].op == pccl.ReduceOp.MAX:
            result = sent.max(0).values
        else:
            result = sent[0].clone()
            for one in sent[1:]:
                result += one  # wraps like the library's sum if whole numbers overflow
        for reduction in current:
            reduction.receive.copy_(result)
        following = []
        for exchange in exchanges:
            try:
                following.append(exchange.send(len(encodings)))
            except StopIteration as stop:
                totals.append(stop.value)
        current = following
    return totals


@pytest.mark.parametrize(
    "make",
    [Plain, lambda n: Ring(n, pccl.QuantizationOptions()), lambda n: Codes(n, n)],
    ids=["plain", "ring", "codes"],
)
@pytest.mark.parametrize("elements", [1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
def test_averages_weigh_newcomers_with_nothing(make: Any, elements: int) -> None:
    encodings = [make(elements) for _ in range(3)]
    for value, one in zip((1.0, 3.0, 0.0), encodings, strict=True):
        one.pseudo_gradient(elements).fill_(value)
    assert exchange_among(encodings, 0, elements, [1, 1, 0]) == [2, 2, 2]
    for one in encodings:
        assert torch.allclose(one.total(elements), torch.full((elements,), 4.0), atol=6 / 42)
        assert torch.equal(one.total(elements), encodings[0].total(elements))


@pytest.mark.parametrize(
    "make",
    [Plain, lambda n: Ring(n, pccl.QuantizationOptions()), lambda n: Codes(n, n)],
    ids=["plain", "ring", "codes"],
)
def test_an_exchange_is_repeated_without_a_member(make: Any) -> None:
    """The others send once more what they meant, and keep what this leaves out: as if it was their first attempt."""
    elements, weights = BLOCK + 5, [2, 3, 1]
    outcomes = []
    for repeated in (False, True):
        encodings = [make(elements) for _ in range(3)]
        for round_ in range(2):  # in the second round, residuals of the first are sent
            for seed, one in enumerate(encodings):
                one.pseudo_gradient(elements).copy_(torch.randn(elements, generator=torch.Generator().manual_seed(seed)))
            if round_ == 0 or repeated:
                assert exchange_among(encodings, 0, elements, weights) == [6] * 3
        if repeated:
            assert exchange_among(encodings[:2], 0, elements, weights[:2], again=True) == [5] * 2
        else:
            assert exchange_among(encodings[:2], 0, elements, weights[:2]) == [5] * 2
        outcomes.append([(one.total(elements), one.residual()) for one in encodings[:2]])
    for (total, residual), (other, left) in zip(*outcomes, strict=True):
        assert torch.equal(total, other)
        assert (residual is None) == (left is None)
        assert residual is None or (torch.equal(residual, left) and residual.abs().max() > 0)


def test_who_is_lost_between_weights_and_data_is_in_neither() -> None:
    ring = Ring(4, pccl.QuantizationOptions())
    ring.pseudo_gradient(4).fill_(1.0)
    exchange = ring.exchange(0, 4, 1)
    put_weight(3, next(exchange).receive, BASE)
    exchange.send(3)
    weights = exchange.send(2)
    assert weights.stage == 0
    put_weight(2, weights.receive, BASE)
    exchange.send(2).receive.fill_(8.0)
    with pytest.raises(StopIteration) as stop:
        exchange.send(2)
    assert stop.value.value == 2 and ring.total(4).tolist() == [8.0] * 4


def test_nobody_has_anything() -> None:
    for encodings in ([Plain(10), Plain(10)], [Codes(10, 10), Codes(10, 10)]):
        for one in encodings:
            one.pseudo_gradient(10).zero_()
        assert exchange_among(list(encodings), 0, 10, [0, 0]) == [0, 0]


@pytest.mark.parametrize("world", [1, 2, 5, 16, 17, 40])
def test_error_feedback_keeps_the_sum_over_rounds_within_one_code(world: int) -> None:
    """The same pseudo-gradients in each round, many far below one code: without feedback they would never arrive."""
    elements, rounds = BLOCK + 100, 50
    draw = torch.Generator().manual_seed(world)
    meant = torch.randn(world, elements, generator=draw) * torch.logspace(-4, 0, elements)
    encodings = [Codes(elements, elements) for _ in range(world)]
    total = torch.zeros(elements, dtype=torch.float64)
    for _ in range(rounds):
        for one, gradient in zip(encodings, meant, strict=True):
            one.pseudo_gradient(elements).copy_(gradient)
        exchange_among(list(encodings), 0, elements, [1] * world)
        for one in encodings:
            assert torch.equal(one.total(elements), encodings[0].total(elements))
        total += encodings[0].total(elements).double() / world
    exact = rounds * meant.double().mean(0)
    levels = (127 if world <= Codes.WORLD_MAX_INT8 else 32767) // world
    # A scale never exceeds the largest of what is meant plus what is kept. What is kept is at most half a code.
    code = float(meant.abs().max()) / (levels - 0.5) if levels > 1 else 2 * float(meant.abs().max())
    assert float((total - exact).abs().max()) <= code
    unsent = torch.stack([one.residual() for one in encodings]).double().mean(0)
    assert torch.allclose(total + unsent, exact, atol=1e-4 * rounds)


def test_codes_take_a_quarter_of_the_bytes() -> None:
    elements = 100 * BLOCK
    encoding = Codes(elements, elements)
    encoding.pseudo_gradient(elements).normal_()
    exchange = encoding.exchange(0, elements, 1)
    peaks = next(exchange)
    peaks.receive.copy_(peaks.send)
    codes = exchange.send(4)
    assert peaks.send.numel() * peaks.send.element_size() + codes.send.numel() <= 0.26 * 4 * elements


@pytest.mark.parametrize("elements", [CHUNK, CHUNK + 1, 2 * CHUNK - BLOCK + 1, 3 * SHARE_MIN + BLOCK + 5])
def test_codes_of_long_vectors_are_those_of_each_element(elements: int) -> None:
    encoding = Codes(elements, elements + 3)
    meant = torch.randn(elements, generator=torch.Generator().manual_seed(elements))
    kept = torch.rand(elements, generator=torch.Generator().manual_seed(1)) / 100
    encoding.pseudo_gradient(elements).copy_(meant)
    encoding.residual()[3:] = kept
    assert exchange_among([encoding], 3, elements, [1]) == [1]
    meant += kept
    peaks = torch.nn.functional.pad(meant, (0, -elements % BLOCK)).view(-1, BLOCK).abs().amax(1)
    scale = (peaks / 127).repeat_interleave(BLOCK)[:elements]
    codes = (meant / scale).round()
    assert torch.equal(encoding.total(elements), codes * scale)
    assert torch.equal(encoding.residual()[3:], meant - codes * scale)
    assert not encoding.residual()[:3].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_block_that_is_no_number_stays_one_block_and_one_round(value: float) -> None:
    elements = 3 * BLOCK
    encodings = [Codes(elements, elements) for _ in range(2)]
    for one in encodings:
        one.pseudo_gradient(elements).fill_(1.0)
    encodings[1].pseudo_gradient(elements)[BLOCK + 7] = value
    exchange_among(list(encodings), 0, elements, [1, 1])
    for one in encodings:
        finite = torch.isfinite(one.total(elements))
        assert finite[:BLOCK].all() and finite[2 * BLOCK :].all() and not finite[BLOCK : 2 * BLOCK].any()
        assert torch.isfinite(one.residual()).all()


def test_left_alone_nothing_is_lost_in_coding() -> None:
    encoding = Codes(10, 30)
    encoding.residual()[10:20] = 0.25
    encoding.pseudo_gradient(10).fill_(1.0)
    next(encoding.exchange(10, 10, 1))
    encoding.keep_own(10, 10)
    assert encoding.total(10).tolist() == [1.25] * 10 and not encoding.residual().any()


# ---- parameters of a model


def test_parameters_of_any_type_and_layout_are_read_and_written_in_place() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 2), torch.nn.Linear(5, 6).bfloat16(), torch.nn.Linear(2, 3).double()
    )
    model[0].weight.data = model[0].weight.data.contiguous(memory_format=torch.channels_last)
    model[2].bias.requires_grad_(False)
    parameters = Parameters(model)
    trainable = [one for one in model.parameters() if one.requires_grad]
    assert parameters.size == sum(one.numel() for one in trainable)
    before = torch.cat([one.detach().reshape(-1).float() for one in trainable])
    read = torch.empty(parameters.size)
    parameters.read(read)
    assert torch.equal(read, before)

    frozen = model[2].bias.detach().clone()
    wanted = torch.arange(parameters.size, dtype=torch.float32) / 4
    for begin, end in ((0, 7), (7, 60), (60, parameters.size)):
        parameters.write(wanted[begin:end], begin)
    parameters.read(read)
    assert torch.equal(read, wanted) and torch.equal(model[2].bias, frozen)
    assert not model[0].weight.is_contiguous()

    parameters.write(torch.zeros(parameters.size), 0, keep=0.5)
    parameters.read(read)
    assert torch.allclose(read, wanted / 2)


def test_untrained_parameters_of_fewer_bits_have_no_pseudo_gradient() -> None:
    model = torch.nn.Linear(40, 3).bfloat16()
    parameters = Parameters(model)
    outer = torch.randn(parameters.size)
    parameters.write(outer, 0)
    difference = torch.ones(parameters.size)
    parameters.subtract_from(outer, 0, difference)
    assert not difference.any()
    parameters.subtract_from(outer[10:20] + 1, 10, difference[10:20])
    assert difference[10:20].min() > 0.9


def test_models_that_cannot_be_averaged() -> None:
    model = torch.nn.Linear(2, 2)
    model.register_parameter("phase", torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    with pytest.raises(ValueError, match="phase"):
        Parameters(model)
    for one in model.parameters():
        one.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter"):
        Parameters(model)
