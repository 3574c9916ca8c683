"""Groups of some of the ranks: new_group(), and meshes of several dimensions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from conftest import Script  # noqa: E402
from torch_peers import Channel, Peer, in_group, run_ranks, start  # noqa: E402, F401

Run = Callable[..., list[Any]]
Start = Callable[..., Peer]


def use_groups(rank: int) -> None:
    """Groups that overlap, all made before the first is used."""
    several = [[0, 1], [1, 2, 3], [0, 3], [2], [3, 1], [0, 1, 2, 3]]
    groups = [dist.new_group(ranks) for ranks in several]
    again = dist.new_group([0, 1])  # the same ranks, but another group
    for ranks, group in [*zip(several, groups, strict=True), ([0, 1], again)]:
        if rank not in ranks:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
            continue
        members = sorted(ranks)
        assert dist.get_backend(group) == "pccl"
        assert dist.get_world_size(group) == len(ranks) and dist.get_rank(group) == members.index(rank)
        total = torch.tensor([2.0**rank])
        dist.all_reduce(total, group=group)
        assert total.item() == sum(2.0**one for one in ranks)
        pieces = [torch.zeros(2) for _ in members]
        dist.all_gather(pieces, torch.full((2,), float(rank)), group=group)
        assert [piece[1].item() for piece in pieces] == members
        last = torch.tensor([float(rank)])
        dist.broadcast(last, src=members[-1], group=group)
        assert last.item() == members[-1]
        objects: list[Any] = [None] * len(members)
        dist.all_gather_object(objects, f"rank {rank}", group=group)
        assert objects == [f"rank {one}" for one in members]
        dist.barrier(group=group)
    # The group of all ranks is not disturbed.
    everybody = torch.ones(1)
    dist.all_reduce(everybody)
    assert everybody.item() == 4
    if rank in (0, 1):
        dist.destroy_process_group(again)
    total = torch.ones(1)
    if rank in (0, 1):
        dist.all_reduce(total, group=groups[0])
        assert total.item() == 2


def test_groups_of_some_ranks(run_ranks: Run) -> None:  # noqa: F811
    run_ranks(4, use_groups)


def use_a_mesh(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for name, partners in (("replicate", [rank % 2, rank % 2 + 2]), ("shard", [rank // 2 * 2, rank // 2 * 2 + 1])):
        group = mesh[name].get_group()
        assert dist.get_process_group_ranks(group) == partners
        total = torch.tensor([2.0**rank])
        dist.all_reduce(total, group=group)
        assert total.item() == sum(2.0**one for one in partners)


def test_a_mesh_of_two_dimensions(run_ranks: Run) -> None:  # noqa: F811
    run_ranks(4, use_a_mesh)


def model() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def batch(rank: int, step: int) -> Any:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))


def train_hsdp(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    module = model()
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        module(batch(rank, step)).square().mean().backward()
        optimizer.step()
    return [parameter.full_tensor().detach().numpy() for parameter in module.parameters()]


def test_hsdp_trains_like_one_process(run_ranks: Run) -> None:  # noqa: F811
    single = model()
    optimizer = torch.optim.SGD(single.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (sum(single(batch(rank, step)).square().mean() for rank in range(4)) / 4).backward()
        optimizer.step()
    for found in run_ranks(4, train_hsdp):
        for ours, theirs in zip(found, single.parameters(), strict=True):
            assert torch.allclose(torch.from_numpy(ours), theirs, atol=1e-5)


def multiply_in_parts(rank: int) -> None:
    """Tensor parallelism in one dimension of a mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plain, parallel = model(), model()
    parallelize_module(parallel, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    points = batch(rank // 2, 0)
    assert torch.allclose(parallel(points), plain(points), atol=1e-5)


def test_tensor_parallelism(run_ranks: Run) -> None:  # noqa: F811
    run_ranks(4, multiply_in_parts)


def lose_a_rank(channel: Channel, rank: int) -> str:
    pair, others = dist.new_group([0, 1]), dist.new_group([1, 2])
    if rank == 2:
        channel.send("made")
        channel.recv()
    elif rank == 0:
        dist.all_reduce(torch.ones(1), group=pair)
        return ""
    else:
        dist.all_reduce(torch.ones(1), group=pair)
        channel.send("reduced")
        with pytest.raises(dist.DistBackendError, match="peers were lost|pccl: all_reduce"):
            for _ in range(2):  # the first may have its outcome before the other rank is missed
                dist.all_reduce(torch.ones(1), group=others)
    return ""


def in_group_with_channel(channel: Channel, master: str, rank: int, size: int, function: Any) -> Any:
    return in_group(channel, master, rank, size, lambda own: function(channel, own))


@pytest.mark.parametrize("dead", [2])
def test_a_lost_rank_ends_its_groups(start: Start, master: str, dead: int) -> None:  # noqa: F811
    peers = [start(in_group_with_channel, master, rank, 3, lose_a_rank) for rank in range(3)]
    assert peers[dead].hear() == "made" and peers[1].hear() == "reduced"
    peers[dead].kill()
    for peer in peers[:2]:
        peer.result()


def lose_the_first_rank(channel: Channel, rank: int) -> None:
    pair = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1), group=pair)
    channel.send("reduced")
    if rank == 0:
        channel.recv()
    with pytest.raises(dist.DistBackendError, match="pccl: all_reduce"):
        for _ in range(2):
            dist.all_reduce(torch.ones(1), group=pair)


