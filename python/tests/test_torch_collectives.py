"""Tests of the torch.distributed backend: what each collective does, and the bytes that it sends."""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl
import torch.distributed as dist
from conftest import in_one_run, wait_until
from torch_peers import Channel, Peer, in_group, run_ranks, start  # noqa: F401

# torch had other names for them before 2.13.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Run = Callable[..., list[Any]]
Start = Callable[..., Peer]


def reduce_everything(rank: int) -> None:
    from torch.distributed import ReduceOp

    values = torch.tensor([1.0, -2.0, 3.0, 4.5])
    # Rank r of 0, 1, 2 contributes values * (r + 1) + r.
    expected = {
        ReduceOp.SUM: values * 6 + 3,
        ReduceOp.AVG: values * 2 + 1,
        ReduceOp.PRODUCT: (values + 0) * (values * 2 + 1) * (values * 3 + 2),
        ReduceOp.MIN: torch.minimum(values, values * 3 + 2),
        ReduceOp.MAX: torch.maximum(values, values * 3 + 2),
    }
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for op, result in expected.items():
            tensor = (values * (rank + 1) + rank).to(dtype)
            dist.all_reduce(tensor, op=op)
            torch.testing.assert_close(tensor, result.to(dtype))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        tensor = torch.full((5,), rank + 1, dtype=dtype)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [6] * 5
    parameter = torch.nn.Parameter(torch.full((2, 2), float(rank)))
    dist.all_reduce(parameter)
    assert parameter.detach().flatten().tolist() == [3.0] * 4
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == 3
    tensors = [torch.full((3,), float(rank)), torch.full((2,), rank)]
    work = dist.distributed_c10d._get_default_group().allreduce_coalesced(tensors)
    assert work.wait() and tensors[0].tolist() == [3.0] * 3 and tensors[1].tolist() == [3, 3]
    kept = torch.full((3,), float(rank))
    dist.reduce(kept, dst=1)
    assert kept.tolist() == ([3.0] * 3 if rank == 1 else [float(rank)] * 3)


def test_reductions(run_ranks: Run) -> None:
    run_ranks(3, reduce_everything)


def exchange_everything(rank: int) -> None:
    # Row r of rank s is 10 * s + r.
    rows = torch.arange(3.0).view(3, 1).repeat(1, 2) + 10 * rank
    out = torch.empty(3, 2)
    dist.all_to_all_single(out, rows)
    assert out.tolist() == [[10.0 * sender + rank] * 2 for sender in range(3)]
    dist.all_to_all_single(rows, rows)  # in place
    assert torch.equal(rows, out)

    # Rank s sends s + r rows to rank r, and rank 0 none to itself.
    send = torch.cat([torch.full((rank + to, 2), 10 * rank + to, dtype=torch.int16) for to in range(3)])
    got = torch.empty(3 * rank + 3, 2, dtype=torch.int16)
    work = dist.all_to_all_single(
        got, send, [sender + rank for sender in range(3)], [rank + to for to in range(3)], async_op=True
    )
    assert work is not None and work.wait()
    expected = [[10 * sender + rank] * 2 for sender in range(3) for _ in range(sender + rank)]
    assert got.tolist() == expected

    # Each part may have another shape and size.
    parts = [torch.full((to + 1, rank + 1), 10 * rank + to, dtype=torch.bool) for to in range(3)]
    received = [torch.zeros(rank + 1, sender + 1, dtype=torch.bool) for sender in range(3)]
    dist.all_to_all(received, parts)
    assert [one.flatten().tolist() for one in received] == [
        [bool(10 * sender + rank)] * (rank + 1) * (sender + 1) for sender in range(3)
    ]
    dist.all_to_all_single(torch.empty(0, 4), torch.empty(0, 4))

    objects: list[Any] = [None]
    dist.scatter_object_list(objects, [{"to": to} for to in range(3)] if rank == 1 else None, src=1)
    assert objects == [{"to": rank}]
    collected: list[Any] | None = [None] * 3 if rank == 2 else None
    dist.gather_object("x" * rank, collected, dst=2)
    assert collected in (None, ["", "x", "xx"])


