"""The communication hook of DistributedDataParallel, under churn."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import pccl
import torch.distributed as dist
from conftest import admit
from dying import Dying
from torch.nn.parallel import DistributedDataParallel
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]


def model(width: int = 32) -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Linear(width, 3)
    )


def batch(index: int) -> Any:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(index))


def gradients(module: Any) -> list[Any]:
    return [parameter.grad.cpu().numpy().copy() for parameter in module.parameters()]


def own_gradients(index: int, width: int = 32) -> list[Any]:
    module = model(width)
    module(batch(index)).square().sum().backward()
    return gradients(module)


def assert_averages(found: list[Any], indices: list[int], tolerance: float = 1e-5) -> None:
    for gradient, *parts in zip(found, *map(own_gradients, indices), strict=True):
        numpy.testing.assert_allclose(gradient, sum(parts) / len(parts), rtol=tolerance, atol=tolerance)


class Trainer:
    """A peer with DDP of world size 1 and several small buckets."""

    def __init__(
        self,
        master: str,
        quantize: str | None = None,
        dtype: Any = torch.float32,
        width: int = 32,
        kind: type[pccl.Communicator] = pccl.Communicator,
        hooked: bool = True,
        device: str = "cpu",
    ) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.communicator = kind(master)
        self.communicator.connect()
        self.ddp = DistributedDataParallel(model(width).to(device, dtype), bucket_cap_mb=1e-3)
        if hooked:
            self.hook(None, quantize)

    def hook(self, state: Any, quantize: str | None = None) -> None:
        import pccl.torch

        self.ddp.register_comm_hook(state, pccl.torch.ddp_hook(self.communicator, quantize))

    def step(self, index: int) -> list[Any]:
        self.ddp.zero_grad()
        self.ddp(batch(index).to(next(self.ddp.parameters()))).square().sum().backward()
        return gradients(self.ddp)

    def end(self) -> None:
        self.communicator.close()
        dist.destroy_process_group()


def train(channel: Channel, master: str, index: int, world: int, quantize: str | None, device: str = "cpu") -> Any:
    trainer = Trainer(master, quantize, device=device)
    admit(trainer.communicator, world)
    steps = [trainer.step(index) for _ in range(3)]
    stats = trainer.communicator.stats()
    trainer.end()
    return steps, stats


def test_gradients_are_the_average_and_equal_on_all(start: Start, master: str) -> None:
    peers = [start(train, master, index, 3, None) for index in range(3)]
    results = [peer.result()[0] for peer in peers]
    for step in range(3):
        assert_averages(results[0][step], [0, 1, 2])
        for result in results[1:]:
            for ours, theirs in zip(results[0][step], result[step], strict=True):
                numpy.testing.assert_array_equal(ours, theirs)


def test_quantized_gradients_are_near_the_average_and_equal_on_all(start: Start, master: str) -> None:
    peers = [start(train, master, index, 2, "int8") for index in range(2)]
    results = [peer.result()[0][0] for peer in peers]
    largest = max(abs(gradient).max() for gradient in own_gradients(0) + own_gradients(1))
    assert_averages(results[0], [0, 1], tolerance=2 * largest / 255)
    assert any((a != b).any() for a, b in zip(results[0], own_gradients(0), strict=True))
    for ours, theirs in zip(*results, strict=True):
        numpy.testing.assert_array_equal(ours, theirs)


def interrupted(channel: Channel, master: str) -> tuple[bool, str, dict[str, Any]]:
    trainer = Trainer(master)
    admit(trainer.communicator, 2)

    def stop(*_: object) -> None:
        if trainer.communicator.stats()["all_reduce"]["launched"] != 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    raised = False
    try:
        trainer.step(0)
    except BaseException:
        raised = True
    state, stats = trainer.communicator.state, trainer.communicator.stats()
    trainer.end()
    return raised, state, stats["all_reduce"]


def idle(channel: Channel, master: str) -> None:
    trainer = Trainer(master)
    admit(trainer.communicator, 2)
    channel.recv()
    trainer.end()


def test_an_interrupted_peer_leaves_and_nothing_uses_its_gradients(start: Start, master: str) -> None:
    first, second = start(interrupted, master), start(idle, master)
    raised, state, counts = first.result()
    assert raised
    assert state == "lost"
    assert counts["running"] == counts["not_awaited"] == 0, counts
    second.tell("end")
    second.result()


def veteran(channel: Channel, master: str) -> list[Any]:
    trainer = Trainer(master)
    for _ in range(3):  # DDP reorders its buckets after the first
        trainer.step(0)
    channel.send("trained")
    admit(trainer.communicator, 2)
    found = trainer.step(0)
    trainer.end()
    return found


def newcomer(channel: Channel, master: str) -> list[Any]:
    trainer = Trainer(master)
    found = trainer.step(1)
    trainer.end()
    return found


def test_a_newcomer_meets_one_whose_buckets_are_sorted_otherwise(start: Start, master: str) -> None:
    first = start(veteran, master)
    assert first.hear() == "trained"
    second = start(newcomer, master)
    ours, theirs = first.result(), second.result()
    assert_averages(ours, [0, 1])
    for a, b in zip(ours, theirs, strict=True):
        numpy.testing.assert_array_equal(a, b)


def hooked_late(channel: Channel, master: str, steps: int) -> list[Any]:
    trainer = Trainer(master, hooked=False)
    for _ in range(steps):
        trainer.step(0)
    trainer.hook(trainer.ddp)
    admit(trainer.communicator, 2)
    found = trainer.step(steps)
    trainer.end()
    return found


def test_with_the_model_as_state_the_hook_may_come_late(start: Start, master: str) -> None:
    peers = [start(hooked_late, master, steps) for steps in (0, 2)]
    for found in [peer.result() for peer in peers]:
        assert_averages(found, [0, 2])


def survive(channel: Channel, master: str, index: int, victim: int) -> list[Any]:
    trainer = Trainer(master)
    admit(trainer.communicator, 3)
    trainer.step(index)
    if index == victim:
        # Dies in the middle of its backward pass, when some of its gradients are in flight.
        parameters = list(trainer.ddp.parameters())
        parameters[2].register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    found = trainer.step(index)
    after = trainer.step(index)
    trainer.end()
    return [found, after]


def test_the_others_go_on_when_a_peer_dies_in_its_backward_pass(start: Start, master: str) -> None:
    peers = [start(survive, master, index, 2) for index in range(3)]
    (ours, ours_after), (theirs, theirs_after) = (peer.result() for peer in peers[:2])
    for a, b in zip(ours + ours_after, theirs + theirs_after, strict=True):
        numpy.testing.assert_array_equal(a, b)
    assert_averages(ours_after, [0, 1])
    # Each gradient is the average of all three peers, or of the two that remain.
    for gradient, *parts in zip(ours, *map(own_gradients, range(3)), strict=True):
        candidates = [sum(parts) / 3, sum(parts[:2]) / 2]
        assert any(numpy.allclose(gradient, candidate, rtol=1e-5, atol=1e-5) for candidate in candidates)


WIDE = 1024  # 4 MB of weights, so that their reduction takes a while


def survive_a_reduction(channel: Channel, master: str, index: int, victim: int) -> Any:
    trainer = Trainer(master, width=WIDE, kind=Dying if index == victim else pccl.Communicator)
    admit(trainer.communicator, 3)
    found = trainer.step(index)
    aborted = trainer.communicator.stats()["all_reduce"]["aborted"]
    trainer.end()
    return found, aborted


def test_the_others_repeat_what_fails_with_a_peer(start: Start, master: str) -> None:
    peers = [start(survive_a_reduction, master, index, 2) for index in range(3)]
    (ours, aborted), (theirs, _) = (peer.result() for peer in peers[:2])
    assert aborted > 0
    for a, b in zip(ours, theirs, strict=True):
        numpy.testing.assert_array_equal(a, b)
    wide = max(range(len(ours)), key=lambda place: ours[place].size)  # the one in whose reduction it died
    parts = [own_gradients(index, WIDE)[wide] for index in range(2)]
    numpy.testing.assert_allclose(ours[wide], sum(parts) / 2, rtol=1e-5, atol=1e-4)


def alone(channel: Channel, master: str) -> None:
    trainer = Trainer(master)
    assert_averages(trainer.step(0), [0])
    trainer.communicator.abort()
    assert_averages(trainer.step(0), [0])
    with pytest.raises(pccl.PCCLTopologyError):
        trainer.communicator.update_topology()
    trainer.communicator.connect()
    assert_averages(trainer.step(0), [0])
    trainer.end()


def test_alone_or_out_of_the_run_it_keeps_its_own_gradients(start: Start, master: str) -> None:
    start(alone, master).result()


def wrong_types(channel: Channel, master: str, index: int) -> str:
    trainer = Trainer(master, "int8", torch.bfloat16)
    admit(trainer.communicator, 2)
    with pytest.raises((ValueError, RuntimeError)) as failure:
        trainer.step(index)
    trainer.end()
    return str(failure.value)


def test_what_cannot_be_quantized_says_so(start: Start, master: str) -> None:
    peers = [start(wrong_types, master, index) for index in range(2)]
    for peer in peers:
        assert "works on float32 and float64 gradients, and one is torch.bfloat16" in peer.result()
    import pccl.torch

    with pytest.raises(ValueError, match="quantize is 'int4'; use None or 'int8'"):
        pccl.torch.ddp_hook(pccl.Communicator(master), "int4")


def in_node(channel: Channel, master: str, port: int, rank: int, index: int, fails: bool) -> Any:
    import pccl.torch

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    communicator = None
    with pytest.raises(ValueError, match="communicator"):
        pccl.torch.ddp_hook(None if rank == 0 else pccl.Communicator(master))
    if rank == 0:
        communicator = pccl.Communicator(master)
        communicator.connect()
        admit(communicator, 2)
    dist.barrier()
    ddp = DistributedDataParallel(model(), bucket_cap_mb=1e-3)
    ddp.register_comm_hook(ddp, pccl.torch.ddp_hook(communicator))
    for _ in range(2):
        ddp.zero_grad()
        ddp(batch(index)).square().sum().backward()
    found = gradients(ddp)
    text = ""
    if fails:
        if communicator is not None:
            communicator.close()
        with pytest.raises((RuntimeError, ValueError)) as failure:
            ddp(batch(index)).square().sum().backward()
        text = str(failure.value)
    dist.barrier()
    dist.destroy_process_group()
    return found, text


def test_nodes_of_several_processes(start: Start, master: str) -> None:
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)]
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    try:
        peers = [
            start(in_node_with_store, master, stores[node].port, rank, 2 * node + rank, node == 1)
            for node in range(2)
            for rank in range(2)
        ]
        results = [peer.result() for peer in peers]
    finally:
        del os.environ["TORCHELASTIC_USE_AGENT_STORE"]
    assert_averages(results[0][0], [0, 1, 2, 3])
    for found, _ in results[1:]:
        for a, b in zip(results[0][0], found, strict=True):
            numpy.testing.assert_array_equal(a, b)
    # The communicator of the second node was closed, so both of its processes raise an error.
    assert "closed" in results[2][1] and "rank 0 of this node could not average" in results[3][1]


def in_node_with_store(channel: Channel, *arguments: Any) -> Any:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    return in_node(channel, *arguments)


class Counting(pccl.Communicator):
    """Counts the reductions that are launched, and remembers their tags."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.tags: list[int] = []

    def all_reduce_async(self, *arguments: Any, **options: Any) -> Any:
        self.tags.append(options["tag"])
        return super().all_reduce_async(*arguments, **options)


