"""Tests of the torch.distributed backend: collectives, training on top of them, ranks and masters, failures."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import pccl
import torch.distributed as dist
from conftest import Script
from torch_peers import Channel, Peer, in_group, run_ranks, start  # noqa: F401

# torch had other names for them before 2.13.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Run = Callable[..., list[Any]]
Start = Callable[..., Peer]


def test_the_package_alone_does_not_import_torch(script: Callable[..., Script]) -> None:
    status, output, errors = script("import sys, pccl; print('torch' in sys.modules)").end()
    assert (status, output) == (0, "False\n"), errors


# ---- collectives


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
    each = {key: [rank[key] for rank in ranks] for ranks in [run_ranks(size, bytes_sent)] for key in ranks[0]}
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


def ranks_in_some_order(channel: Channel, master: str, rank: int) -> bool:
    connect = pccl.Communicator.connect

    def told(communicator: pccl.Communicator, *attempts: int) -> None:
        connect(communicator, *attempts)
        channel.send("in")

    pccl.Communicator.connect = told  # type: ignore[method-assign]

    def body(rank: int) -> bool:
        gather_everything(rank)
        broadcast_bits(rank)
        group: Any = dist.distributed_c10d._get_default_group()
        return bool(group._in_rank_order)

    return bool(in_group(channel, master, rank, 3, body))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_ranks_may_join_in_any_order(start: Start, master: str, order: tuple[int, ...]) -> None:
    """Pieces come in the order in which members were admitted."""
    peers = []
    for rank in order:
        peers.append(start(ranks_in_some_order, master, rank))
        assert peers[-1].hear() == "in"
    assert [peer.result() for peer in peers] == [order == (0, 1, 2)] * 3


# ---- training on top of the collectives


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def batch() -> Any:
    drawn = torch.randn(12, 6, generator=torch.Generator().manual_seed(2), device="cpu")
    return drawn.to(torch.get_default_device())


def train(trained: Any, inputs: Any) -> list[Any]:
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        trained(inputs).square().mean().backward()
        optimizer.step()
    return [whole(parameter) for parameter in trained.parameters()]


def whole(parameter: Any) -> Any:
    return (parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter).detach().cpu().numpy()


def train_ddp(rank: int) -> list[Any]:
    trained = model()
    if rank:  # DDP replaces them by those of rank 0
        for parameter in trained.parameters():
            torch.nn.init.zeros_(parameter)
    ddp = torch.nn.parallel.DistributedDataParallel(trained, bucket_cap_mb=1e-4)
    return train(ddp, batch()[6 * rank : 6 * rank + 6])


def train_fsdp(rank: int) -> list[Any]:
    from torch.distributed.fsdp import fully_shard

    trained: Any = model()
    fully_shard(trained)
    return train(trained, batch()[6 * rank : 6 * rank + 6])


@pytest.mark.parametrize("how", [train_ddp, train_fsdp])
def test_training_is_that_of_one_process_with_the_whole_batch(run_ranks: Run, how: Callable[..., Any]) -> None:
    ranks = run_ranks(2, how)
    for ours, theirs, alone in zip(*ranks, train(model(), batch()), strict=True):
        numpy.testing.assert_array_equal(ours, theirs)
        numpy.testing.assert_allclose(ours, alone, rtol=1e-5, atol=1e-6)


# ---- ranks and masters


def own_rank(rank: int) -> tuple[int, int]:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, dist.get_rank())
    assert gathered == list(range(dist.get_world_size()))
    return rank, dist.get_rank()


def test_ranks_are_distributed_to_those_who_have_none(start: Start, master: str) -> None:
    peers = [start(in_group, master, rank, 4, own_rank) for rank in (-1, 2, -1, -1)]
    ranks = [peer.result() for peer in peers]
    assert sorted(got for _, got in ranks) == [0, 1, 2, 3]
    assert (2, 2) in ranks


def refused(_: Channel, master: str, rank: int, size: int) -> str:
    with pytest.raises(pccl.PCCLArgumentError) as failure:
        in_group(_, master, rank, size, own_rank)
    return str(failure.value)


def beside_another_backend(_: Channel, master: str, rank: int) -> Any:
    import pccl.torch

    dist.init_process_group("cuda:pccl,cpu:gloo", init_method=f"pccl://{master}", rank=rank, world_size=2)
    total = torch.full((3,), rank + 1.0)
    dist.all_reduce(total)
    parts = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    exchanged = torch.zeros(2)
    dist.all_to_all_single(exchanged, torch.tensor([10.0, 11.0]) + 10 * rank)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, rank)
    dist.barrier()
    dist.destroy_process_group()
    return total.tolist(), [one.tolist() for one in parts], exchanged.tolist(), objects


def test_tensors_on_devices_of_another_backend(start: Start, master: str) -> None:
    results = [peer.result() for peer in [start(beside_another_backend, master, rank) for rank in range(2)]]
    for rank, (total, parts, exchanged, objects) in enumerate(results):
        assert total == [3.0] * 3 and parts == [[0.0] * 2, [1.0] * 2] and objects == [0, 1]
        assert exchanged == [10.0 + rank, 20.0 + rank]


def test_a_rank_given_twice_is_an_error_on_all(start: Start, master: str) -> None:
    peers = [start(refused, master, 1, 3) for _ in range(3)]
    assert all("several processes have rank 1; give each its own" in peer.result() for peer in peers)


def test_wrong_addresses_and_ranks(start: Start, master: str) -> None:
    assert "rank is 2 and world_size 2" in start(refused, master, 2, 2).result()
    assert "write 'pccl://host:port'" in start(refused, master + "/path", 0, 1).result()
    assert "world_size is -1" in start(refused, master, 0, -1).result()


def from_environment(_: Channel, master: str | None, port: int, rank: int) -> Any:
    import pccl.torch  # noqa: F401

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if master is not None:
        os.environ["PCCL_MASTER_ADDRESS"] = master
    try:
        dist.init_process_group("pccl")
    except ValueError as error:
        return str(error)
    gathered = own_rank(rank)
    dist.destroy_process_group()
    return gathered


def test_torchrun_and_the_environment(start: Start, master: str) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # set by torchrun: ranks use its store, which exists already
    try:
        peers = [start(from_environment_with_store, master, store.port, rank) for rank in range(2)]
        assert [peer.result() for peer in peers] == [(0, 0), (1, 1)]
        missing = start(from_environment_with_store, None, store.port, 0)
        assert "PCCL_MASTER_ADDRESS is not set" in missing.result()
    finally:
        del os.environ["TORCHELASTIC_USE_AGENT_STORE"]


def from_environment_with_store(channel: Channel, master: str | None, port: int, rank: int) -> Any:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    return from_environment(channel, master, port, rank)


def never_complete(channel: Channel, master: str) -> str:
    import pccl.torch  # noqa: F401

    with pytest.raises(dist.DistBackendError) as failure:
        dist.init_process_group("pccl", init_method=f"pccl://{master}", world_size=2, timeout=timedelta(seconds=1))
    return str(failure.value)


def test_ranks_that_do_not_come_are_an_error(start: Start, master: str) -> None:
    assert "not all ranks joined the run within 1 s" in start(never_complete, master).result()


# ---- failures


def reduce_until_it_fails(channel: Channel, master: str, rank: int) -> tuple[str, str, list[float]]:
    import pccl.torch  # noqa: F401

    def join(rank: int, size: int) -> None:
        dist.init_process_group("pccl", init_method=f"pccl://{master}", rank=rank, world_size=size)

    join(rank, 3)
    dist.barrier()
    channel.send("in")
    with pytest.raises(dist.DistBackendError) as failure:
        while True:
            dist.all_reduce(torch.ones(100_000))
    with pytest.raises(dist.DistBackendError) as later:
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    # The remaining ranks make a new group, as the message says.
    join(rank, 2)
    total = torch.full((2,), rank + 1.0)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return str(failure.value), str(later.value), total.tolist()


def test_a_lost_peer_is_an_error_on_all_and_the_rest_can_begin_anew(start: Start, master: str) -> None:
    peers = [start(reduce_until_it_fails, master, rank) for rank in range(3)]
    for peer in peers:
        assert peer.hear() == "in"
    peers[2].kill()
    for peer in peers[:2]:
        failure, later, total = peer.result()
        assert "lost" in failure.lower() and "destroy_process_group()" in failure and "pccl.torch.ddp_hook" in failure
        assert later == failure
        assert total == [3.0, 3.0]


def collect_until_it_fails(channel: Channel, master: str, rank: int, kind: str) -> str:
    def body(rank: int) -> str:
        own, whole = torch.ones(50_000), torch.ones(150_000)
        call: Callable[[], Any] = {
            "broadcast": lambda: dist.broadcast(own, src=2),  # the rank that dies
            "reduce": lambda: dist.reduce(own, dst=2),
            "all_gather_into_tensor": lambda: all_gather_single(whole, own),
            "reduce_scatter_tensor": lambda: reduce_scatter_single(own, whole),
            "gather": lambda: dist.gather(own, list(whole.chunk(3)) if rank == 2 else None, dst=2),
            "scatter": lambda: dist.scatter(own, [own] * 3 if rank == 2 else None, src=2),
            "all_to_all_single": lambda: dist.all_to_all_single(torch.empty_like(whole), whole),
            "barrier": dist.barrier,
        }[kind]
        channel.send("in")
        with pytest.raises(dist.DistBackendError) as failure:
            while True:
                call()
        return str(failure.value)

    return str(in_group(channel, master, rank, 3, body))


LOST = ["broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "barrier"]


@pytest.mark.parametrize("kind", [*LOST, "gather", "scatter", "all_to_all_single"])
def test_every_collective_ends_when_a_peer_is_lost(start: Start, master: str, kind: str) -> None:
    peers = [start(collect_until_it_fails, master, rank, kind) for rank in range(3)]
    for peer in peers:
        assert peer.hear() == "in"
    peers[2].kill()
    for peer in peers[:2]:
        text = peer.result()
        assert f"pccl: {kind}: " in text and "lost" in text.lower() and "destroy_process_group()" in text


def lost_during_backward(channel: Channel, master: str, rank: int) -> str:
    def body(rank: int) -> str:
        ddp = torch.nn.parallel.DistributedDataParallel(model())
        ddp(batch()).sum().backward()
        loss = ddp(batch()).sum()
        channel.send("trained")
        channel.recv()
        # DDP waits for its collectives in C++, so their failure arrives as a RuntimeError.
        with pytest.raises(RuntimeError) as failure:
            loss.backward()
        return str(failure.value)

    return str(in_group(channel, master, rank, 2, body))


def test_a_loss_under_ddp_says_so(start: Start, master: str) -> None:
    peers = [start(lost_during_backward, master, rank) for rank in range(2)]
    for peer in peers:
        assert peer.hear() == "trained"
    peers[1].kill()
    peers[0].tell("go")
    text = peers[0].result()
    assert "all_reduce" in text and "destroy_process_group()" in text


def wait_for_nobody(channel: Channel, master: str, how: str) -> str:
    import pccl.torch  # noqa: F401

    dist.init_process_group("pccl", init_method=f"pccl://{master}", rank=0, world_size=2)
    # Set only now: as an argument of init_process_group() the time-out would also limit joining.
    dist.distributed_c10d._get_default_group().set_timeout(timedelta(seconds=1))
    tensor = torch.ones(3)
    with pytest.raises(RuntimeError) as failure:
        if how == "call":
            dist.all_reduce(tensor)
        elif how == "future":
            work = dist.all_reduce(tensor, async_op=True)
            assert work is not None
            work.get_future().wait()
        else:
            work = dist.all_reduce(tensor, async_op=True)
            assert work is not None
            work.wait(timedelta(milliseconds=10))
    dist.destroy_process_group()
    return str(failure.value)


def silent_rank(channel: Channel, master: str) -> None:
    def body(_: int) -> None:
        channel.recv()

    in_group(channel, master, 1, 2, body)


@pytest.mark.parametrize(("how", "seconds"), [("call", "1"), ("future", "1"), ("wait", "0.01")])
def test_a_rank_that_does_not_call_is_an_error_after_the_time_out(
    start: Start, master: str, how: str, seconds: str
) -> None:
    silent = start(silent_rank, master)
    text = start(wait_for_nobody, master, how).result()
    assert f"all_reduce: the timeout of {seconds} s is over" in text
    assert "init_process_group(timeout=...)" in text
    silent.tell("end")
    silent.result()


def use_what_is_not_there(rank: int) -> None:
    tensor = torch.ones(4)
    for use in (
        lambda: dist.recv(tensor),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), op=dist.ReduceOp.BAND),
    ):
        with pytest.raises(NotImplementedError, match="backend='gloo'"):
            use()
    for wrong, cause in (
        (torch.ones(2, dtype=torch.bool), "Unsupported torch dtype: torch.bool; convert to one of"),
        (torch.ones(4, 4).t()[:2], "not contiguous; use tensor.contiguous()"),
        (torch.ones(2, device="meta"), None),
    ):
        with pytest.raises((ValueError, RuntimeError, NotImplementedError), match=cause):
            dist.all_reduce(wrong)
    with pytest.raises(ValueError, match="5 elements where 8 are needed"):
        all_gather_single(torch.ones(5), tensor)
    # The group still works after these errors.
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 4


def test_what_cannot_be_done_says_what_to_use(run_ranks: Run) -> None:
    run_ranks(2, use_what_is_not_there)
