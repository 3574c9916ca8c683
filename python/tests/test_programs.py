"""The loops that programs write, each as a small training run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, Script, admit, run_threads
from pccl import Attribute, ReduceOp

MakeScript = Callable[..., Script]


def connect_with_retries(address: str) -> pccl.Communicator:
    communicator = pccl.Communicator(address, 0)
    for attempt in range(20):
        try:
            communicator.connect(n_attempts=1)
            return communicator
        except pccl.PCCLError as error:
            print(f"(attempt {attempt}) {error}")
            time.sleep(0.05)
    raise AssertionError("no connection")


def test_basic_loop_with_a_peer_that_comes_late(master: str) -> None:
    """Connects with retries, updates, synchronizes, reduces with retries. The late peer gets the state, and all end
    with the same."""
    steps = 12
    late_may_come = threading.Event()

    def peer(index: int) -> bytes:
        if index == 2:
            assert late_may_come.wait(PATIENCE_S)
        communicator = connect_with_retries(master)
        weights = numpy.zeros(1000, numpy.float32)
        gradient = numpy.empty_like(weights)
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(weights, "weights")])
        local_iteration = 0
        while True:
            if local_iteration > 0:
                while True:
                    try:
                        communicator.update_topology()
                        break
                    except pccl.PCCLError as error:
                        print(error)
            local_iteration += 1
            # All three peers take the last steps.
            needed = 2 if state.revision < steps // 2 else 3
            if communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) < needed:
                time.sleep(0.002)
                continue
            communicator.sync_shared_state(state)
            if state.revision >= steps:
                break
            if state.revision == 3:
                late_may_come.set()
            gradient[:] = weights - numpy.arange(1000)
            while True:
                try:
                    info = communicator.all_reduce(gradient, gradient, op=ReduceOp.AVG)
                    break
                except pccl.PCCLConnectionLostError:
                    continue
            assert info.local_world_size >= needed
            weights -= 0.25 * gradient
            state.push_revision()
        communicator.close()
        return weights.tobytes()

    results = run_threads(3, peer)
    assert results[0] == results[1] == results[2]
    assert numpy.frombuffer(results[0], numpy.float32)[-1] > 900


def test_pump_with_reductions_across_steps(master: str) -> None:
    """The main thread of each peer admits pending peers, while a second thread reduces what the last step left."""
    steps = 15

    def peer(index: int) -> float:
        with pccl.Communicator(master) as communicator:
            communicator.connect()
            admit(communicator, 3)
            state_array = numpy.zeros(500, numpy.float32)
            state = pccl.SharedState([pccl.TensorInfo.from_numpy(state_array, "outer")])
            pending: threading.Thread | None = None
            reduced = numpy.empty_like(state_array)
            failures: list[BaseException] = []
            for step in range(steps):
                # The answer is the same for all. So either all await their reductions and vote, or none does.
                if communicator.are_peers_pending():
                    if pending is not None:
                        pending.join()
                        pending = None
                    communicator.update_topology()
                if pending is not None:
                    pending.join()
                    assert not failures, failures
                    state_array += reduced
                    communicator.sync_shared_state(state)
                    state.push_revision()
                update = numpy.full(500, step + index, numpy.float32)

                def reduce(update: numpy.ndarray = update) -> None:
                    try:
                        handle = communicator.all_reduce_async(update, reduced, op=ReduceOp.AVG, tag=1)
                        ok, status, _ = handle.wait()
                        assert ok, status
                    except BaseException as error:
                        failures.append(error)

                pending = threading.Thread(target=reduce)
                pending.start()
                # "compute": one more vote while the reduction runs
                communicator.are_peers_pending()
            assert pending is not None
            pending.join()
            communicator.update_topology()
            return float(state_array[0])

    results = run_threads(3, peer)
    assert results == [sum(step + 1.0 for step in range(steps - 1))] * 3


def test_all_parameters_quantized_and_adam_moments(master: str) -> None:
    """all_reduce_multiple_with_retry over all gradients with u8 MinMax; parameters and Adam's moments are the shared
    state."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    steps = 6

    def peer(index: int) -> list[Any]:
        with pccl.Communicator(master) as communicator:
            communicator.connect()
            admit(communicator, 2)
            generator = torch.Generator().manual_seed(index)  # peers begin with different weights
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()  # creates the moments
            infos = []
            for name, parameter in model.named_parameters():
                infos.append(pccl.TensorInfo.from_torch(parameter, name))
                moments = optimizer.state[parameter]
                infos.append(pccl.TensorInfo.from_torch(moments["exp_avg"], f"{name}.exp_avg"))
                infos.append(pccl.TensorInfo.from_torch(moments["exp_avg_sq"], f"{name}.exp_avg_sq"))
            state = pccl.SharedState(infos)
            losses = []
            for step in range(steps):
                if step > 0:
                    communicator.update_topology()
                synced = communicator.sync_shared_state(state)
                assert step == 0 or synced.rx_bytes == 0
                inputs = torch.randn(32, 8, generator=generator)
                loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
                losses.append(loss.item())
                optimizer.zero_grad()
                loss.backward()
                descriptors = []
                for tag, parameter in enumerate(model.parameters()):
                    assert parameter.grad is not None
                    gradient = parameter.grad
                    operand = pccl.ReduceOperandDescriptor(
                        pccl.DataType.from_torch_dtype(gradient.dtype), pccl.DistributionHint.NORMAL
                    )
                    descriptor = pccl.ReduceDescriptor(
                        count=gradient.numel(),
                        op=ReduceOp.AVG,
                        tag=tag,
                        operand_descriptor=operand,
                        quantization_options=pccl.QuantizationOptions(),
                    )
                    descriptors.append(
                        pccl.ReduceOpDescriptor.from_torch(gradient, gradient, reduce_descriptor=descriptor)
                    )
                communicator.all_reduce_multiple_with_retry(descriptors, max_in_flight=4)
                optimizer.step()
                state.push_revision()
            communicator.update_topology()
            assert communicator.sync_shared_state(state) == pccl.SharedStateSyncInfo(0, 0)
            return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]

    first, second = run_threads(2, peer)
    assert first == second


