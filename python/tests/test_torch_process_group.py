"""Tests of the torch.distributed backend: training on top of it, ranks and masters, failures. Its collectives are
tested in test_torch_collectives.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import pccl
import torch.distributed as dist
from conftest import Script, wait_until
from torch_peers import Channel, Peer, in_group, run_ranks, start  # noqa: F401

# torch had other names for them before 2.13.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Run = Callable[..., list[Any]]
Start = Callable[..., Peer]


def test_the_package_alone_does_not_import_torch(script: Callable[..., Script]) -> None:
    status, output, errors = script("import sys, pccl; print('torch' in sys.modules)").end()
    assert (status, output) == (0, "False\n"), errors


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
    assert "start another master for each job" in start(refused, master + "?peer_group=1", 0, 1).result()
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


def alone_twice(_: Channel, master: str, ending: str) -> list[Any]:
    import pccl.torch

    results, groups = [], []
    for attempt in range(2):
        dist.init_process_group(
            "pccl",
            init_method=f"pccl://{master}",
            world_size=1,
            timeout=timedelta(seconds=30),
            pg_options=pccl.torch.ProcessGroupPCCL.Options(enable_reconfigure=ending == "reconfigure"),
        )
        group = dist.distributed_c10d._get_default_group()
        total, copied = torch.full((2,), attempt + 1.0), torch.zeros(2)
        dist.all_reduce(total)
        all_gather_single(copied, total)
        if ending == "abort":
            group.abort()
        elif ending == "reconfigure":
            pccl.torch.reconfigure(attempt, [pccl.torch.get_reconfigure_handle()])
            assert dist.get_world_size() == 1
        dist.barrier()
        if ending == "destroy":
            dist.destroy_process_group()
        else:
            # The group stays alive, so that only the tested call can leave the run.
            dist.distributed_c10d._update_default_pg(None)
            groups.append(group)
        results.append((total.tolist(), copied.tolist()))
    return results


@pytest.mark.parametrize("ending", ["destroy", "abort", "reconfigure"])
def test_a_single_rank_leaves_its_run(start: Start, master: str, ending: str) -> None:
    assert start(alone_twice, master, ending).result() == [([1.0] * 2, [1.0] * 2), ([2.0] * 2, [2.0] * 2)]


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


def forget_a_work(rank: int) -> list[float]:
    group = dist.distributed_c10d._get_default_group()
    group.set_timeout(timedelta(seconds=1))
    tensor = torch.ones(3)
    kept = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(torch.ones(1), async_op=True)  # dropped
    assert kept is not None
    watchdog = kept._run._watchdog
    wait_until(lambda: not watchdog._deadlines, "the time-out is over")
    assert kept.wait()
    dist.barrier()
    return tensor.tolist()


def test_a_work_for_which_nobody_waits_in_time_ends_nothing(run_ranks: Run) -> None:  # noqa: F811
    assert run_ranks(2, forget_a_work) == [[2.0] * 3] * 2


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
    # Nothing can be received into a view that is only negated or conjugated when it is read. It may be sent.
    source, negated = torch.ones(2), torch._neg_view(torch.ones(2))
    for receive in (
        lambda: dist.broadcast(negated, src=1 - rank),
        lambda: dist.recv(negated, src=1 - rank),
        lambda: dist.scatter(negated, [source, source] if rank == 0 else None, src=0),
        lambda: dist.all_gather([negated, source], source),
        lambda: all_gather_single(torch._neg_view(torch.zeros(4)), source),
        lambda: dist.all_to_all([negated, source], [source, source]),
        lambda: dist.all_to_all_single(negated, source),
    ):
        with pytest.raises(ValueError, match=r"negated view; use tensor.resolve_neg\(\), and copy the result back"):
            receive()
    with pytest.raises(ValueError, match=r"conjugated view; use tensor.resolve_conj\(\), and copy the result back"):
        # torch itself refuses such a view in most calls.
        dist.distributed_c10d._get_default_group().recv([torch.ones(2, dtype=torch.complex64).conj()], 1 - rank, 0)
    gathered = torch.zeros(4)
    all_gather_single(gathered, negated)
    assert gathered.tolist() == [-1.0] * 4
    with pytest.raises(ValueError, match="5 elements where 8 are needed"):
        all_gather_single(torch.ones(5), tensor)
    # The group still works after these errors.
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 4


def test_what_cannot_be_done_says_what_to_use(run_ranks: Run) -> None:
    run_ranks(2, use_what_is_not_there)