def many_small(channel: Channel, master: str, index: int, with_model: bool) -> Any:
    """Parameters of two types."""
    import pccl.torch

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(1)
    layers = [torch.nn.Linear(8, 8) for _ in range(40)]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(8, 8).double())
    module[40].register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    with Counting(master) as communicator:
        communicator.connect()
        admit(communicator, 2)
        ddp = DistributedDataParallel(module, bucket_cap_mb=1e-3, find_unused_parameters=True)
        ddp.register_comm_hook(ddp if with_model else None, pccl.torch.ddp_hook(communicator))
        found = []
        for step in range(3):
            ddp.zero_grad()
            torch.manual_seed(10 * index + step)
            ddp(torch.randn(4, 8)).square().sum().backward()
            found.append(gradients(ddp))
    return found, communicator.tags


@pytest.mark.parametrize("with_model", [True, False])
def test_gradients_of_a_type_are_reduced_together(start: Start, master: str, with_model: bool) -> None:
    results = [peer.result() for peer in [start(many_small, master, index, with_model) for index in range(2)]]
    (ours, our_tags), (theirs, their_tags) = results
    # One reduction for each type, in each of three steps, instead of one for each of 82 gradients.
    assert len(our_tags) == 6 and sorted(our_tags) == sorted(their_tags) and len(set(our_tags)) == 2
    for step in range(3):
        for a, b in zip(ours[step], theirs[step], strict=True):
            numpy.testing.assert_array_equal(a, b)
            assert a.any()