def test_the_group_of_a_lost_first_rank_fails_too(start: Start, master: str) -> None:  # noqa: F811
    """Its master was in that process."""
    peers = [start(in_group_with_channel, master, rank, 2, lose_the_first_rank_of_two) for rank in range(2)]
    assert [peer.hear() for peer in peers] == ["reduced"] * 2
    peers[0].kill()
    peers[1].result()


def lose_the_first_rank_of_two(channel: Channel, rank: int) -> None:
    from pccl.torch import _backend

    _backend._run = None  # so that a group of all ranks is a run of its own, too
    lose_the_first_rank(channel, rank)


def use_one_name_twice(rank: int) -> None:
    """The store keeps what a former group of this name has written."""
    from datetime import timedelta

    from pccl.torch import _subgroup
    from pccl.torch._c10d import PrefixStore

    store = PrefixStore("same", dist.distributed_c10d._get_default_store())
    for turn in range(3):
        run = _subgroup.gather(store, rank, 2, timedelta(seconds=100), None)
        assert run.size == 2 and run.rank == rank, turn
        dist.barrier()
        run.close()


def test_a_later_group_of_the_same_name(run_ranks: Run) -> None:  # noqa: F811
    run_ranks(2, use_one_name_twice)


def refuse(rank: int, name: str) -> None:
    os.environ[name] = "something"
    try:
        if rank < 2:
            with pytest.raises((ValueError, dist.DistBackendError), match=f"{name} is set.*backend='gloo'"):
                dist.new_group([0, 1])
        else:
            dist.new_group([0, 1])
        dist.barrier()  # the first rank serves the store until all have read it
    finally:
        del os.environ[name]


@pytest.mark.parametrize("name", ["PCCL_INVITE", "PCCL_STATE_DIR"])
def test_what_a_group_cannot_have_is_refused_on_all_its_ranks(run_ranks: Run, name: str) -> None:  # noqa: F811
    run_ranks(3, refuse, name)


ENDS = """
import sys
import pccl.torch
import torch
import torch.distributed as dist

rank = int(sys.argv[2])
dist.init_process_group("pccl", init_method=f"pccl://{sys.argv[1]}", world_size=3, rank=rank)
group = dist.new_group([0, 1])
total = torch.ones(4)
if rank < 2:
    dist.all_reduce(total, group=group)
dist.barrier()
print(total[0].item())
if len(sys.argv) > 3:
    raise RuntimeError("it fails")
"""


@pytest.mark.parametrize("how", [(), ("fails",)])
def test_a_program_ends_without_destroying_its_groups(
    script: Callable[..., Script], master: str, how: tuple[str, ...]
) -> None:
    """The first rank of a group serves its master, which does not hold the program up."""
    programs = [script(ENDS, master, str(rank), *how) for rank in range(3)]
    for program, total in zip(programs, ("2.0", "2.0", "1.0"), strict=True):
        status, output, errors = program.end()
        assert output == f"{total}\n" and status == len(how), errors
        assert ("it fails" in errors) == bool(how)
