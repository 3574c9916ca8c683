"""DiLoCo in nodes of two processes: DDP within the node, and rank 0 in the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import pccl
import torch.distributed as dist
from diloco_trainee import Trainee, vector
from torch.nn.parallel import DistributedDataParallel
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]
MODES: dict[str, dict[str, Any]] = {
    "sync": {"H": 4},
    "one_step_behind": {"H": 4, "overlap": True},
    "streaming": {"H": 6, "fragments": 3, "overlap": True, "delay": 1, "quantize": "int8"},
}


def in_node(
    channel: Channel, master: str, port: int, rank: int, index: int, options: dict[str, Any], last_step: int, late: bool
) -> Any:
    """``index`` is that of the process among those of all nodes, and chooses its data."""
    from pccl.diloco import DiLoCo

    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    trainee = Trainee(index)
    model = DistributedDataParallel(trainee.model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    communicator = pccl.Communicator(master) if rank == 0 else None
    rejected: list[int] = []

    def note(event: Any) -> None:
        if event.kind == "rejected":
            rejected.append(event.inner_step)

    spoiled, awaits = options.pop("spoiled", None), options.pop("awaits", False)
    diloco = DiLoCo(model, optimizer, communicator, process_group=dist.group.WORLD, on_event=note, **options)
    if late:
        channel.send("ready")
        channel.recv()
    steps = []
    with diloco:
        while diloco.inner_step < last_step:
            optimizer.zero_grad()
            draw = torch.Generator().manual_seed(1000 * index + diloco.inner_step)
            points = torch.randn(8, 6, generator=draw)
            ((model(points) - points[:, :3].sin()) ** 2).mean().backward()
            if diloco.inner_step == spoiled and index < 2:
                next(iter(trainee.model.parameters())).grad.fill_(float("nan"))
            diloco.step()
            steps.append((diloco.inner_step, diloco.outer_step, diloco.batches))
            if not late and diloco.inner_step == options["H"]:
                channel.send("trained a round")
                while awaits and communicator is not None and not communicator.are_peers_pending():
                    pass
                dist.barrier()
    assert diloco.world == 2
    dist.destroy_process_group()
    if communicator is not None:
        communicator.close()
    return steps, vector(trainee.model).detach().numpy(), rejected


def start_nodes(start: Start, function: Any, master: str, late: bool, *arguments: Any) -> list[Peer]:  # noqa: F811
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)]
    start.stores = stores  # type: ignore[attr-defined] (they must live as long as the processes)
    return [
        start(function, master, stores[node].port, rank, 2 * node + rank, *arguments, late and node == 1)
        for node in range(2)
        for rank in range(2)
    ]


@pytest.mark.parametrize("mode", MODES)
def test_all_processes_of_all_nodes_end_with_the_same_parameters(start: Start, master: str, mode: str) -> None:  # noqa: F811
    options = MODES[mode] | {"min_peers": 2}
    peers = start_nodes(start, in_node, master, False, options, 4 * options["H"])
    results = [peer.result() for peer in peers]
    for steps, parameters, _ in results:
        assert steps == results[0][0] and steps[-1][0] == 4 * options["H"]
        numpy.testing.assert_array_equal(parameters, results[0][1])
    # Two nodes count as two peers.
    fragments, rounds = options.get("fragments", 1), 4 if options.get("delay", 0) < options["H"] else 3
    assert 3 * fragments <= results[0][0][-1][1] <= 4 * fragments
    assert results[0][0][-1][2] <= 2 * rounds * options["H"]


def test_a_node_recovers_from_numbers_that_are_not_finite(start: Start, master: str) -> None:  # noqa: F811
    options = {"H": 4, "min_peers": 2, "spoiled": 5}
    results = [peer.result() for peer in start_nodes(start, in_node, master, False, options, 24)]
    for _, parameters, _ in results:
        assert numpy.isfinite(parameters).all()
        numpy.testing.assert_array_equal(parameters, results[0][1])
    # The moments of both processes are clean again: later rounds count.
    assert [rejected for _, _, rejected in results] == [[8], [], [], []]


def test_a_node_that_comes_late(start: Start, master: str) -> None:  # noqa: F811
    options = {"H": 4, "awaits": True}
    peers = start_nodes(start, in_node, master, True, options, 40)
    for peer in peers:
        assert peer.hear() in ("ready", "trained a round")
    for peer in peers[2:]:
        peer.tell("go")
    results = [peer.result() for peer in peers]
    begins = [steps[0][0] for steps, *_ in results]
    assert begins == [1, 1, 9, 9]  # it is admitted at the end of the second round
    for steps, parameters, _ in results:
        assert steps[-1] == results[0][0][-1]
        numpy.testing.assert_array_equal(parameters, results[0][1])


def failing_node(channel: Channel, master: str, port: int, rank: int, *_: Any) -> Any:
    from pccl.diloco import DiLoCo

    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    trainee = Trainee(rank)
    with pytest.raises(ValueError, match="rank 0|comm is None"):
        wrong = None if rank == 0 else pccl.Communicator(master)
        DiLoCo(trainee.model, trainee.optimizer, wrong, process_group=dist.group.WORLD)
    communicator = pccl.Communicator(master) if rank == 0 else None
    diloco = DiLoCo(trainee.model, trainee.optimizer, communicator, H=2, process_group=dist.group.WORLD)
    if rank != 0:
        with pytest.raises(RuntimeError, match="rank 0"):
            diloco.state_dict()
    diloco.join()
    diloco.advance()
    if communicator is not None:
        communicator.close()
    with pytest.raises(Exception) as failure:
        diloco.advance()
    dist.destroy_process_group()
    return str(failure.value)


def test_an_error_of_rank_0_is_one_of_its_node(start: Start, master: str) -> None:  # noqa: F811
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    peers = [start(failing_node, master, store.port, rank) for rank in range(2)]
    first, second = (peer.result() for peer in peers)
    assert "closed" in first and "rank 0 of this node could not go on" in second


def test_a_checkpoint_of_rank_0_is_that_of_its_node(start: Start, master: str) -> None:  # noqa: F811
    from pccl.diloco import DiLoCo

    trainee = Trainee(0, model_seed=7)
    with pccl.Communicator("127.0.0.1:1") as communicator:
        saved = DiLoCo(trainee.model, trainee.optimizer, communicator, H=4).state_dict()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    peers = [start(resumed_node, master, store.port, rank, saved) for rank in range(2)]
    for peer in peers:
        numpy.testing.assert_array_equal(peer.result(), vector(trainee.model).detach().numpy())


def resumed_node(channel: Channel, master: str, port: int, rank: int, saved: Any) -> Any:
    from pccl.diloco import DiLoCo

    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    trainee = Trainee(rank)
    communicator = pccl.Communicator(master) if rank == 0 else None
    diloco = DiLoCo(trainee.model, trainee.optimizer, communicator, H=4, process_group=dist.group.WORLD)
    if rank == 0:
        diloco.load_state_dict(saved)
    diloco.join()
    dist.destroy_process_group()
    return vector(trainee.model).detach().numpy()


def node_without_follower(channel: Channel, master: str, port: int, rank: int) -> Any:
    from pccl.diloco import DiLoCo

    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    trainee = Trainee(rank)
    communicator = pccl.Communicator(master) if rank == 0 else None
    diloco = DiLoCo(trainee.model, trainee.optimizer, communicator, H=1, process_group=dist.group.WORLD)
    diloco.join()
    if rank != 0:
        os._exit(1)
    with pytest.raises(RuntimeError):
        while True:
            diloco.advance()
    # It does not hold up the others of the run.
    assert communicator is not None and communicator.global_world_size == 1
    with pytest.raises(pccl.PCCLUsageError):
        communicator.are_peers_pending()
    return "left"


def test_rank_0_leaves_the_run_when_its_node_breaks(start: Start, master: str) -> None:  # noqa: F811
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    leader, _ = (start(node_without_follower, master, store.port, rank) for rank in range(2))
    assert leader.result() == "left"