VICTIM = """
import sys, time
import numpy
import pccl
communicator = pccl.Communicator(sys.argv[1])
communicator.connect()
array = numpy.ones(1000)
handle = communicator.all_reduce_async(array, array, op=pccl.ReduceOp.SUM)
print("launched")
time.sleep(3600)
"""


def test_a_killed_peer_costs_one_retry(master: str, script: MakeScript) -> None:
    with pccl.Communicator(master) as first, pccl.Communicator(master) as second:
        first.connect()
        thread = threading.Thread(target=second.connect, daemon=True)
        thread.start()
        admit(first, 2)
        thread.join(PATIENCE_S)
        victim = script(VICTIM, master, PCCL_LOG_LEVEL="NONE")

        def let_in(index: int) -> None:
            admit([first, second][index], 3)

        run_threads(2, let_in)
        assert victim.line() == "launched"

        def reduce(index: int) -> int:
            communicator = [first, second][index]
            array = numpy.full(1000, 2.0)
            handle = communicator.all_reduce_async(array, array, op=ReduceOp.SUM)
            if index == 0:
                victim.process.kill()
            ok, status, _ = handle.wait()
            attempts = 1
            while not ok:
                assert status == pccl.Result.RANK_CONNECTION_LOST
                assert (array == 2).all()
                assert communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 2
                ok, status, info = communicator.all_reduce_async(array, array, op=ReduceOp.SUM).wait()
                attempts += 1
            assert (array == 4).all() or (array == 5).all()
            return attempts

        attempts = run_threads(2, reduce)
        assert attempts[0] == attempts[1]
