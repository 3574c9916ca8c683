"""SparseLoCo: what is sent of a pseudo-gradient, what is kept, and how many bytes that takes."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pccl  # noqa: E402
from conftest import run_threads  # noqa: E402
from diloco_trainee import Trainee, train_together, vector  # noqa: E402
from pccl.diloco import DiLoCo, SparseLoCo, TopK  # noqa: E402
from pccl.diloco._encoding import Gathering  # noqa: E402
from pccl.diloco._top_k import Largest, Layout  # noqa: E402


def draw(elements: int, seed: int) -> Any:
    return torch.randn(elements, generator=torch.Generator().manual_seed(seed))


def piece_of(encoding: Largest, values: Any, weight: int = 1) -> tuple[Any, Any]:
    """Encodes. Returns the exchange that waits for all pieces, and the own piece."""
    encoding.pseudo_gradient(values.numel()).copy_(values)
    exchange = encoding.exchange(0, values.numel(), weight, weight)
    gathering = next(exchange)
    assert isinstance(gathering, Gathering) and gathering.send.numel() <= gathering.bytes_max
    return exchange, gathering.send.clone()


def added_up(exchange: Any, pieces: list[Any]) -> int:
    with pytest.raises(StopIteration) as end:
        exchange.send(pieces)
    return int(end.value.value)


def test_an_exchange_is_repeated_without_a_member() -> None:
    """The same piece is sent, and the same elements stay behind."""
    elements = 300
    encoding, other = (Largest(elements, elements, TopK(k=8, chunk=64)) for _ in range(2))
    for seed in range(2):  # in the second round, what was not sent in the first one is added
        exchange, piece = piece_of(encoding, draw(elements, seed), weight=2)
        _, theirs = piece_of(other, draw(elements, 10 + seed), weight=3)
        assert added_up(exchange, [piece, theirs]) == 5
    residual = encoding.residual().clone()
    exchange = encoding.exchange(0, elements, 2, again=True)
    assert torch.equal(next(exchange).send, piece)
    assert torch.equal(encoding.residual(), residual) and residual.abs().max() > 0
    assert added_up(exchange, [piece]) == 2


@pytest.mark.parametrize(
    "options", [TopK(), TopK(k=1, chunk=64), TopK(k=32, chunk=64), TopK(k=100, chunk=4096), TopK(k=7, chunk=65536)]
)
def test_the_largest_elements_come_back(options: TopK) -> None:
    layout = Layout(options)
    values = draw(3 * options.chunk, 1).numpy().reshape(3, -1)
    body = numpy.zeros(3 * layout.chunk_bytes, numpy.uint8)
    places, sent = layout.encode(values, layout.parts(body))
    decoded = layout.decode(layout.parts(body))
    assert decoded is not None
    assert (decoded[0] == places).all() and (decoded[1] == sent).all()
    for row, at, got in zip(values, places, sent, strict=True):
        assert set(at) == set(numpy.argsort(-numpy.abs(row))[: options.k])
        assert (numpy.sign(got) == numpy.sign(row[at])).all()
        # Two levels, each near the mean of those that it stands for.
        levels = numpy.unique(numpy.abs(got))
        assert levels.size <= 2
        for level in levels:
            mine = numpy.abs(row[at])[numpy.abs(got) == level]
            assert level == pytest.approx(mine.mean(), rel=0.1)
    assert layout.chunk_bytes <= options.k * 1.6 + 24 or options.k < 32


def test_the_default_takes_84_bytes_for_4096_elements() -> None:
    assert Layout(TopK()).chunk_bytes == 84
    # About the most elements with which eight peers send a ninth of what int8 sends, which is 7,200 bytes for a chunk. A
    # piece goes to seven peers, so it may have 114 bytes.
    assert Layout(TopK(k=92)).chunk_bytes == 113


def test_what_is_not_sent_is_sent_later() -> None:
    """Without decay, the sum of all that was sent, and what is left, is the sum of what was meant."""
    elements = 1000
    encoding = Largest(elements, elements, TopK(k=4, chunk=64, decay=1.0))
    meant, told = torch.zeros(elements, dtype=torch.float64), torch.zeros(elements, dtype=torch.float64)
    for turn in range(40):
        values = draw(elements, turn)
        exchange, piece = piece_of(encoding, values, weight=3)
        assert added_up(exchange, [piece]) == 3
        meant += 3 * values.double()
        told += encoding.total(elements).double()
    residual = encoding.residual()
    assert residual is not None and residual.any()
    assert torch.allclose(told + residual.double(), meant, rtol=0, atol=1e-3)
    assert float(residual.abs().max()) < 3 * 40


def test_a_newcomer_and_one_that_is_rejected_send_their_weight_alone() -> None:
    encoding = Largest(256, 256, TopK(k=4, chunk=64))
    others = Largest(256, 256, TopK(k=4, chunk=64))
    exchange, piece = piece_of(encoding, torch.zeros(256), weight=0)
    _, theirs = piece_of(others, draw(256, 1), weight=2)
    assert piece.numel() == 8
    assert added_up(exchange, [piece, theirs]) == 2
    assert encoding.total(256).any() and not encoding.residual().any()


def test_pieces_are_added_in_the_order_of_indices() -> None:
    """Floating-point sums depend on the order, so all members need the same one."""
    pieces, encodings = [], [Largest(256, 256, TopK(k=32, chunk=64)) for _ in range(3)]
    exchanges = []
    for index, (encoding, scale) in enumerate(zip(encodings, (1e8, -1e8, 1.0), strict=True)):
        values = torch.full((256,), scale) + 1e-3 * draw(256, index)
        exchange, piece = piece_of(encoding, values)
        exchanges.append(exchange)
        pieces.append(piece)
    for exchange in exchanges:
        assert added_up(exchange, pieces) == 3
    first = encodings[0].total(256)
    for encoding in encodings[1:]:
        assert first.numpy().tobytes() == encoding.total(256).numpy().tobytes()


def test_bytes_that_are_no_piece_are_left_out_by_all(caplog: Any) -> None:
    options = TopK(k=4, chunk=64)
    values = draw(256, 1)
    _, good = piece_of(Largest(256, 256, options), values)
    width = Layout(options).chunk_bytes
    assert good.numel() == 8 + 4 * width

    def changed(at: int, value: int) -> Any:
        other = good.clone()
        other[at] = value
        return other

    high = 8 + 4 * 4  # where the upper parts of the positions begin
    bad = [
        torch.zeros(0, dtype=torch.uint8),
        torch.zeros(7, dtype=torch.uint8),
        good[:-1],
        torch.cat([good, good[:1]]),
        changed(7, 255),  # no weight is that large
        changed(0, 0),  # no weight, but data
        changed(high, 255),  # too many positions
        changed(high, 0) if good[high] else changed(high + 1, 0),  # too few
    ]
    for piece in bad:
        caplog.clear()
        encoding = Largest(256, 256, options)
        exchange, own = piece_of(encoding, values)
        with caplog.at_level(logging.WARNING, "pccl"):
            assert added_up(exchange, [own, piece]) == 1
        assert "the member with index 1 sent" in caplog.text
        expected = Largest(256, 256, options)
        exchange, own = piece_of(expected, values)
        added_up(exchange, [own])
        assert torch.equal(encoding.total(256), expected.total(256))


def test_any_bytes_are_decoded_or_refused() -> None:
    options = TopK(k=8, chunk=64)
    layout = Layout(options)
    random = numpy.random.default_rng(1)
    accepted = 0
    for _ in range(3000):
        body = random.integers(0, 256, layout.chunk_bytes, numpy.uint8)
        if random.random() < 0.5:  # a row with the right number of bits
            row = numpy.zeros(layout.high_bits, numpy.uint8)
            row[random.permutation(layout.high_bits)[: options.k]] = 1
            body[4 : 4 + layout.widths[1]] = numpy.packbits(row)
        with numpy.errstate(all="ignore"):
            found = layout.decode(layout.parts(body))
        if found is not None:
            accepted += 1
            assert found[0].min() >= 0 and found[0].max() < options.chunk
            assert (numpy.diff(found[0]) > 0).all()
    assert accepted > 10


def reference(options: TopK, members: int, rounds: int, period: int) -> Any:
    """SparseLoCo in the words of its paper, in one process and with plain loops."""
    replicas = [Trainee(index) for index in range(members)]
    outer = vector(replicas[0].model).clone()
    errors = [torch.zeros_like(outer) for _ in replicas]
    for turn in range(rounds):
        sent = []
        for replica, error in zip(replicas, errors, strict=True):
            for step in range(turn * period, (turn + 1) * period):
                replica.optimizer.zero_grad()
                replica.loss(step).backward()
                replica.optimizer.step()
            error.mul_(options.decay).add_(outer - vector(replica.model))
            chosen = torch.zeros_like(error)
            for begin in range(0, error.numel(), options.chunk):
                chunk = error[begin : begin + options.chunk]
                padded = torch.nn.functional.pad(chunk, (0, options.chunk - chunk.numel()))
                places = padded.abs().topk(options.k).indices
                magnitudes = padded[places].abs()
                border = magnitudes.double().mean()
                for _ in range(2):
                    large = magnitudes > border
                    high, low = magnitudes[large].double().mean(), magnitudes[~large].double().mean()
                    border = (high + low) / 2
                levels = torch.where(magnitudes > border, high, low).float().bfloat16().float()
                quantized = torch.zeros_like(padded)
                quantized[places] = levels * torch.where(torch.signbit(padded[places]), -1.0, 1.0)
                chosen[begin : begin + options.chunk] = quantized[: chunk.numel()]
            error -= chosen
            sent.append(chosen)
        outer -= sum(sent[1:], sent[0]) / members
        for replica in replicas:
            torch.nn.utils.vector_to_parameters(outer.clone(), replica.model.parameters())
    return outer


@pytest.mark.parametrize("members", [2, 3])
def test_training_goes_as_in_the_paper(master: str, members: int) -> None:
    options = TopK(k=16, chunk=64, decay=0.9)
    expected = reference(options, members, 6, 4)
    outer = {"lr": 1.0, "momentum": 0.0}
    results = train_together(master, members, 24, H=4, quantize=options, outer=outer)
    for _, diloco, _ in results:
        assert torch.equal(diloco.outer, results[0][1].outer)
        assert torch.allclose(diloco.outer, expected, rtol=0, atol=1e-6)


def sent_bytes(master: str, members: int, of: Any) -> float:
    """Payload that a peer sends for one outer step; the mean over the peers."""

    def body(index: int) -> int:
        torch.manual_seed(1)
        model = torch.nn.Linear(512, 511)  # 2 ** 18 - 1 parameters and one bias for each output
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pccl.Communicator(master) as comm, of(model, optimizer, comm, min_peers=members, check_every=0) as diloco:
            model(draw(512, index)).square().mean().backward()
            diloco.step()
            return int(comm.stats()["all_reduce"]["sent_bytes"])

    return sum(run_threads(members, body)) / members


def test_eight_peers_send_a_ninth_of_the_bytes_of_int8() -> None:
    """Counted, not computed. Each member has one link to send on, so these are the bytes of a link."""
    found = []
    for of in (
        lambda *arguments, **options: DiLoCo(*arguments, H=1, quantize="int8", **options),
        lambda *arguments, **options: SparseLoCo(*arguments, H=1, **options),
    ):
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            found.append(sent_bytes(f"127.0.0.1:{node.port}", 8, of))
    print(f"int8 {found[0]:.0f} bytes, SparseLoCo {found[1]:.0f} bytes: {found[0] / found[1]:.1f} times fewer")
    assert found[0] >= 9 * found[1]


def test_options_that_cannot_work_are_refused() -> None:
    for bad in ({"k": 0}, {"k": 2049}, {"chunk": 100}, {"chunk": 32, "k": 1}, {"decay": 0.0}, {"decay": 1.1}):
        with pytest.raises(ValueError, match="TopK: "):
            TopK(**bad)  # type: ignore[arg-type]