def splits_that_do_not_fit(rank: int) -> list[str]:
    texts = []
    tensor = torch.ones(6)
    for call in (
        lambda: dist.all_to_all_single(torch.empty(5), tensor),
        lambda: dist.all_to_all_single(torch.empty(6), tensor, input_split_sizes=[1, 2]),
        # As many in all as are sent, but not by whom.
        lambda: dist.all_to_all_single(torch.empty(6), tensor, [2, 4], [3, 3]),
    ):
        try:
            call()
            texts.append("")
        except ValueError as error:
            texts.append(str(error))
    return texts


def test_parts_that_are_exchanged_must_fit(run_ranks: Run) -> None:
    for texts in run_ranks(2, splits_that_do_not_fit):
        assert "the output has 5 rows for 2 ranks" in texts[0]
        assert "the input_split_sizes are [1, 2] for 2 ranks and 6 rows" in texts[1]
        # Of two ranks that do not fit, the one that joined first is named.
        assert re.search("sent 12 bytes where (8|16) have room", texts[2])


def piece_that_does_not_fit(rank: int) -> str:
    out = torch.empty(6 if rank == 0 else 2)
    with pytest.raises(ValueError) as failure:
        dist.scatter(out, [torch.ones(6)] * 2 if rank == 0 else None, src=0)
    return str(failure.value)


def test_a_piece_that_does_not_fit_is_refused_to_all(run_ranks: Run) -> None:
    for text in run_ranks(2, piece_that_does_not_fit):
        assert "room for 8 elements, and the pieces for it have 24" in text


def gather_everything(rank: int) -> None:
    own = torch.arange(4.0).view(2, 2) + 10 * rank
    everyone = [torch.arange(4.0).view(2, 2) + 10 * other for other in range(3)]

    lists = [torch.empty(2, 2) for _ in range(3)]
    dist.all_gather(lists, own)
    assert all(torch.equal(a, b) for a, b in zip(lists, everyone, strict=True))

    whole = torch.empty(6, 2)
    all_gather_single(whole, own)
    assert torch.equal(whole, torch.cat(everyone))
    whole[2 * rank : 2 * rank + 2] *= 2
    all_gather_single(whole, whole[2 * rank : 2 * rank + 2])  # in place, as FSDP does
    assert torch.equal(whole, torch.cat(everyone) * 2)

    uneven = [torch.empty(other + 1, dtype=torch.int16) for other in range(3)]
    dist.all_gather(uneven, torch.full((rank + 1,), rank, dtype=torch.int16))
    assert [one.tolist() for one in uneven] == [[0], [1, 1], [2, 2, 2]]

    parts = [torch.empty(2, 2) for _ in range(3)] if rank == 2 else None
    dist.gather(own, parts, dst=2)
    assert parts is None or all(torch.equal(a, b) for a, b in zip(parts, everyone, strict=True))

    received = torch.empty(2, 2)
    dist.scatter(received, everyone if rank == 1 else None, src=1)
    assert torch.equal(received, own)

    exchange_everything(rank)

    out = torch.empty(2, 2)
    reduce_scatter_single(out, torch.cat(everyone))
    assert torch.equal(out, own * 3)
    dist.reduce_scatter(out, everyone, op=dist.ReduceOp.AVG)
    assert torch.equal(out, own)
    sums = torch.cat(everyone)
    reduce_scatter_single(sums[2 * rank : 2 * rank + 2], sums)  # a part of the input
    assert torch.equal(sums[2 * rank : 2 * rank + 2], own * 3)
    assert torch.equal(sums[: 2 * rank], torch.cat(everyone)[: 2 * rank])
    nothing = torch.empty(0)
    reduce_scatter_single(nothing, torch.empty(0))

    objects: list[Any] = [None] * 3
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": other, "text": "x" * other} for other in range(3)]
    announced = ["from 1", 7] if rank == 1 else [None, None]
    dist.broadcast_object_list(announced, src=1)
    assert announced == ["from 1", 7]
    dist.barrier()