def test_buckets_follow_from_the_parameters_alone() -> None:
    from pccl.torch._ddp import _PARCEL_BYTES_MAX, _PARCEL_BYTES_MIN, _parcels_of

    def sizes(*elements: int, dtypes: tuple[Any, ...] = (torch.float32,)) -> list[list[int]]:
        parameters = [
            torch.empty(count, dtype=dtypes[place % len(dtypes)], device="meta")
            for place, count in enumerate(elements)
        ]
        parcels = _parcels_of(parameters, 1)
        assert len({parcel.tag for parcel in parcels}) == len(parcels)
        return [[one.numel() for one in parcel.parameters] for parcel in parcels]

    least, most = _PARCEL_BYTES_MIN // 4, _PARCEL_BYTES_MAX // 4
    assert sizes(1, 2, 3) == [[1, 2, 3]]
    assert sizes(1, least, 2, least - 2, 5) == [[1, least], [2, least - 2], [5]]
    # Only a single gradient is larger than a bucket may be.
    assert sizes(1, most - 1, 2) == [[1, most - 1], [2]] and sizes(1, most, 2) == [[1], [most], [2]]
    assert sizes(3 * most, 1) == [[3 * most], [1]]
    # A bucket holds one type, and does not wait for gradients that come much later in the backward pass.
    both = (torch.float32, torch.float64)
    assert sizes(1, 2, 3, 4, dtypes=both) == [[1, 3], [2, 4]]
    assert sizes(1, least, 3, least, 5, dtypes=both) == [[1, 3, 5], [least], [least]]
    assert sizes(1, *[least] * 5, 7, dtypes=(torch.float32, *[torch.float64] * 5))[0] == [1]
    names = [torch.empty(1000) for _ in range(1000)]
    assert len(_parcels_of(names, 512)) == 1


def test_gradients_that_lie_in_order_are_reduced_where_they_are() -> None:
    from pccl.torch._ddp import _parcels_of

    parameters = [torch.empty(count) for count in (512, 3, 5)]
    for align, is_copied in ((1, False), (512, True)):
        bucket = torch.arange(520.0)
        gradients = bucket.split([512, 3, 5])
        (parcel,) = _parcels_of(parameters, align)
        parcel.gradients = {id(one): gradient for one, gradient in zip(parameters, gradients, strict=True)}
        packed = parcel.pack()
        assert (packed.data_ptr() != bucket.data_ptr()) == is_copied
        packed.mul_(2)
        parcel.unpack()
        assert torch.equal(bucket, 2 * torch.arange(520.0))
    # Quantized, each begins a block of its own.
    assert packed.numel() == 1024 + 5 and torch.equal(packed[512:515], bucket[512:515])
    # DDP has its buckets in another order.
    (parcel,) = _parcels_of(parameters, 1)
    order = torch.arange(520.0).split([5, 3, 512])[::-1]
    parcel.gradients = {id(one): gradient for one, gradient in zip(parameters, order, strict=True)}
    assert torch.equal(parcel.pack(), torch.cat(list(order)))
