"""The members of a process group change: the contract of torch's ProcessGroup.reconfigure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl.torch
import torch.distributed as dist
from conftest import PATIENCE_S
from torch.nn.parallel import DistributedDataParallel
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]
SIZE = 3


class Rank:
    """A process that can meet the others at a store, which the test serves."""

    def __init__(self, channel: Channel, port: int, rank: int, init_method: str | None = None) -> None:
        self.rank = rank
        self.channel = channel
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=PATIENCE_S))
        where: dict[str, Any] = {"init_method": init_method} if init_method else {"store": self.store}
        dist.init_process_group(
            "pccl",
            rank=rank,
            world_size=SIZE,
            timeout=timedelta(seconds=PATIENCE_S),
            pg_options=pccl.torch.ProcessGroupPCCL.Options(enable_reconfigure=True),
            **where,
        )
        self.group: Any = dist.distributed_c10d._get_default_group()
        assert pccl.torch.supports_reconfigure() and self.group.supports_reconfigure

    def handles(self, name: str, ranks: range | list[int] = range(SIZE)) -> list[str]:
        """Those of the ranks given, which all call it."""
        self.store.set(f"{name}/{self.rank}", pccl.torch.get_reconfigure_handle())
        return [self.store.get(f"{name}/{rank}").decode() for rank in ranks]

    def all_reduce(self) -> float:
        total = torch.full((1000,), dist.get_rank() + 1.0)
        dist.all_reduce(total)
        assert (total == total[0]).all()
        return total[0].item()


@pytest.fixture
def ranks(start: Start) -> Iterator[Callable[..., list[Peer]]]:  # noqa: F811
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def begin(function: Any, *arguments: Any) -> list[Peer]:
        return [start(in_process, store.port, rank, function, *arguments) for rank in range(SIZE)]

    yield begin
    del store


def in_process(channel: Channel, port: int, rank: int, function: Any, *arguments: Any) -> Any:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    one = Rank(channel, port, rank, *arguments)
    result = function(one)
    one.store.add("done", 1)
    while one.store.add("done", 0) < SIZE - len(getattr(one, "dead", [])):
        time.sleep(0.005)  # only spares the processor: the store of the first must outlive what the others read there
    dist.destroy_process_group()
    return result


def results(peers: list[Peer]) -> list[Any]:
    return [peer.result() for peer in peers]


def all_of_them(one: Rank) -> Any:
    with pytest.raises(dist.DistBackendError, match="no members yet"):
        one.all_reduce()
    handles = one.handles("all")
    assert handles[one.rank] == pccl.torch.get_reconfigure_handle()
    work = pccl.torch.reconfigure(1, handles)
    assert work.wait() and work.is_completed() and work.is_success()
    seen = [(dist.get_rank(), dist.get_world_size(), one.all_reduce())]
    # The same members once more; then the ranks are those of the list.
    one.group.reconfigure(pccl.torch.ReconfigureOptions(uuid=2, handles=handles)).wait()
    seen.append((dist.get_rank(), dist.get_world_size(), one.all_reduce()))
    pccl.torch.reconfigure(3, handles[::-1])
    seen.append((dist.get_rank(), dist.get_world_size(), one.all_reduce()))
    pccl.torch.reconfigure(4, set(handles))
    assert dist.get_rank() == sorted(handles).index(handles[one.rank])
    return seen, one.all_reduce(), one.group.rank(), one.group.size()


def test_all_processes(ranks: Callable[..., list[Peer]]) -> None:
    for rank, (seen, total, own, size) in enumerate(results(ranks(all_of_them))):
        assert seen == [(rank, 3, 6.0), (rank, 3, 6.0), (2 - rank, 3, 6.0)]
        assert total == 6.0 and size == 3 and 0 <= own < 3


def shrink(one: Rank, left_out: int) -> Any:
    handles = one.handles("all")
    pccl.torch.reconfigure(1, handles)
    one.all_reduce()
    if one.rank == left_out:
        return None
    pccl.torch.reconfigure(2, [handle for rank, handle in enumerate(handles) if rank != left_out])
    words: list[Any] = [f"word of {one.rank}"]
    dist.broadcast_object_list(words, group_src=0)
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, one.rank)
    part = torch.ones(2)
    dist.all_reduce(part, group=dist.new_group([0, 1]))  # a group of the ranks as they are now
    return dist.get_rank(), one.all_reduce(), words, gathered, part[0].item()


def shrink_first(one: Rank) -> Any:
    return shrink(one, 0)


def shrink_middle(one: Rank) -> Any:
    return shrink(one, 1)


@pytest.mark.parametrize("left_out,function", [(0, shrink_first), (1, shrink_middle)])
def test_one_is_left_out(ranks: Callable[..., list[Peer]], left_out: int, function: Any) -> None:
    left = [rank for rank in range(SIZE) if rank != left_out]
    seen = results(ranks(function))
    assert seen[left_out] is None
    for place, rank in enumerate(left):
        assert seen[rank] == (place, 3.0, [f"word of {left[0]}"], left, 2.0)


def messages_with_a_newcomer(one: Rank) -> list[float]:
    handles, got = one.handles("all"), []
    for uuid, other in enumerate((1, 2)):
        if one.rank in (0, other):
            pccl.torch.reconfigure(uuid, [handles[0], handles[other]])
            message = torch.full((4,), 7.0 + uuid if one.rank == 0 else 0.0)
            dist.send(message, 1) if one.rank == 0 else dist.recv(message, 0)
            got.append(message[3].item())
    return got


def test_messages_with_a_newcomer(ranks: Callable[..., list[Peer]]) -> None:
    """A member that stays counts its messages from the beginning, as the newcomer does."""
    assert results(ranks(messages_with_a_newcomer)) == [[7.0, 8.0], [7.0], [8.0]]


def split_and_merge(one: Rank) -> Any:
    own = pccl.torch.get_reconfigure_handle()
    pccl.torch.reconfigure(100 + one.rank, [own])
    seen = [(dist.get_rank(), dist.get_world_size(), one.all_reduce())]
    handles = one.handles("all")
    # Two groups at the same time, then one.
    if one.rank == 0:
        pccl.torch.reconfigure(1, handles[:1])
    else:
        pccl.torch.reconfigure(2, handles[1:])
    seen.append((dist.get_rank(), dist.get_world_size(), one.all_reduce()))
    pccl.torch.reconfigure(3, handles)
    seen.append((dist.get_rank(), dist.get_world_size(), one.all_reduce()))
    return seen


def test_split_and_merge(ranks: Callable[..., list[Peer]]) -> None:
    for rank, seen in enumerate(results(ranks(split_and_merge))):
        middle = (0, 1, 1.0) if rank == 0 else (rank - 1, 2, 3.0)
        assert seen == [(0, 1, 1.0), middle, (rank, 3, 6.0)]


def lose_the_first(one: Rank) -> Any:
    handles = one.handles("all")
    pccl.torch.reconfigure(1, handles)
    total = one.all_reduce()
    one.channel.send(total)
    if one.rank == 0:
        one.channel.recv()
    # Its master is lost with it.
    with pytest.raises(dist.DistBackendError, match="peers were lost|pccl"):
        while True:
            one.all_reduce()
    with pytest.raises(dist.DistBackendError):
        one.all_reduce()  # and all later ones
    pccl.torch.reconfigure(2, handles[1:])
    one.dead = [0]  # type: ignore[attr-defined]
    return dist.get_rank(), dist.get_world_size(), one.all_reduce()


def test_the_first_process_dies(ranks: Callable[..., list[Peer]]) -> None:
    peers = ranks(lose_the_first)
    assert [peer.hear() for peer in peers] == [6.0] * 3
    peers[0].kill()
    assert results(peers[1:]) == [(0, 2, 3.0), (1, 2, 3.0)]


def fail_and_retry(one: Rank) -> Any:
    handles = one.handles("all")
    pccl.torch.reconfigure(1, handles)
    # Rank 2 does not come: the others fail, and the group of three is as before.
    if one.rank < 2:
        with pytest.raises(dist.DistBackendError, match="reconfigure"):
            pccl.torch.reconfigure(2, [handles[0], handles[1], "pccl/127.0.0.1/1/nobody"], timeout=timedelta(seconds=1))
    assert dist.get_world_size() == 3 and dist.get_rank() == one.rank
    before = one.all_reduce()
    # The number of a former attempt: refused in all processes, and the group is as before.
    with pytest.raises(dist.DistBackendError, match="already used"):
        pccl.torch.reconfigure(1, handles)
    again = one.all_reduce()
    pccl.torch.reconfigure(3, handles)
    return before, again, one.all_reduce()


def test_an_attempt_that_fails_changes_nothing(ranks: Callable[..., list[Peer]]) -> None:
    assert results(ranks(fail_and_retry)) == [(6.0, 6.0, 6.0)] * 3


def the_first_does_not_come(one: Rank) -> Any:
    handles = one.handles("all")
    pccl.torch.reconfigure(1, handles)
    if one.rank > 0:
        with pytest.raises(dist.DistBackendError, match="rank 0 of the new group .* did not come"):
            pccl.torch.reconfigure(2, handles, timeout=timedelta(seconds=1))
    before = one.all_reduce()
    pccl.torch.reconfigure(3, handles)
    return before, one.all_reduce()


def test_the_first_does_not_come(ranks: Callable[..., list[Peer]]) -> None:
    assert results(ranks(the_first_does_not_come)) == [(6.0, 6.0)] * 3


def after_abort(one: Rank) -> Any:
    handles = one.handles("all")
    pccl.torch.reconfigure(1, handles)
    one.all_reduce()
    one.group.abort()
    with pytest.raises(dist.DistBackendError):
        one.all_reduce()
    pccl.torch.reconfigure(2, handles)
    return one.all_reduce()


def test_after_an_abort(ranks: Callable[..., list[Peer]]) -> None:
    assert results(ranks(after_abort)) == [6.0] * 3


def train(one: Rank) -> Any:
    """DDP over three, then over two, then over three processes, on the same process group."""
    handles = one.handles("all")
    torch.manual_seed(one.rank)
    model = torch.nn.Linear(4, 2)
    for uuid, ranks_ in enumerate(([0, 1, 2], [1, 2], [2, 0, 1])):
        if one.rank in ranks_:
            pccl.torch.reconfigure(uuid, [handles[rank] for rank in ranks_])
            wrapped = DistributedDataParallel(model)  # broadcasts the parameters of the new rank 0
            for _ in range(2):
                model.zero_grad()
                wrapped(torch.full((2, 4), float(one.rank))).square().mean().backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).numpy()


def test_ddp_on_a_group_that_changes(ranks: Callable[..., list[Peer]]) -> None:
    first, *others = results(ranks(train))
    for other in others:
        assert (first == other).all()


def begin_with_pccl(one: Rank) -> Any:
    before = one.all_reduce()
    handles = one.handles("all")
    if one.rank < 2:
        pccl.torch.reconfigure(1, handles[:2])
        return before, one.all_reduce()
    return before, None


def test_a_group_that_the_master_has_gathered(ranks: Callable[..., list[Peer]], master: str) -> None:
    peers = ranks(begin_with_pccl, f"pccl://{master}")
    assert results(peers) == [(6.0, 3.0), (6.0, 3.0), (6.0, None)]


def wrong_arguments(one: Rank) -> None:
    own = pccl.torch.get_reconfigure_handle()
    for handles in ([], ["pccl/127.0.0.1/1/other"], [own, own]):
        with pytest.raises(ValueError, match="handles must have that of this process"):
            pccl.torch.reconfigure(1, handles)
    with pytest.raises(ValueError, match="is no handle"):
        pccl.torch.reconfigure(1, ["nonsense", own])
    plain = pccl.torch.ProcessGroupPCCL(None, 0, 1, timedelta(seconds=1), owns_run=True)
    assert not pccl.torch.supports_reconfigure(plain)
    with pytest.raises(ValueError, match="enable_reconfigure=True"):
        pccl.torch.get_reconfigure_handle(plain)
    with pytest.raises(ValueError, match="enable_reconfigure=True"):
        pccl.torch.reconfigure(1, [own], group=plain)


def test_wrong_arguments(ranks: Callable[..., list[Peer]]) -> None:
    results(ranks(wrong_arguments))