def test_gathering_and_scattering(run_ranks: Run) -> None:
    run_ranks(3, gather_everything)


def parts_that_do_not_fit(rank: int) -> str:
    # As many elements in all as were sent, but not by whom.
    sizes = [(1, 2, 3), (2, 3, 1), (1, 3, 2)][rank]
    try:
        dist.all_gather([torch.empty(size) for size in sizes], torch.ones(sizes[rank]))
    except ValueError as error:
        return str(error)
    return ""


def test_parts_of_other_sizes_than_expected(run_ranks: Run) -> None:
    texts = run_ranks(3, parts_that_do_not_fit)
    # The first one in the order of members is named.
    assert "rank 1 sent 12 bytes where 8 have room" in texts[0] or "rank 2 sent 8 bytes where 12" in texts[0]
    assert "rank 0 sent 4 bytes where 8 have room" in texts[1] or "rank 2 sent 8 bytes where 4" in texts[1]
    assert texts[2] == ""


def broadcast_bits(rank: int) -> None:
    bits = torch.tensor([-0.0, float("inf"), 1.0]).view(torch.int32)
    bits = torch.cat([bits, torch.tensor([0x7FC12345, 0x7F812345], dtype=torch.int32)])  # a quiet and a signalling NaN
    tensor = bits.clone() if rank == 1 else torch.ones(5, dtype=torch.int32)
    dist.broadcast(tensor.view(torch.float32), src=1)
    assert torch.equal(tensor, bits)
    for content in (
        torch.tensor([True, False, True]),
        torch.tensor([1 + 2j, -3j]),
        torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
        torch.tensor(2**63 - 1),
    ):
        other = content.clone() if rank == 1 else torch.zeros_like(content)
        dist.broadcast(other, src=1)
        assert torch.equal(other.view(-1).view(torch.uint8), content.view(-1).view(torch.uint8))


def test_broadcast_moves_bits_of_every_type(run_ranks: Run) -> None:
    run_ranks(2, broadcast_bits)


