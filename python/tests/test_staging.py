"""Tensors on a GPU in the calls of the package, without a GPU."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl
from conftest import PATIENCE_S, run_threads, wait_until
from late_streams import GARBAGE, LateStreams, gpu  # noqa: F401 (a fixture)
from pccl import _staging

RunPeers = Callable[..., list[Any]]


def test_a_reduction_sees_what_the_stream_computes(run_peers: RunPeers, gpu: LateStreams) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        tensor, result = gpu.tensor(0, 0, 0), gpu.tensor(0, 0, 0)
        gpu.current().do(lambda: tensor.fill_(index + 1))
        info = communicator.all_reduce(tensor, result, op=pccl.ReduceOp.SUM)
        assert info.world_size == 2
        assert (tensor.tolist(), result.tolist()) == ([index + 1] * 3, [3] * 3)
        gpu.current().do(lambda: tensor.add_(1))
        communicator.all_reduce(tensor, tensor, op=pccl.ReduceOp.MAX)
        assert tensor.tolist() == [3] * 3

    run_peers(2, body)


def test_peers_on_gpu_and_cpu_get_the_same_bytes(run_peers: RunPeers, gpu: LateStreams) -> None:
    def body(communicator: pccl.Communicator, index: int) -> bytes:
        values = [0.1 * (index + 1), -3.7, 1e-8 * index]
        tensor = gpu.tensor(*values) if index else torch.tensor(values)
        options = pccl.QuantizationOptions()
        communicator.all_reduce(tensor, tensor, op=pccl.ReduceOp.AVG, quantization_options=options)
        return bytes(tensor.numpy().tobytes())

    assert len(set(run_peers(3, body))) == 1


def test_launched_reductions_land(run_peers: RunPeers, gpu: LateStreams) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        def launch(tag: int) -> tuple[Any, pccl.AsyncReduceHandle]:
            tensor = gpu.tensor(0, 0)
            gpu.current().do(lambda: tensor.fill_(index + tag))
            return tensor, communicator.all_reduce_async(tensor, tensor, op=pccl.ReduceOp.SUM, tag=tag)

        first, handle = launch(1)
        assert handle.result().world_size == 2 and first.tolist() == [3, 3]
        assert handle.wait()[0] and handle.exception() is None and handle.done()

        polled, handle = launch(2)
        wait_until(handle.done, "the reduction is done")
        assert polled.tolist() == [5, 5]

        called, handle = launch(3)
        seen: list[Any] = []
        handle.add_done_callback(lambda one: seen.append(called.tolist()))
        wait_until(lambda: bool(seen), "the callback is called")
        assert seen == [[7, 7]]

        dropped, handle = launch(4)
        del handle
        gc.collect()
        wait_until(lambda: dropped.tolist() == [9, 9], "a reduction lands whose handle was dropped")

    run_peers(2, body)


def test_a_reduction_is_done_when_it_has_landed(run_peers: RunPeers, gpu: LateStreams) -> None:
    may_land, looked = threading.Event(), threading.Barrier(2)

    def copy(stream: LateStream, target: Any, source: Any) -> None:
        if gpu.device_of(source) == "cpu":
            may_land.wait()
        stream.do(lambda: target.copy_(source))

    def body(communicator: pccl.Communicator, index: int) -> None:
        tensor = gpu.tensor(1, 1)
        handle = communicator.all_reduce_async(tensor, tensor, op=pccl.ReduceOp.SUM)
        wait_until(handle._operation.done, "the library is done")
        assert not handle.done()
        if looked.wait() == 0:
            may_land.set()
        wait_until(handle.done, "the result has landed")
        assert tensor.tolist() == [2, 2]

    gpu.copy = copy  # type: ignore[method-assign]
    run_peers(2, body)


def test_many_reductions(run_peers: RunPeers, gpu: LateStreams) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        descriptors, tensors = [], []
        for tag in range(6):
            # Some are on a GPU, and elements after the first `count` stay as they are.
            tensor = gpu.tensor(index, index, 50) if tag % 2 else torch.tensor([float(index), float(index), 50.0])
            operand = pccl.ReduceOperandDescriptor(pccl.DataType.FLOAT)
            reduction = pccl.ReduceDescriptor(2, pccl.ReduceOp.SUM, tag, operand)
            descriptors.append(pccl.ReduceOpDescriptor.from_torch(tensor, tensor, reduction))
            tensors.append(tensor)
        communicator.all_reduce_multiple_with_retry(descriptors, max_in_flight=2)
        assert [tensor.tolist() for tensor in tensors] == [[1, 1, 50]] * 6

    run_peers(2, body)


def test_a_failed_reduction_leaves_its_arrays(master: str, gpu: LateStreams) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        send, recv = gpu.tensor(1, 2), gpu.tensor(3, 4)
        with pytest.raises(pccl.PCCLTooFewPeersError):
            communicator.all_reduce(send, recv, op=pccl.ReduceOp.SUM)
        with pytest.raises(pccl.PCCLTooFewPeersError):
            communicator.all_reduce_async(send, recv, op=pccl.ReduceOp.SUM)
        assert (send.tolist(), recv.tolist(), gpu.stored) == ([1, 2], [3, 4], 0)
        with pytest.raises(pccl.PCCLArgumentError, match="use two on one device"):
            communicator.all_reduce(send, torch.zeros(2), op=pccl.ReduceOp.SUM)


def test_a_result_that_cannot_land_is_an_error_of_the_handle(run_peers: RunPeers, gpu: LateStreams) -> None:
    def copy(stream: LateStream, target: Any, source: Any) -> None:
        if gpu.device_of(source) == "cpu" and gpu.stored == 0:
            gpu.stored = 1
            raise RuntimeError("no such device")
        stream.do(lambda: target.copy_(source))

    def first_fails(communicator: pccl.Communicator, index: int) -> None:
        tensor = gpu.tensor(1, 1)
        handle = communicator.all_reduce_async(tensor, tensor, op=pccl.ReduceOp.SUM)
        try:
            handle.result()
            failed = False
        except RuntimeError as error:
            assert "no such device" in str(error)
            with pytest.raises(RuntimeError, match="no such device"):
                handle.wait()
            failed = True
        assert handle.done()
        failures.append(failed)

    failures: list[bool] = []
    gpu.copy = copy  # type: ignore[method-assign]
    run_peers(2, first_fails)
    assert sorted(failures) == [False, True]


def test_shared_state(run_peers: RunPeers, gpu: LateStreams) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        weights = gpu.tensor(0, 0) if index < 2 else torch.zeros(2)
        counter = torch.zeros(1)
        if index == 1:
            gpu.current().do(lambda: weights.fill_(5))
        state = pccl.SharedState(
            [pccl.TensorInfo.from_torch(weights, "weights"), pccl.TensorInfo.from_torch(counter, "counter")]
        )
        strategy = pccl.SharedStateSyncStrategy
        info = communicator.sync_shared_state(
            state, strategy.SEND_ONLY if index == 1 else strategy.RECEIVE_ONLY
        )
        assert weights.tolist() == [5, 5]
        assert (info.rx_bytes > 0) == (index != 1)
        assert state.tensor_infos[0].device_type == (pccl.DeviceType.CPU if index == 2 else pccl.DeviceType.CUDA)

    run_peers(3, body)
    assert gpu.stored == 1  # of the two on a GPU, one received


def test_a_state_that_cannot_land_keeps_its_revision(run_peers: RunPeers, gpu: LateStreams) -> None:
    def copy(stream: LateStream, target: Any, source: Any) -> None:
        if gpu.device_of(source) == "cpu":
            raise RuntimeError("no such device")
        stream.do(lambda: target.copy_(source))

    def body(communicator: pccl.Communicator, index: int) -> None:
        state = pccl.SharedState([pccl.TensorInfo.from_torch(gpu.tensor(index), "weights")])
        strategy = pccl.SharedStateSyncStrategy
        if index == 0:
            state.revision = 3
            communicator.sync_shared_state(state, strategy.SEND_ONLY)
            return
        with pytest.raises(RuntimeError, match="no such device"):
            communicator.sync_shared_state(state, strategy.RECEIVE_ONLY)
        assert state.revision == 0

    gpu.copy = copy  # type: ignore[method-assign]
    run_peers(2, body)


def test_the_loop_of_a_program(master: str, gpu: LateStreams) -> None:
    """pccl.Run with a model on a GPU, which is late with gradients and with the step of the optimizer."""

    def body(index: int) -> list[float]:
        weights = gpu.tensor(GARBAGE + index, 0)
        gpu.current().do(lambda: weights.fill_(3))
        state = pccl.SharedState([pccl.TensorInfo.from_torch(weights, "weights")])
        with pccl.Communicator(master) as communicator, pccl.Run(communicator, state, steps=3, min_peers=2) as run:
            while run.step():
                assert not run.received
                gradient = gpu.tensor(0, 0)
                gpu.current().do(lambda gradient=gradient: gradient.fill_(index))
                assert run.all_reduce(gradient) == 2
                gpu.current().do(lambda gradient=gradient: weights.add_(gradient))
        values: list[float] = weights.tolist()
        return values

    # The last synchronization has waited for the last step.
    assert run_threads(2, body) == [[4.5, 4.5]] * 2


def test_gradients_of_a_model_on_a_gpu(run_peers: RunPeers, gpu: LateStreams) -> None:
    """The hook takes buckets as DDP hands them out, from streams that are late."""
    from pccl.torch import ddp_hook

    class Bucket:
        def __init__(self, index: int, last: bool, parameters: list[Any]) -> None:
            self._index, self._last, self._parameters = index, last, parameters
            self._buffer = torch.zeros(sum(one.numel() for one in parameters))

        def index(self) -> int:
            return self._index

        def is_last(self) -> bool:
            return self._last

        def buffer(self) -> Any:
            return self._buffer

        def parameters(self) -> list[Any]:
            return self._parameters

        def gradients(self) -> list[Any]:
            parts = self._buffer.split([one.numel() for one in self._parameters])
            return [part.view(one.shape) for part, one in zip(parts, self._parameters, strict=True)]

    def body(communicator: pccl.Communicator, index: int) -> None:
        hook = ddp_hook(communicator)
        parameters = [torch.nn.Parameter(torch.zeros(size, 2)) for size in (3, 1, 2)]
        buckets = [Bucket(0, False, parameters[:2]), Bucket(1, True, parameters[2:])]
        futures = []
        for bucket in buckets:
            buffer = bucket.buffer()
            gpu.current().do(lambda buffer=buffer: buffer.fill_(1 + index).mul_(torch.arange(buffer.numel())))
            futures.append(hook(None, bucket))  # type: ignore[arg-type]
        for bucket, future in zip(buckets, futures, strict=True):
            assert future.value().tolist() == [1.5 * place for place in range(bucket.buffer().numel())]

    gpu.everything = True
    run_peers(2, body)


def test_collectives_of_tensors_on_a_gpu(run_peers: RunPeers, gpu: LateStreams) -> None:
    """Results land where they belong, and nothing else is written."""
    gpu.everything = True

    def body(communicator: pccl.Communicator, index: int) -> None:
        members = communicator.barrier().members
        own = communicator.index
        send, gathered = gpu.tensor(0, 0), gpu.tensor(*[-1] * 6)
        for launched in (False, True):
            gpu.current().do(lambda: send.fill_(own + 1))
            if launched:
                pieces = communicator.all_gather_async(send[: own + 1], gathered).result()
            else:
                pieces = communicator.all_gather(send[: own + 1], gathered)
            assert [piece.tolist() for piece in pieces] == [[1], [2, 2]] and gathered.tolist() == [1, 2, 2, -1, -1, -1]
            gathered.fill_(-1)
        assert [piece.tolist() for piece in communicator.all_gather(send)] == [[1, 1], [2, 2]]
        for root in (0, 1):
            copied, apart = gpu.tensor(own, 5), gpu.tensor(0, 0)
            communicator.broadcast(copied, copied, root=members[root])
            assert copied.tolist() == [root, 5]
            communicator.broadcast(copied, apart, root=members[root])
            assert apart.tolist() == [root, 5]
            total = gpu.tensor(0, 0)
            communicator.reduce(send, total if own == root else None, op=pccl.ReduceOp.SUM, root=members[root])
            assert total.tolist() == ([3, 3] if own == root else [0, 0]) and send.tolist() == [own + 1] * 2
        piece = gpu.tensor(*[0] * (2 - own))
        communicator.reduce_scatter(gpu.tensor(1, 2, 3), piece, op=pccl.ReduceOp.SUM)
        assert piece.tolist() == [[2, 4], [6]][own]
        for launched in (False, True):
            check_pieces(communicator, gpu, launched)

    run_peers(2, body)


def check_pieces(communicator: pccl.Communicator, gpu: LateStreams, launched: bool) -> None:
    members, own = communicator.members, communicator.index

    def outcome(name: str, *arguments: Any, **options: Any) -> Any:
        if not launched:
            return getattr(communicator, name)(*arguments, **options)
        return getattr(communicator, f"{name}_async")(*arguments, **options).result()

    room = gpu.tensor(*[-1] * 5)
    pieces = outcome("gather", gpu.tensor(*[own + 1] * (own + 1)), room if own == 1 else None, root=members[1])
    assert [piece.tolist() for piece in pieces] == ([[1], [2, 2]] if own == 1 else [])
    assert room.tolist() == ([1, 2, 2, -1, -1] if own == 1 else [-1] * 5)
    room = gpu.tensor(*[-1] * 3)
    outcome("scatter", gpu.tensor(7, 8, 9) if own == 0 else None, room, root=members[0], counts=[1, 2])
    assert room.tolist() == [[7, -1, -1], [8, 9, -1]][own]
    whole = gpu.tensor(7, 8)
    outcome("scatter", whole, whole, root=members[1])  # in place
    assert whole.tolist() == [[7, 8], [8, 8]][own]
    room = gpu.tensor(*[-1] * 4)
    if own == 0:
        outcome("send", gpu.tensor(4, 5), to=members[1])
    else:
        outcome("recv", room, source=members[0])
    assert room.tolist() == [[-1] * 4, [4, 5, -1, -1]][own]
    room = gpu.tensor(*[-1] * 4)
    pieces = outcome("all_to_all", gpu.tensor(own, 5, 6), room, counts=[1, 2] if own == 0 else [2, 1])
    assert [piece.tolist() for piece in pieces] == [[[0], [1, 5]], [[5, 6], [6]]][own]
    assert room.tolist() == [[0, 1, 5, -1], [5, 6, 6, -1]][own]


def test_a_gather_that_fails_leaves_the_gpu_as_it_was(run_peers: RunPeers, gpu: LateStreams) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        recv = gpu.tensor(-1, -1)
        with pytest.raises(pccl.PCCLArgumentError, match="room for, 2"):
            communicator.all_gather(gpu.tensor(1, 2), recv)
        assert recv.tolist() == [-1, -1]

    run_peers(2, body)


# ---- the backend of torch.distributed


class Late:
    """A process group whose own copies on the device are late, too: those into outputs."""

    def __init__(self, communicator: pccl.Communicator, ranks: list[int], gpu: LateStreams) -> None:
        from pccl.torch import ProcessGroupPCCL
        from pccl.torch._run import Run

        communicator.barrier()
        peers, patience = [member.peer_id for member in communicator.members], timedelta(seconds=PATIENCE_S)
        run = Run(communicator, ranks, communicator.index, peers, None)
        self.group = ProcessGroupPCCL(run, ranks[communicator.index], run.size, patience, owns_run=False)
        # There is no other backend. Torch cannot tell, because this group is not registered with it.
        self.group._others._groups["cpu"] = None
        launched = self.group._launched

        def late(operation: str, calls: Any, result: Any, opts: Any, timeout: Any, finish: Any, tag: Any) -> Any:
            on_stream = None if finish is None else lambda infos: gpu.current().do(lambda: finish(infos))
            return launched(operation, calls, result, opts, timeout, on_stream, tag)

        self.group._launched = late  # type: ignore[method-assign]


@pytest.mark.parametrize("ranks", [[0, 1], [1, 0]])
def test_collectives_of_a_process_group(run_peers: RunPeers, gpu: LateStreams, ranks: list[int]) -> None:
    """Each takes what the stream of the program computes, and when wait() returns, the result is where it belongs."""
    import torch.distributed as dist

    gpu.everything = True

    def body(communicator: pccl.Communicator, index: int) -> None:
        late = Late(communicator, ranks, gpu)
        group, rank = late.group, late.group.getRank()
        other = 1 - rank

        def computed(*values: float) -> Any:
            tensor = gpu.tensor(*[GARBAGE] * len(values))
            gpu.current().do(lambda: tensor.copy_(torch.tensor(values)))
            return tensor

        def pieces(*parts: list[float]) -> list[Any]:
            """The process group puts them together on the program's stream, which the fake one does at once."""
            made = [computed(*part) for part in parts]
            gpu.current().synchronize()
            return made

        def done(work: Any, by_future: bool = False) -> None:
            if by_future:
                work.get_future().wait()
            assert work.wait()

        for by_future in (False, True):
            total = computed(rank, 1)
            done(group.allreduce([total]), by_future)
            assert total.tolist() == [1, 2]
            copied = computed(rank + 5)
            options = dist.BroadcastOptions()
            options.rootRank = 1
            done(group.broadcast([copied], options), by_future)
            assert copied.tolist() == [6]
            whole = gpu.tensor(0, 0)
            done(group.all_gather_single(whole, computed(rank + 1)), by_future)
            assert whole.tolist() == [1, 2]
            parts = [gpu.tensor(0), gpu.tensor(0, 0)]
            done(group.allgather([parts], [computed(*[rank + 1] * (rank + 1))]), by_future)
            assert [part.tolist() for part in parts] == [[1], [2, 2]]
            piece = gpu.tensor(0)
            done(group.reduce_scatter_single(piece, computed(rank, 10 * rank)), by_future)
            assert piece.tolist() == [[1], [10]][rank]
            apart = torch.zeros(4)[::2]  # not contiguous, so it is written in the end
            done(group.reduce_scatter([apart], [pieces([1, 2], [3, 4])]), by_future)
            assert apart.tolist() == [[2, 4], [6, 8]][rank]
            gathered = gpu.tensor(0, 0)
            to_root = dist.GatherOptions()
            to_root.rootRank = 0
            parts = [gathered[:1], gathered[1:]]
            done(group.gather([parts] if rank == 0 else [], [computed(rank + 7)], to_root), by_future)
            assert gathered.tolist() == ([7, 8] if rank == 0 else [0, 0])
            from_root, piece = dist.ScatterOptions(), gpu.tensor(0)
            from_root.rootRank = 0
            done(group.scatter([piece], [pieces([3], [4])] if rank == 0 else [], from_root), by_future)
            assert piece.tolist() == [3 + rank]
            received = gpu.tensor(0, 0)
            done(group.alltoall_base(received, computed(10 * rank, 10 * rank + 1), [], []), by_future)
            assert received.tolist() == [rank, 10 + rank]
            room = gpu.tensor(0)
            both = [group.send([computed(rank + 20)], other, 1), group.recv([room], other, 1)]
            for work in both:
                done(work, by_future)
            assert room.tolist() == [other + 20]

    run_peers(2, body)
