"""What torch builds on process groups, with this backend: uneven inputs, torch.compile, the profiler, checkpoints."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_peers import Channel, Peer, in_group, run_ranks, start  # noqa: F401

Run = Callable[..., list[Any]]


def model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
    )


def batch(index: int) -> Any:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(index))


def train(network: Any, optimizer: Any, *batches: int) -> None:
    for index in batches:
        optimizer.zero_grad()
        network(batch(index)).square().mean().backward()
        gc.collect()
        optimizer.step()


def content(network: Any) -> list[Any]:
    return [parameter.detach().tolist() for parameter in network.parameters()]


# ---- uneven inputs


def with_uneven_inputs(rank: int, divides_by_initial: bool) -> list[Any]:
    plain = torch.nn.Linear(6, 2)
    torch.nn.init.constant_(plain.weight, 0.25)
    torch.nn.init.zeros_(plain.bias)
    network = DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    with network.join(divide_by_initial_world_size=divides_by_initial):
        train(network, optimizer, *((0, 2, 3) if rank == 0 else (1,)))
    return content(plain)


@pytest.mark.parametrize("divides_by_initial", [True, False])
def test_ranks_with_fewer_inputs_join(run_ranks: Run, divides_by_initial: bool) -> None:  # noqa: F811
    first, second = run_ranks(2, with_uneven_inputs, divides_by_initial)
    plain = torch.nn.Linear(6, 2)
    torch.nn.init.constant_(plain.weight, 0.25)
    torch.nn.init.zeros_(plain.bias)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batches in ((0, 1), (2,), (3,)):
        optimizer.zero_grad()
        share = 2 if divides_by_initial else len(batches)
        for index in batches:
            (plain(batch(index)).square().mean() / share).backward()
        optimizer.step()
    for ours, theirs, alone in zip(first, second, content(plain), strict=True):
        assert ours == theirs
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(alone), rtol=1e-5, atol=1e-6)


# ---- torch.compile


def compiled_model(rank: int) -> list[Any]:
    network = torch.compile(DistributedDataParallel(model()), backend="eager")
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), 2 * rank, 2 * rank + 1)
    return content(network)


def plain_model(rank: int) -> list[Any]:
    network = DistributedDataParallel(model())
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), 2 * rank, 2 * rank + 1)
    return content(network)


@pytest.mark.filterwarnings("ignore")  # warnings of torch about itself
def test_a_compiled_model_with_buffers_trains_like_a_plain_one(run_ranks: Run) -> None:  # noqa: F811
    compiled, plain = run_ranks(2, compiled_model), run_ranks(2, plain_model)
    assert compiled[0] == compiled[1]
    for ours, same in zip(compiled[0], plain[0], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(same))


def all_reduce(x: Any) -> Any:
    dist.all_reduce(x)
    return x


def waited_all_reduce(x: Any) -> Any:
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    return x


def broadcast(x: Any) -> Any:
    dist.broadcast(x, 1)
    return x


def reduce(x: Any) -> Any:
    dist.reduce(x, 0)
    return x if dist.get_rank() == 0 else x * 0 + 3


def all_gather(x: Any) -> Any:
    parts = [torch.empty(4), torch.empty(4)]
    dist.all_gather(parts, x)
    return parts[0] + parts[1]


def all_gather_single(x: Any) -> Any:
    whole = torch.empty(8)
    dist.all_gather_into_tensor(whole, x)
    return whole[:4] + whole[4:]


def reduce_scatter(x: Any) -> Any:
    part = torch.empty(2)
    dist.reduce_scatter(part, [x[:2].clone(), x[2:].clone()])
    return part


def reduce_scatter_single(x: Any) -> Any:
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, x)
    return part


def all_to_all_single(x: Any) -> Any:
    out = torch.empty(4)
    dist.all_to_all_single(out, x)
    return out[:2] + out[2:]


def barrier(x: Any) -> Any:
    dist.barrier()
    return x * 0 + 3


COLLECTIVES = [
    all_reduce,
    waited_all_reduce,
    broadcast,
    reduce,
    all_gather,
    all_gather_single,
    reduce_scatter,
    reduce_scatter_single,
    all_to_all_single,
    barrier,
]


def compiled_collectives(rank: int) -> dict[str, Any]:
    results = {}
    for function in COLLECTIVES:
        torch._dynamo.reset()

        def step(x: Any, function: Callable[[Any], Any] = function) -> Any:
            return function(x * 1) + 0

        results[function.__name__] = torch.compile(step, backend="eager")(torch.full((4,), rank + 1.0)).tolist()
    return results


@pytest.mark.filterwarnings("ignore")  # warnings of torch about itself
def test_collectives_in_compiled_functions(run_ranks: Run) -> None:  # noqa: F811
    for found in run_ranks(2, compiled_collectives):
        for name, values in found.items():
            assert set(values) == {2.0 if name == "broadcast" else 3.0}, name


# ---- the profiler


def profiled(rank: int) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
        dist.broadcast(torch.ones(3), 0)
        dist.barrier()
    dist.all_reduce(torch.ones(2))
    return [event.key for event in profile.key_averages()]


def test_collectives_are_in_a_profile(run_ranks: Run) -> None:  # noqa: F811
    for keys in run_ranks(2, profiled):
        for operation in ("all_reduce", "broadcast", "barrier"):
            assert f"pccl:{operation}" in keys and f"pccl:{operation}.wait" in keys, keys


# ---- checkpoints


def save_and_load(rank: int, folder: str) -> None:
    import torch.distributed.checkpoint as checkpoint

    saved = {"model": model().state_dict(), "own": torch.full((3,), 7.0)}
    for group in (None, dist.new_group()):
        future = checkpoint.async_save(saved, checkpoint_id=f"{folder}/{group is None}", process_group=group)
        if group is not None:
            dist.all_reduce(torch.ones(5))  # meanwhile
        future.result()
    folder += "/False"
    loaded = {"model": {name: torch.zeros_like(one) for name, one in saved["model"].items()}, "own": torch.zeros(3)}
    checkpoint.load(loaded, checkpoint_id=folder)
    assert loaded["own"].tolist() == [7.0] * 3
    for name, one in saved["model"].items():
        assert torch.equal(loaded["model"][name], one), name


@pytest.mark.filterwarnings("ignore")  # warnings of torch about itself
def test_asynchronous_distributed_checkpoints(run_ranks: Run, tmp_path: Path) -> None:  # noqa: F811
    run_ranks(2, save_and_load, str(tmp_path / "checkpoint"))


# ---- the program's default device


def with_default_device(channel: Channel, master: str, rank: int) -> list[float]:
    torch.set_default_device("meta")
    return in_group(channel, master, rank, 2, without_default_device)  # type: ignore[no-any-return]


def without_default_device(rank: int) -> list[float]:
    tensor = torch.full((3,), float(dist.get_rank() + 1), device="cpu")
    dist.barrier()
    dist.all_reduce(tensor)
    return tensor.tolist()  # type: ignore[no-any-return]


def test_a_default_device_does_not_matter(start: Callable[..., Peer], master: str) -> None:  # noqa: F811
    """A tensor on the meta device has no memory."""
    peers = [start(with_default_device, master, rank) for rank in (-1, 1)]
    assert [peer.result() for peer in peers] == [[3.0] * 3] * 2