def awaited_in_any_order(rank: int) -> None:
    tensors = [torch.full((1000,), float(index + rank)) for index in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    order = range(20) if rank == 0 else reversed(range(20))
    for index in order:
        work = works[index]
        assert work is not None
        if index % 2:
            work.wait()
        else:
            assert work.get_future().wait()[0] is tensors[index]
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert tensors[index].tolist() == [2.0 * index + 1] * 1000
    chained = dist.all_reduce(torch.ones(3), async_op=True)
    assert chained is not None
    assert chained.get_future().then(lambda done: done.value()[0] / 2).wait().tolist() == [1.0] * 3


def test_works_and_futures(run_ranks: Run) -> None:
    run_ranks(2, awaited_in_any_order)


def awaited_by_nobody(rank: int) -> list[float]:
    kept, pieces = [], [torch.zeros(3), torch.zeros(5), torch.zeros(3)][::2]
    for _ in range(20):
        tensor = torch.ones(1000)
        kept.append(weakref.ref(tensor))
        dist.all_reduce(tensor, async_op=True)
    del tensor
    dist.all_gather(pieces, torch.full((3,), rank + 1.0), async_op=True)
    dist.barrier()
    wait_until(lambda: not any(one() is not None for one in kept), "the tensors are released")
    wait_until(lambda: pieces[1][2].item() == 2.0, "the pieces are in their places")
    return [piece.sum().item() for piece in pieces]


def test_works_that_nobody_awaits(run_ranks: Run) -> None:
    """Their results are put into place, and nothing keeps their tensors."""
    assert run_ranks(2, awaited_by_nobody) == [[3.0, 6.0]] * 2


def callbacks_that_wait(rank: int) -> list[float]:
    """Each callback is called by a thread of the backend: rank 1 comes to its collective when rank 0 has set it."""
    store, seen = dist.distributed_c10d._get_default_store(), []

    def total(of: float) -> Any:
        return torch.full((3,), of)

    def late(name: str) -> None:
        store.set(name, "set") if rank == 0 else store.wait([name])

    def once_more(future: Any) -> Any:
        inner = dist.all_reduce(future.value()[0], async_op=True).get_future()
        return inner.then(lambda one: dist.all_reduce(one.value()[0], async_op=True).get_future().wait()[0]).wait()

    if rank == 0:
        future = dist.all_reduce(total(1.0), async_op=True).get_future().then(once_more)
        late("first")
        seen.append(future.wait()[0].item())
    else:
        late("first")
        future = dist.all_reduce(total(1.0), async_op=True).get_future()
        future.wait()
        seen.append(once_more(future)[0].item())

    # It waits for a future of a later collective, whose callbacks are called after its own.
    if rank == 0:
        first, second = (dist.all_reduce(total(1.0), async_op=True).get_future() for _ in range(2))
        future = first.then(lambda _: second.wait()[0])
        late("second")
        seen.append(future.wait()[0].item())
    else:
        late("second")
        for _ in range(2):
            dist.all_reduce(total(1.0))
        seen.append(2.0)
    return seen


def test_callbacks_of_futures_may_wait_for_collectives(run_ranks: Run) -> None:
    assert run_ranks(2, callbacks_that_wait) == [[8.0, 2.0]] * 2


def callbacks_in_order(rank: int) -> list[int]:
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["set"])
        for _ in range(50):
            dist.all_reduce(torch.ones(2))
        return list(range(50))
    called: list[int] = []
    inside = threading.Lock()

    def note(index: int) -> None:
        assert inside.acquire(blocking=False)
        called.append(index)
        inside.release()

    futures = [dist.all_reduce(torch.ones(2), async_op=True).get_future() for _ in range(50)]
    chained = [one.then(lambda _, index=index: note(index)) for index, one in enumerate(futures)]
    store.set("set", "set")
    for one in chained:
        one.wait()
    return sorted(called)


def test_no_two_callbacks_of_futures_run_at_a_time(run_ranks: Run) -> None:
    assert run_ranks(2, callbacks_in_order) == [list(range(50))] * 2


def power_sgd(rank: int) -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)))
    state = hooks.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, hooks.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        model(torch.randn(4, 32, generator=torch.Generator().manual_seed(10 * step + rank))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().double().sum().item() for parameter in model.parameters()]


def test_a_hook_of_torch_whose_callbacks_wait(run_ranks: Run) -> None:
    first, second = run_ranks(2, power_sgd)
    assert first == second


def messages(rank: int) -> None:
    # A pipeline of three ranks: each sends to the next one, and the last one back to the first.
    ahead, behind = (rank + 1) % 3, (rank + 2) % 3
    for size in (3, 100_000):
        got = torch.empty(size, dtype=torch.float64)
        work = dist.isend(torch.full((size,), float(rank), dtype=torch.float64), dst=ahead)
        assert dist.recv(got, src=behind) == behind
        assert work is not None and work.wait() and got.tolist() == [float(behind)] * size
    # Several with one tag arrive in their order, whatever the order of the waits.
    numbers = [torch.empty(2, dtype=torch.int64) for _ in range(4)]
    if rank == 0:
        works = [dist.isend(torch.tensor([7, number]), dst=2, tag=5) for number in range(4)]
    else:
        works = [dist.irecv(number, src=0, tag=5) for number in numbers] if rank == 2 else []
    for work in reversed(works):
        assert work is not None and work.wait()
    assert rank != 2 or [number.tolist() for number in numbers] == [[7, number] for number in range(4)]
    both = torch.empty(5)
    requests = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.full((5,), float(rank)), ahead), dist.P2POp(dist.irecv, both, behind)]
    )
    assert all(request.wait() for request in requests) and both.tolist() == [float(behind)] * 5
    objects: list[Any] = ["text", {"rank": rank}] if rank == 1 else [None, None]
    if rank == 1:
        dist.send_object_list(objects, dst=0)
    elif rank == 0:
        assert dist.recv_object_list(objects, src=1) == 1 and objects == ["text", {"rank": 1}]
    pair = dist.new_group([1, 2])
    if rank != 0:
        other = torch.empty(2)
        requests = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((2,), float(rank)), 3 - rank, group=pair),
                dist.P2POp(dist.irecv, other, 3 - rank, group=pair),
            ]
        )
        assert all(request.wait() for request in requests) and other.tolist() == [float(3 - rank)] * 2
    with pytest.raises(NotImplementedError, match="recv from any rank"):
        dist.recv(both)
    if rank < 2:
        # The receiver has more room than there is.
        with pytest.raises(ValueError, match="make both equally large") if rank else contextlib.nullcontext():
            if rank:
                dist.recv(torch.empty(3), src=0)
            else:
                dist.send(torch.empty(2), dst=1)


