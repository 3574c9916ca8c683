"""DiLoCo with replicas of several processes that all take part in the run: FSDP2, HSDP, tensor parallelism, DDP."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")

import pccl
import pccl.torch
import torch.distributed as dist
from pccl.diloco import DiLoCo, SparseLoCo, TopK
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]
KINDS = {"fsdp": 2, "hsdp": 4, "tp": 2, "ddp": 2}
MODES: dict[str, dict[str, Any]] = {
    "sync": {"H": 4},
    "sync_int8": {"H": 4, "quantize": "int8"},
    "sync_ring": {"H": 4, "quantize": pccl.QuantizationOptions()},
    "one_step_behind_int8": {"H": 4, "overlap": True, "delay": 4, "quantize": "int8"},
    "streaming": {"H": 6, "fragments": 3, "overlap": True, "delay": 1},
    "streaming_by_module": {"H": 6, "fragments": [["0"], ["2", "3"]], "overlap": True, "quantize": "int8"},
    "eager": {"H": 4, "overlap": True, "eager": True},
    "sync_top_k": {"H": 4, "quantize": TopK(k=16, chunk=64)},
    "streaming_top_k": {"H": 6, "fragments": 3, "overlap": True, "quantize": TopK(k=16, chunk=64)},
}
DAILY = [
    ("fsdp", "streaming_by_module"),
    ("fsdp", "streaming_top_k"),
    ("hsdp", "sync_int8"),
    ("tp", "eager"),
    ("ddp", "streaming"),
]


def make(kind: str, size: int, seed: int) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 4), torch.nn.LayerNorm(4))
    if kind == "ddp":
        return DistributedDataParallel(model)
    if kind == "tp":
        # The bias of the second layer is a DTensor that all processes hold, and the norm is a plain module.
        mesh = init_device_mesh("cpu", (size,))
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    mesh = (
        init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
        if kind == "hsdp"
        else init_device_mesh("cpu", (size,))
    )
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model: Any) -> Any:
    """All parameters of a model, put together from their parts."""
    parts = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in model.parameters()]
    return torch.cat([one.detach().reshape(-1) for one in parts]).numpy()


class Trainee:
    """One process of a replica."""

    def __init__(
        self, master: str, port: int, kind: str, replica: int, rank: int, options: dict[str, Any], **settings: Any
    ) -> None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store is served by the test
        self.size = KINDS[kind]
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=self.size)
        self.model = make(kind, self.size, replica)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.comm = pccl.torch.replica_communicator(master, **settings)
        self.hashes: list[tuple[int, str]] = []
        self.seen: list[str] = []
        # In a replica with tensor parallelism all processes have the same data.
        self._draw = torch.Generator().manual_seed(10 * replica + (0 if kind == "tp" else rank))
        sparse = {"class": SparseLoCo} if options.get("sparse") else {}
        options = {name: value for name, value in options.items() if name != "sparse"}
        self.diloco: DiLoCo = sparse.get("class", DiLoCo)(
            self.model, self.optimizer, self.comm, process_group=dist.group.WORLD, on_event=self._note, **options
        )

    def _note(self, event: Any) -> None:
        self.seen.append(event.kind)
        if event.kind == "outer_step":
            momentum = self.diloco.momentum
            content = [self.diloco.outer.numpy().tobytes()] + ([] if momentum is None else [momentum.numpy().tobytes()])
            self.hashes.append((event.outer_step, hashlib.sha256(b"".join(content)).hexdigest()))

    def step(self, samples: int | None = None) -> None:
        points = torch.randn(8, 6, generator=self._draw)
        self.optimizer.zero_grad()
        ((self.model(points) - points[:, :4].sin()) ** 2).mean().backward()
        self.diloco.step(samples=samples)

    def leave(self) -> None:
        """All processes are done before the first one leaves."""
        dist.barrier()
        self.comm.close()
        dist.destroy_process_group()


def start_replica(
    start: Start, function: Any, master: str, kind: str, replica: int, *arguments: Any  # noqa: F811
) -> list[Peer]:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start.__dict__.setdefault("stores", []).append(store)  # it must live as long as the processes
    return [start(function, master, store.port, kind, replica, rank, *arguments) for rank in range(KINDS[kind])]


def train(
    _: Channel, master: str, port: int, kind: str, replica: int, rank: int, options: dict[str, Any], last_step: int
) -> Any:
    trainee = Trainee(master, port, kind, replica, rank, {"min_peers": 2, **options})
    with trainee.diloco as diloco:
        while diloco.inner_step < last_step:
            trainee.step()
            assert diloco.world == 2
    result = trainee.hashes, whole(trainee.model), (diloco.inner_step, diloco.outer_step, diloco.batches)
    trainee.leave()
    return result


@pytest.mark.parametrize(
    "kind,mode",
    [
        pytest.param(kind, mode, marks=[] if (kind, mode) in DAILY else [pytest.mark.nightly])
        for kind in KINDS
        for mode in MODES
    ],
)
def test_two_replicas(start: Start, master: str, kind: str, mode: str) -> None:  # noqa: F811
    last_step = 4 * MODES[mode]["H"]
    replicas = [start_replica(start, train, master, kind, one, MODES[mode], last_step) for one in range(2)]
    results = [[peer.result() for peer in peers] for peers in replicas]
    for (hashes, _, _), (others, _, _) in zip(*results, strict=True):
        assert hashes == others and len(hashes) >= 3  # each part, after each outer step
    first = results[0][0]
    for _, parameters, position in results[0] + results[1]:
        numpy.testing.assert_array_equal(parameters, first[1])
        assert position == first[2]
    assert first[2][0] == last_step


def one_round(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    options = {"min_peers": 2, "H": 4, "outer": {"lr": 1.0, "momentum": 0.0}, "weighted": True}
    trainee = Trainee(master, port, kind, replica, rank, options)
    with trainee.diloco as diloco:
        for _ in range(3):
            trainee.step(samples=replica + 1 if rank == 0 else 99)
        own: list[Any] = []
        advance = diloco.advance

        def look_and_advance(*, samples: int | None = None) -> None:
            own.append(whole(trainee.model))
            advance(samples=samples)

        diloco.advance = look_and_advance  # type: ignore[method-assign]
        trainee.step(samples=replica + 1 if rank == 0 else 99)
    result = own[0], whole(trainee.model), diloco.batches
    trainee.leave()
    return result


@pytest.mark.parametrize("kind", ["fsdp", "hsdp", "tp", pytest.param("ddp", marks=[pytest.mark.nightly])])
def test_each_part_is_averaged_with_the_same_part(start: Start, master: str, kind: str) -> None:  # noqa: F811
    """The samples are those of rank 0: 1 and 2 in each step."""
    first, second = (
        [peer.result() for peer in peers]
        for peers in [start_replica(start, one_round, master, kind, one) for one in range(2)]
    )
    average = (first[0][0] + 2 * second[0][0]) / 3
    assert numpy.abs(first[0][0] - second[0][0]).max() > 0.01
    for _, after, batches in first + second:
        numpy.testing.assert_allclose(after, average, atol=1e-6)
        assert batches == 4 * 3


# ---- faults


def keep_on(
    channel: Channel, master: str, port: int, kind: str, replica: int, rank: int, options: dict[str, Any], until: int
) -> Any:
    """Trains until it was in the run with that many replicas, and then with one less for two rounds."""
    trainee = Trainee(master, port, kind, replica, rank, options)
    diloco, rounds = trainee.diloco, 0
    with diloco:
        while rounds < 2:
            trainee.step()
            if diloco.inner_step % options["H"] == 0:
                if diloco.world == until:
                    channel.send((diloco.outer_step, diloco.batches))
                rounds += diloco.world == until - 1
    result = trainee.hashes, whole(trainee.model), (diloco.outer_step, diloco.batches), trainee.seen.count("retry")
    trainee.leave()
    return result


def die_between(
    channel: Channel, master: str, port: int, kind: str, replica: int, rank: int, options: dict[str, Any]
) -> Any:
    """In the third round the process of rank 1 stops before its reduction."""
    trainee = Trainee(master, port, kind, replica, rank, options)
    method = "all_gather_async" if isinstance(options.get("quantize"), TopK) else "all_reduce_async"
    launch = getattr(trainee.comm, method)

    def wait_to_die(*arguments: Any, **named: Any) -> Any:
        if trainee.diloco.inner_step > 2 * options["H"] and rank == 1:
            channel.send("stops")
            channel.recv()
        return launch(*arguments, **named)

    setattr(trainee.comm, method, wait_to_die)
    late = 2 * options["H"] + options.get("delay", 0)
    with trainee.diloco as diloco:
        settle = diloco._replica.settle

        def tell(error: Exception | None = None, *numbers: int) -> Any:
            if diloco.inner_step > late and rank == 0 and diloco._in_flight is not None:
                channel.send(f"reduced with weight {numbers[0] if numbers else error}")
            return settle(error, *numbers)

        diloco._replica.settle = tell
        while True:
            trainee.step()


@pytest.mark.parametrize(
    "mode",
    [
        "one_step_behind_int8",
        "sync_top_k",
        *(pytest.param(mode, marks=[pytest.mark.nightly]) for mode in ("sync", "sync_int8", "sync_ring", "streaming")),
    ],
)
def test_a_death_between_the_reductions_of_two_parts(start: Start, master: str, mode: str) -> None:  # noqa: F811
    """A replica is in the sum of part 0 and not in that of part 1. The others repeat both without it."""
    options = {**MODES[mode], "min_peers": 3}
    stay = [start_replica(start, keep_on, master, "fsdp", one, options, 3) for one in range(2)]
    first, second = start_replica(start, die_between, master, "fsdp", 2, options)
    assert second.hear() == "stops"
    assert first.hear() == "reduced with weight 3"
    second.kill()
    results = [[peer.result() for peer in peers] for peers in stay]
    with pytest.raises(AssertionError, match="another process of this replica is gone"):
        first.result()
    for rank in range(2):
        hashes, others = results[0][rank][0], results[1][rank][0]
        assert hashes == others
    for _, parameters, (outer_step, batches), retries in results[0] + results[1]:
        numpy.testing.assert_array_equal(parameters, results[0][0][1])
        # Two rounds of three replicas, then of two, in both parts. With fragments, each makes a step of its own.
        rounds = outer_step // options.get("fragments", 1)
        assert batches == options["H"] * (2 * 3 + (rounds - 2) * 2)
        assert retries >= 1


def die_in_call(
    channel: Channel, master: str, port: int, kind: str, replica: int, rank: int, options: dict[str, Any], method: str
) -> Any:
    """At the end of the third round the process of rank 1 stops before a call that that of rank 0 makes."""
    trainee = Trainee(master, port, kind, replica, rank, options)
    call = getattr(trainee.comm, method)

    def call_or_die(*arguments: Any, **named: Any) -> Any:
        is_now = trainee.diloco.inner_step == 3 * options["H"]
        if is_now and rank == 1:
            channel.send("stops")
            channel.recv()
        if is_now and method == "are_peers_pending":  # a vote of all members of all groups
            channel.send("votes")
        result = call(*arguments, **named)
        if is_now:
            channel.send("called")
        return result

    setattr(trainee.comm, method, call_or_die)
    with trainee.diloco:
        while True:
            trainee.step()


@pytest.mark.parametrize("method", ["sync_shared_state", "are_peers_pending"])
def test_a_death_between_the_calls_at_the_end_of_a_round(start: Start, master: str, method: str) -> None:  # noqa: F811
    """The synchronization of part 0 has ended when the members of part 1 begin theirs, without the lost one."""
    options = {"H": 2, "min_peers": 3, "outer": {"lr": 0.5}}
    stay = [start_replica(start, keep_on, master, "fsdp", one, options, 3) for one in range(2)]
    first, second = start_replica(start, die_in_call, master, "fsdp", 2, options, method)
    assert second.hear() == "stops" and first.hear() == ("called" if method == "sync_shared_state" else "votes")
    second.kill()
    results = [[peer.result() for peer in peers] for peers in stay]
    with pytest.raises(AssertionError, match="another process of this replica is gone"):
        first.result()
    for rank in range(2):
        assert results[0][rank][0] == results[1][rank][0]
    for _, parameters, (outer_step, batches), _ in results[0] + results[1]:
        numpy.testing.assert_array_equal(parameters, results[0][0][1])
        assert batches == options["H"] * (3 * 3 + (outer_step - 3) * 2)


def send_one_part(channel: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    """Trains alone until somebody joins. Then the process of rank 1 stops before it sends its part."""
    trainee = Trainee(master, port, kind, replica, rank, {"H": 2})
    synchronize = trainee.comm.sync_shared_state

    def send_or_stop(*arguments: Any, **named: Any) -> Any:
        if trainee.comm.world_size == 1:
            return synchronize(*arguments, **named)
        if rank == 1:
            channel.send("stops")
            channel.recv()
        result = synchronize(*arguments, **named)
        channel.send("sent")
        return result

    trainee.comm.sync_shared_state = send_or_stop  # type: ignore[method-assign]
    with trainee.diloco:
        channel.send("trains")
        while True:
            trainee.step()


def train_alone(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    trainee = Trainee(master, port, kind, replica, rank, {"H": 2})
    with trainee.diloco as diloco:
        while diloco.inner_step < 6:
            trainee.step()
    result = trainee.hashes, whole(trainee.model)
    trainee.leave()
    return result


def test_the_only_replica_dies_when_a_newcomer_has_one_part_of_its_state(start: Start, master: str) -> None:  # noqa: F811
    """The newcomer goes on with what it came with, not with parts of two models."""
    first = start_replica(start, send_one_part, master, "fsdp", 0)
    assert [peer.hear() for peer in first] == ["trains"] * 2
    newcomer = start_replica(start, train_alone, master, "fsdp", 1)
    assert first[1].hear() == "stops" and first[0].hear() == "sent"
    first[1].kill()
    results = [peer.result() for peer in newcomer[::-1]][::-1]
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        clean = [peer.result() for peer in start_replica(start, train_alone, f"127.0.0.1:{node.port}", "fsdp", 1)]
    for (hashes, parameters), (wanted, expected) in zip(results, clean, strict=True):
        assert hashes == wanted
        numpy.testing.assert_array_equal(parameters, expected)


def synchronize_again(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    """The synchronization of part 1 fails once for all its members, as when the last holder of a state is lost."""
    trainee = Trainee(master, port, kind, replica, rank, {"H": 2, "min_peers": 2})
    synchronize, calls = trainee.comm.sync_shared_state, []

    def fail_once(*arguments: Any, **named: Any) -> Any:
        if trainee.diloco.inner_step == 4:
            calls.append(rank)
            if len(calls) == 1 and rank == 1:
                raise pccl.PCCLSyncError(pccl.Result.INVALID_USAGE, "sync_shared_state", "planted")
        return synchronize(*arguments, **named)

    trainee.comm.sync_shared_state = fail_once  # type: ignore[method-assign]
    with trainee.diloco as diloco:
        while diloco.inner_step < 8:
            trainee.step()
    result = len(calls), trainee.hashes, whole(trainee.model)
    trainee.leave()
    return result


def test_a_synchronization_of_one_part_fails(start: Start, master: str) -> None:  # noqa: F811
    """All parts repeat it: the vote before that needs all members of all parts."""
    replicas = [start_replica(start, synchronize_again, master, "fsdp", one) for one in range(2)]
    results = [[peer.result() for peer in peers] for peers in replicas]
    for rank in range(2):
        assert results[0][rank][1] == results[1][rank][1]
    for calls, _, parameters in results[0] + results[1]:
        assert calls == 2
        numpy.testing.assert_array_equal(parameters, results[0][0][2])


def test_a_replica_that_lost_a_process_leaves(start: Start, master: str) -> None:  # noqa: F811
    options = {"H": 2, "min_peers": 2}
    stay = start_replica(start, keep_on, master, "fsdp", 0, options, 2)
    broken = start_replica(start, train, master, "fsdp", 1, options, 1_000_000)
    for peer in stay:
        peer.hear()
    broken[1].kill()
    with pytest.raises(AssertionError, match="peer failed"):
        broken[0].result()
    first, second = (peer.result() for peer in stay)
    assert first[2] == second[2]


def fail_in_one(channel: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    trainee = Trainee(master, port, kind, replica, rank, {"H": 2})
    trainee.diloco.join()
    trainee.step()
    if rank == 1:
        trainee.model[0].weight.requires_grad_(False)
        trainee.optimizer.zero_grad()
        trainee.optimizer.step()
    with pytest.raises(Exception) as failure:
        trainee.diloco.advance()
    with pytest.raises(pccl.PCCLUsageError):
        trainee.comm.are_peers_pending()  # it is out of the run
    return str(failure.value)


def test_an_error_of_one_process_is_one_of_its_replica(start: Start, master: str) -> None:  # noqa: F811
    first, second = (peer.result() for peer in start_replica(start, fail_in_one, master, "fsdp", 0))
    assert "another process of this replica could not go on" in first and "was frozen" in second


def diverge(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    """Parameters of rank 1 are no longer finite in the second round."""
    trainee = Trainee(master, port, kind, replica, rank, {"H": 2, "min_peers": 2})
    with trainee.diloco as diloco:
        while diloco.inner_step < 8:
            if replica == 0 and rank == 1 and diloco.inner_step == 3:
                with torch.no_grad():
                    trainee.model[0].weight.to_local().fill_(float("nan"))
            trainee.step()
    result = trainee.seen.count("rejected"), diloco.batches, whole(trainee.model)
    trainee.leave()
    return result


def test_a_part_that_is_not_finite_keeps_its_replica_out(start: Start, master: str) -> None:  # noqa: F811
    peers = [start_replica(start, diverge, master, "fsdp", one) for one in range(2)]
    results = [[peer.result() for peer in replica] for replica in peers]
    for rejected, batches, parameters in results[0] + results[1]:
        assert numpy.isfinite(parameters).all()
        assert batches == 2 * (4 * 2 - results[0][0][0])
        numpy.testing.assert_array_equal(parameters, results[0][0][2])
    assert [one[0] for one in results[0]] == [results[0][0][0]] * 2 and results[0][0][0] >= 1
    assert [one[0] for one in results[1]] == [0, 0]


# ---- checkpoints


def packed(state: Any) -> bytes:
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=False)


def until(_: Channel, master: str, port: int, kind: str, replica: int, rank: int, options: Any, *steps: Any) -> Any:
    """Trains to a step, from a checkpoint if there is one. Returns a checkpoint of the end."""
    last_step, saved = steps
    trainee = Trainee(master, port, kind, replica, rank, {"min_peers": 2, **options})
    trainee._draw.manual_seed(last_step)
    if saved is not None:
        trainee.diloco.load_state_dict(unpacked(saved[replica][rank][0]))
        trainee.optimizer.load_state_dict(unpacked(saved[replica][rank][1]))
    trainee.diloco.join()
    while trainee.diloco.inner_step < last_step:
        trainee.step()
    result = packed(trainee.diloco.state_dict()), packed(trainee.optimizer.state_dict()), whole(trainee.model)
    trainee.leave()
    return result


@pytest.mark.parametrize(
    "mode", ["one_step_behind_int8", pytest.param("sync_top_k", marks=[pytest.mark.nightly])]
)
def test_a_run_resumes_from_checkpoints(start: Start, mode: str) -> None:  # noqa: F811
    def run(last_step: int, saved: Any) -> Any:
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            replicas = [
                start_replica(start, until, f"127.0.0.1:{node.port}", "tp", one, MODES[mode], last_step, saved)
                for one in range(2)
            ]
            return [[peer.result() for peer in peers] for peers in replicas]

    saved = run(8, None)
    ends = [run(16, saved) for _ in range(2)]
    before = unpacked(saved[0][0][0])
    for one, other in zip(ends[0][0] + ends[0][1], ends[1][0] + ends[1][1], strict=True):
        after, same = unpacked(one[0]), unpacked(other[0])
        assert after["inner_step"] == 16 and after["batches"] > before["batches"]
        torch.testing.assert_close(after["outer"], same["outer"], rtol=0, atol=0)
        numpy.testing.assert_array_equal(one[2], other[2])


def resume_wrongly(_: Channel, master: str, port: int, kind: str, replica: int, rank: int, content: bytes) -> str:
    saved = unpacked(content)
    trainee = Trainee(master, port, kind, replica, rank, {"H": 4})
    if rank == 0:
        trainee.diloco.load_state_dict(saved)
    with pytest.raises(ValueError) as failure:
        trainee.diloco.load_state_dict({**saved, "signature": "another"})
    assert "another" in str(failure.value)
    with pytest.raises(pccl.PCCLArgumentError) as refused:
        trainee.diloco.join()
    return str(refused.value)


def save_one(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    trainee = Trainee(master, port, kind, replica, rank, {"H": 4})
    trainee.diloco.join()
    for _ in range(4):
        trainee.step()
    result = packed(trainee.diloco.state_dict())
    trainee.leave()
    return result


def test_checkpoints_of_different_rounds_are_refused(start: Start, master: str) -> None:  # noqa: F811
    saved, _ = (peer.result() for peer in start_replica(start, save_one, master, "fsdp", 0))
    for peer in start_replica(start, resume_wrongly, master, "fsdp", 0, saved):
        assert "different checkpoints" in peer.result()


# ---- what cannot work


def refused(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> None:
    trainee = Trainee(master, port, kind, replica, rank, {"H": 4})
    model, optimizer, group = trainee.model, trainee.optimizer, dist.group.WORLD
    with pytest.raises(ValueError, match="is a DTensor.*replica_communicator"):
        DiLoCo(model, optimizer, trainee.comm)
    with pytest.raises(ValueError, match="is a DTensor.*replica_communicator"):
        DiLoCo(model, optimizer, None, process_group=group)
    with pytest.raises(ValueError, match=r"with 2\d\d parameters, and there are 500 fragments"):
        DiLoCo(model, optimizer, trainee.comm, H=500, fragments=500, process_group=group)
    with pytest.raises(ValueError, match="process 1 of this replica: .*is at place 1 of a gang of 3|is at place"):
        DiLoCo(model, optimizer, pccl.Communicator(master, gang=("G", 3, rank), gang_timeout_s=1), process_group=group)
    with pytest.raises(ValueError, match="gang_timeout_s"):
        DiLoCo(model, optimizer, pccl.Communicator(master, gang=("G", 2, rank)), process_group=group)
    with pytest.raises(ValueError, match=r"peer groups \[0, 0\]"):
        DiLoCo(model, optimizer, pccl.Communicator(master, gang=("G", 2, rank), gang_timeout_s=1), process_group=group)
    with pytest.raises(ValueError, match="mates_timeout_s is 0"):
        pccl.torch.replica_communicator(master, mates_timeout_s=0)
    trainee.leave()


def refused_without_sharding(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> None:
    trainee = Trainee(master, port, kind, replica, rank, {"H": 4})
    with pytest.raises(ValueError, match="process 1 of this replica would take part with no parameters of fragment 1"):
        parts = [["0"], ["3.bias"]]
        DiLoCo(trainee.model, trainee.optimizer, trainee.comm, fragments=parts, process_group=dist.group.WORLD)
    trainee.leave()


def test_a_fragment_that_only_one_process_would_send(start: Start, master: str) -> None:  # noqa: F811
    for peer in start_replica(start, refused_without_sharding, master, "ddp", 0):
        peer.result()


def test_what_cannot_work_is_refused_in_all_processes(start: Start, master: str) -> None:  # noqa: F811
    for peer in start_replica(start, refused, master, "fsdp", 0):
        peer.result()


def evaluate(_: Channel, master: str, port: int, kind: str, replica: int, rank: int) -> Any:
    """A forward pass without a backward one leaves the root of FSDP2 gathered."""
    trainee = Trainee(master, port, kind, replica, rank, {"H": 2})
    points = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    with trainee.diloco as diloco:
        while diloco.inner_step < 4:
            trainee.step()
            with torch.no_grad():
                trainee.model(points)
        trainee.optimizer.zero_grad()
        with torch.no_grad():
            trainee.model(points)
    with torch.no_grad():
        shown = trainee.model(points).numpy()
        for module in trainee.model.modules():
            if hasattr(module, "reshard"):
                module.reshard()
        again = trainee.model(points).numpy()
    trainee.leave()
    return shown, again


def test_an_evaluation_between_rounds(start: Start, master: str) -> None:  # noqa: F811
    for peer in start_replica(start, evaluate, master, "fsdp", 0):
        shown, again = peer.result()
        numpy.testing.assert_array_equal(shown, again)
