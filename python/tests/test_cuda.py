"""Tensors on a CUDA device, on machines that have one (`./dev nightly cuda`). test_staging.py has the order of copies, on
any machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

import numpy
import pccl
import test_torch_collectives as collectives
import test_torch_process_group as group
import torch.distributed as dist
from diloco_trainee import MODES, train_together, vector
from pccl import ReduceOp
from test_torch_ddp import assert_averages
from test_torch_ddp import train as train_with_hook
from test_torch_grid import SHARDS, replica, wait_for_two  # noqa: F401
from torch_peers import Channel, Peer, run_ranks, start  # noqa: F401

RunPeers = Callable[..., list[Any]]
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64"]


def bytes_of(tensor: Any) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def test_cuda_is_available() -> None:
    assert pccl.cuda.is_available()


@pytest.mark.parametrize("dtype", TYPES)
def test_peers_on_gpu_and_cpu_get_the_same_bytes(run_peers: RunPeers, dtype: str) -> None:
    def body(communicator: pccl.Communicator, index: int) -> list[bytes]:
        # The same values on all devices, so they are drawn on the CPU.
        drawn = torch.randn(100_003, generator=torch.Generator().manual_seed(index)) * 40
        source = drawn.to(getattr(torch, dtype)).to("cuda" if index else "cpu")
        found = []
        for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX):
            result = torch.zeros_like(source)
            communicator.all_reduce(source, result, op=op)
            found.append(bytes_of(result))
            assert bytes_of(source) == bytes_of(drawn.to(getattr(torch, dtype)))
            handle = communicator.all_reduce_async(source, result.zero_(), op=op)
            assert handle.result().world_size == 3
            found.append(bytes_of(result))
        communicator.all_reduce(source, source, op=ReduceOp.MAX)
        return [*found, bytes_of(source)]

    first, *others = run_peers(3, body)
    assert others == [first, first] and first[0::2][:5] == first[1::2][:5]


def test_quantized(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> bytes:
        tensor = torch.randn(5000, generator=torch.Generator().manual_seed(index)).to("cuda" if index else "cpu")
        options = pccl.QuantizationOptions(pccl.DataType.UINT8, pccl.QuantizationAlgorithm.MIN_MAX)
        communicator.all_reduce(tensor, tensor, op=ReduceOp.AVG, quantization_options=options)
        return bytes_of(tensor)

    assert len(set(run_peers(2, body))) == 1


def test_reductions_are_in_the_order_of_their_stream(run_peers: RunPeers) -> None:
    """The input is computed late, on a stream of the program; the result is read on yet another one."""

    def body(communicator: pccl.Communicator, index: int) -> None:
        for _ in range(5):
            with torch.cuda.stream(torch.cuda.Stream()):
                tensor = torch.zeros(1 << 20, device="cuda")
                torch.cuda._sleep(100_000_000)
                tensor.fill_(index + 1)
                communicator.all_reduce(tensor, tensor, op=ReduceOp.SUM)
            with torch.cuda.stream(torch.cuda.Stream()):
                assert (tensor == 3).all()
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda._sleep(100_000_000)
                tensor.add_(index)
                handle = communicator.all_reduce_async(tensor, tensor, op=ReduceOp.SUM)
            with torch.cuda.stream(torch.cuda.Stream()):
                handle.result()
                assert (tensor == 7).all()

    run_peers(2, body)


def test_parts_of_tensors_and_many_at_once(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        whole = torch.full((10, 1000), float(index), device="cuda")
        communicator.all_reduce(whole[3], whole[7], op=ReduceOp.SUM)
        assert (whole[7] == 3).all() and (whole[3] == index).all() and (whole[8] == index).all()
        operand = pccl.ReduceOperandDescriptor(pccl.DataType.FLOAT)
        descriptors = [
            pccl.ReduceOpDescriptor.from_torch(
                row, row, pccl.ReduceDescriptor(600, ReduceOp.SUM, tag, operand)
            )
            for tag, row in enumerate(whole[:3])
        ]
        communicator.all_reduce_multiple_with_retry(descriptors)
        assert (whole[:3, :600] == 3).all() and (whole[:3, 600:] == index).all()
        none = torch.zeros(0, device="cuda")
        communicator.all_reduce(none, none, op=ReduceOp.SUM)

    run_peers(3, body)


def test_a_failure_leaves_the_arrays(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        tensor, result = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")
        with pytest.raises(pccl.PCCLTooFewPeersError):
            communicator.all_reduce(tensor, result, op=ReduceOp.SUM)
        assert result.tolist() == [0] * 3
        with pytest.raises(pccl.PCCLArgumentError, match="use two on one device"):
            communicator.all_reduce(tensor, torch.zeros(3), op=ReduceOp.SUM)


@pytest.mark.parametrize("from_pointer", [False, True])
def test_shared_state(run_peers: RunPeers, from_pointer: bool) -> None:
    def body(communicator: pccl.Communicator, index: int) -> list[bytes]:
        device = "cuda" if index else "cpu"
        weights = torch.full((1000, 7), float(index), device=device, dtype=torch.bfloat16)
        counter = torch.tensor(index, device="cuda")
        infos = [pccl.TensorInfo.from_torch(weights, "weights"), pccl.TensorInfo.from_torch(counter, "counter")]
        if from_pointer:
            infos = [
                pccl.TensorInfo(
                    info.name,
                    info.data_ptr,
                    numel=info.numel,
                    dtype=info.dtype,
                    device_type=info.device_type,
                    allow_content_inequality=False,
                )
                for info in infos
            ]
        state = pccl.SharedState(infos)
        strategy = pccl.SharedStateSyncStrategy
        communicator.sync_shared_state(state, strategy.SEND_ONLY if index == 1 else strategy.RECEIVE_ONLY)
        assert (weights == 1).all() and counter.item() == 1
        state.push_revision()
        if index == 1:
            weights.add_(1)
        communicator.sync_shared_state(state, strategy.SEND_ONLY if index == 1 else strategy.RECEIVE_ONLY)
        return [bytes_of(weights), bytes_of(counter)]

    first, *others = run_peers(3, body)
    assert others == [first, first]


def test_memory_that_is_no_device_memory(master: str) -> None:
    on_cpu = torch.zeros(4)
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        info = pccl.TensorInfo(
            "w",
            on_cpu.data_ptr(),
            numel=4,
            dtype=pccl.DataType.FLOAT,
            device_type=pccl.DeviceType.CUDA,
            allow_content_inequality=False,
        )
        with pytest.raises(pccl.PCCLArgumentError, match="'w' is CUDA memory, and torch cannot use it here"):
            communicator.sync_shared_state(pccl.SharedState([info]))


# ---- torch.distributed


def on_gpu(rank: int, function: Callable[[int], Any]) -> Any:
    torch.set_default_device("cuda")
    return function(rank)


@pytest.mark.parametrize("function", [collectives.reduce_everything, collectives.gather_everything])
def test_collectives(run_ranks: Any, function: Any) -> None:  # noqa: F811
    run_ranks(3, on_gpu, function)


def beside_another_backend(_: Channel, master: str, rank: int) -> Any:
    import pccl.torch

    dist.init_process_group("cpu:pccl,cuda:gloo", init_method=f"pccl://{master}", rank=rank, world_size=2)
    totals = []
    for device in ("cuda", "cpu"):
        total = torch.full((3,), rank + 1.0, device=device)
        dist.all_reduce(total)
        totals.append(total.tolist())
    others = [name for name, one in dist.group.WORLD._others._groups.items() if one is not None]
    dist.barrier()
    dist.destroy_process_group()
    return totals, others


def test_tensors_on_devices_of_another_backend(start: Callable[..., Peer], master: str) -> None:  # noqa: F811
    for peer in [start(beside_another_backend, master, rank) for rank in range(2)]:
        assert peer.result() == ([[3.0] * 3] * 2, ["cuda"])


def test_broadcast_moves_bits_of_every_type(run_ranks: Any) -> None:  # noqa: F811
    run_ranks(2, on_gpu, collectives.broadcast_bits)


@pytest.mark.parametrize("how", [group.train_ddp, group.train_fsdp])
def test_training(run_ranks: Any, how: Any) -> None:  # noqa: F811
    ranks = run_ranks(2, on_gpu, how)
    with torch.device("cuda"):
        alone = group.train(group.model(), group.batch())
    for ours, theirs, expected in zip(*ranks, alone, strict=True):
        numpy.testing.assert_array_equal(ours, theirs)
        numpy.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


# ---- training under churn


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_gradients(start: Callable[..., Peer], master: str, quantize: str | None) -> None:  # noqa: F811
    """One peer trains on the CPU, the others on the GPU."""
    devices = ("cpu", "cuda", "cuda")
    peers = [start(train_with_hook, master, index, 3, quantize, device) for index, device in enumerate(devices)]
    results = [peer.result()[0] for peer in peers]
    for step in range(3):
        assert_averages(results[0][step], [0, 1, 2], tolerance=1e-4 if quantize is None else 0.1)
        for result in results[1:]:
            for ours, theirs in zip(results[0][step], result[step], strict=True):
                numpy.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_diloco(master: str, mode: str) -> None:
    options = MODES[mode]
    results = train_together(master, 3, 5 * options["H"], devices=("cuda", "cpu"), **options)
    first = results[0][1]
    for trainee, diloco, events in results:
        assert torch.equal(first.outer, diloco.outer) and torch.equal(first.momentum, diloco.momentum)
        assert torch.equal(vector(trainee.model).cpu(), diloco.outer)
        assert sum(event.kind == "outer_step" for event in events) >= 4


def trains_on_gpu(channel: Channel, grid: Any, own: float) -> list[float]:
    torch.set_default_device("cuda")
    return wait_for_two(channel, grid, own)


def test_replicas_of_sharded_models(replica: Any) -> None:  # noqa: F811
    """The processes of one replica train on the GPU, those of the other one on the CPU."""
    first, second = replica(trains_on_gpu, 1.0), replica(wait_for_two, 3.0)
    for shard in range(SHARDS):
        for one in (first, second):
            assert one[shard].result() == [3 * 2.0 * (shard + 1), 3.0]