def test_messages(run_ranks: Run) -> None:
    run_ranks(3, messages)


def groups_side_by_side(rank: int) -> None:
    second = dist.new_group()
    alone = dist.new_group([1])
    a, b, c = torch.ones(3), torch.full((4,), 2.0), torch.ones(2)
    first = dist.all_reduce(a, async_op=True)
    dist.all_reduce(b, group=second)
    assert first is not None and first.wait() and a.tolist() == [2.0] * 3 and b.tolist() == [4.0] * 4
    if rank == 1:
        dist.all_reduce(c, group=alone)
        assert c.tolist() == [1.0, 1.0]
    gloo = dist.new_group([0, 1], backend="gloo")
    if rank == 0:
        dist.send(torch.full((2,), 7.0), dst=1, group=gloo)
    else:
        dist.recv(c, src=0, group=gloo)
        assert c.tolist() == [7.0, 7.0]
    dist.destroy_process_group(second)
    dist.all_reduce(a)
    assert a.tolist() == [4.0] * 3


def test_groups_beside_the_default_one(run_ranks: Run) -> None:
    run_ranks(2, groups_side_by_side)


# ---- what they cost


def bytes_sent(rank: int) -> dict[str, int]:
    group, size = dist.distributed_c10d._get_default_group(), dist.get_world_size()
    own, whole = torch.ones(100_000), torch.ones(100_000 * size)

    def sent(call: Callable[[], Any]) -> int:
        work = call()
        assert work.wait()
        return sum(handle.result().tx_bytes for handle in work._handles)

    uneven = [torch.empty(50_000 * (other + 1)) for other in range(size)]
    return {
        "broadcast": sent(lambda: dist.broadcast(own, src=1, async_op=True)),
        "all_gather": sent(lambda: all_gather_single(whole, own, async_op=True)),
        "in place": sent(lambda: all_gather_single(whole, whole[100_000 * rank : 100_000 * (rank + 1)], async_op=True)),
        "uneven": sent(lambda: dist.all_gather(uneven, torch.ones(50_000 * (rank + 1)), async_op=True)),
        "reduce_scatter": sent(lambda: reduce_scatter_single(own, whole, async_op=True)),
        "list": sent(lambda: group.reduce_scatter([own], [list(whole.chunk(size))])),
        "reduce": sent(lambda: dist.reduce(own, dst=2, async_op=True)),
        "gather": sent(lambda: dist.gather(own, list(whole.chunk(size)) if rank == 0 else None, async_op=True)),
        "scatter": sent(lambda: dist.scatter(own, list(whole.chunk(size)) if rank == 0 else None, async_op=True)),
        "all_to_all": sent(lambda: dist.all_to_all_single(torch.empty_like(whole), whole, async_op=True)),
        "barrier": sent(lambda: dist.barrier(async_op=True)),
    }


def test_each_collective_sends_as_many_bytes_as_it_must(run_ranks: Run) -> None:
    """gloo sends no fewer (``./dev bench collectives bytes``)."""
    size, part = 3, 400_000

    def check(ranks: list[dict[str, int]]) -> None:
        each = {key: [rank[key] for rank in ranks] for key in ranks[0]}
        for key in ("all_gather", "in place", "reduce_scatter", "list"):
            assert all((size - 1) * part <= sent <= 1.05 * (size - 1) * part for sent in each[key]), (key, each[key])
        for key in ("broadcast", "reduce"):
            assert max(each[key]) <= 1.1 * part and sum(each[key]) <= 1.1 * (size - 1) * part, (key, each[key])
        # Each piece crosses only the edges between its two ranks.
        for key in ("gather", "scatter"):
            assert sum(each[key]) == size * (size - 1) // 2 * part, (key, each[key])
        assert each["all_to_all"] == [size * (size - 1) // 2 * part] * size
        assert sum(each["uneven"]) <= 1.05 * (size - 1) * part // 2 * 6
        assert each["barrier"] == [0, 0, 0]

    in_one_run(lambda: run_ranks(size, bytes_sent), check)


def ranks_in_some_order(channel: Channel, master: str, rank: int) -> list[int]:
    connect = pccl.Communicator.connect

    def told(communicator: pccl.Communicator, *attempts: int) -> None:
        connect(communicator, *attempts)
        channel.send("in")

    pccl.Communicator.connect = told  # type: ignore[method-assign]

    def body(rank: int) -> list[int]:
        gather_everything(rank)
        exchange_everything(rank)
        broadcast_bits(rank)
        exchange_adjacent_parts(rank)
        group: Any = dist.distributed_c10d._get_default_group()
        return list(group._ranks)

    return list(in_group(channel, master, rank, 3, body))


def exchange_adjacent_parts(rank: int) -> None:
    """Tensors that lie one behind the other, large ones and small ones, also empty ones; and those that nearly do."""
    for size in (1, 50_000):
        table = torch.arange(9.0).repeat_interleave(size).view(3, 3, size)  # [from rank][to rank]
        for lengths in ([size] * 3, [0, size, size], [size, 0, size - 1]):
            out = torch.full((3 * size + 1,), -1.0)
            room = list(out[: sum(lengths)].split(lengths))
            dist.all_to_all(room, list(table[rank].flatten()[: 3 * lengths[rank]].split([lengths[rank]] * 3)))
            for whose, part in enumerate(room):
                begin = rank * lengths[whose]
                assert torch.equal(part, table[whose].flatten()[begin : begin + lengths[whose]])
            assert out[sum(lengths) :].tolist() == [-1] * (len(out) - sum(lengths))
        everything = torch.empty(3, size)
        dist.all_gather(list(everything), table[rank, 0])
        assert torch.equal(everything, table[:, 0])
        dist.all_gather([everything[1], everything[0], everything[2]], table[rank, 1])  # not in this order
        assert torch.equal(everything, table[[1, 0, 2], 1])
        dist.gather(table[rank, 2], list(everything) if rank == 2 else None, dst=2)
        assert torch.equal(everything, table[:, 2] if rank == 2 else table[[1, 0, 2], 1])
        dist.scatter(everything[0], list(table[1]) if rank == 1 else None, src=1)
        assert torch.equal(everything[0], table[1, rank])
        dist.scatter(everything[1], list(everything) if rank == 1 else None, src=1)  # the own piece in its place
        summed = torch.empty(size)
        dist.reduce_scatter(summed, list(table[rank]))
        assert torch.equal(summed, table[:, rank].sum(0))
        whole = table[rank].clone()
        dist.reduce_scatter(whole[1], list(whole))  # one of the inputs
        assert torch.equal(whole[1], table[:, rank].sum(0))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_ranks_may_join_in_any_order(start: Start, master: str, order: tuple[int, ...]) -> None:
    """Members have indices in the order in which they were admitted; pieces come in the order of ranks."""
    peers = []
    for rank in order:
        peers.append(start(ranks_in_some_order, master, rank))
        assert peers[-1].hear() == "in"
    assert [peer.result() for peer in peers] == [list(order)] * 3
