"""Training loops of torch programs that themselves reduce parameters, differences and views of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl  # noqa: E402
from conftest import admit, run_threads  # noqa: E402
from pccl import ReduceOp  # noqa: E402

RunPeers = Callable[..., list[Any]]
STEPS, ROUNDS = 3, 4


def make_model() -> Any:
    draw = torch.Generator().manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) / 3)
    return model


def train(model: Any, optimizer: Any, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        inputs = torch.randn(8, 5, generator=draw)
        optimizer.zero_grad()
        (model(inputs) - inputs[:, :2]).square().mean().backward()
        optimizer.step()


def content(tensors: Any) -> list[bytes]:
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


def test_differences_with_a_graph_are_reduced_in_place(master: str) -> None:
    """Synchronous DiLoCo whose pseudo-gradient is `outer - local` of two parameters: a tensor that requires grad."""

    def peer(index: int) -> list[bytes]:
        with pccl.Communicator(master) as communicator:
            communicator.connect()
            admit(communicator, 2)
            model = make_model()
            inner = torch.optim.AdamW(model.parameters(), lr=0.01)
            outer_parameters = [torch.nn.Parameter(one.detach().clone()) for one in model.parameters()]
            outer = torch.optim.SGD(outer_parameters, lr=0.7, momentum=0.9, nesterov=True)
            names = [name for name, _ in model.named_parameters()]
            state = pccl.SharedState(
                [pccl.TensorInfo.from_torch(one, name) for one, name in zip(outer_parameters, names, strict=True)]
            )
            for turn in range(ROUNDS):
                if turn > 0:
                    communicator.update_topology()
                synced = communicator.sync_shared_state(state)
                assert turn == 0 or synced.rx_bytes == 0
                train(model, inner, 100 * index + turn)
                handles = []
                for tag, (mine, local) in enumerate(zip(outer_parameters, model.parameters(), strict=True)):
                    difference = mine - local
                    assert difference.requires_grad and not difference.is_leaf
                    handle = communicator.all_reduce_async(difference, difference, op=ReduceOp.AVG, tag=tag)
                    handles.append((mine, difference, handle))
                for mine, difference, handle in handles:
                    assert handle.wait()[0]
                    mine.grad = difference.detach()
                outer.step()
                with torch.no_grad():
                    for mine, local in zip(outer_parameters, model.parameters(), strict=True):
                        local.copy_(mine)
                state.push_revision()
            communicator.update_topology()
            return content(outer_parameters)

    first, second = run_threads(2, peer)
    assert first == second
    assert first != content(make_model().parameters())


@pytest.mark.parametrize("recording", [False, True])
def test_parameters_are_averaged_where_they_lie(run_peers: RunPeers, recording: bool) -> None:
    """Averages the weights themselves, with and without autograd recording."""

    def body(communicator: pccl.Communicator, index: int) -> list[bytes]:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, index)
        own = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.set_grad_enabled(recording):
            for tag, parameter in enumerate(model.parameters()):
                communicator.all_reduce(parameter, parameter, op=ReduceOp.AVG, tag=tag)
            descriptors = [
                pccl.ReduceOpDescriptor.from_torch(
                    mine,
                    parameter,
                    pccl.ReduceDescriptor(
                        parameter.numel(), ReduceOp.MAX, tag, pccl.ReduceOperandDescriptor(pccl.DataType.FLOAT)
                    ),
                )
                for tag, (mine, parameter) in enumerate(zip(own, model.parameters(), strict=True))
            ]
            averaged = content(model.parameters())
            communicator.all_reduce_multiple_with_retry(descriptors)
        assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())
        assert all((parameter >= mine).all() for mine, parameter in zip(own, model.parameters(), strict=True))
        train(model, optimizer, index)  # autograd goes on
        return averaged

    first, second = run_peers(2, body)
    assert first == second


def test_views_and_aliases(run_peers: RunPeers) -> None:
    """A row of a parameter, a reshaped parameter, and one memory under two tensors."""

    def body(communicator: pccl.Communicator, index: int) -> None:
        weight = torch.nn.Parameter(torch.full((4, 3), float(index + 1)))
        communicator.all_reduce(weight[1], weight[1], op=ReduceOp.SUM)
        communicator.all_reduce(weight.view(-1)[6:], weight.detach().view(-1)[6:], op=ReduceOp.SUM)
        communicator.all_reduce(weight.data[0], weight[0], op=ReduceOp.SUM)
        assert weight.eq(3).all() and weight.requires_grad
        send = torch.full((12,), float(index), requires_grad=True)
        communicator.all_reduce(send, weight, op=ReduceOp.SUM)
        assert weight.eq(1).all() and send.eq(index).all()
        with torch.inference_mode():
            frozen = torch.full((3,), float(index))
            communicator.all_reduce(frozen, frozen, op=ReduceOp.SUM)
            assert frozen.eq(1).all()

    run_peers(2, body)


def test_one_step_behind_with_a_thread_that_reduces(master: str) -> None:
    """Asynchronous DiLoCo: a thread averages the difference of the last round while the model trains on. A failure in
    that thread fails the test. A program would exit with 0 and an untrained model."""

    def peer(index: int) -> list[bytes]:
        with pccl.Communicator(master) as communicator:
            communicator.connect()
            admit(communicator, 2)
            model = make_model()
            inner = torch.optim.SGD(model.parameters(), lr=0.05)
            outer_parameters = [torch.nn.Parameter(one.detach().clone()) for one in model.parameters()]
            outer = torch.optim.SGD(outer_parameters, lr=0.7, momentum=0.9, nesterov=True)
            failures: list[BaseException] = []
            reducing: threading.Thread | None = None

            def land() -> None:
                assert reducing is not None
                reducing.join()
                assert not failures, failures
                outer.step()
                with torch.no_grad():
                    for mine, local in zip(outer_parameters, model.parameters(), strict=True):
                        local.copy_(mine)

            for turn in range(ROUNDS):
                train(model, inner, 100 * index + turn)
                learned = [mine - local for mine, local in zip(outer_parameters, model.parameters(), strict=True)]
                if reducing is not None:
                    land()

                def reduce(learned: list[Any] = learned) -> None:
                    try:
                        for tag, (mine, difference) in enumerate(zip(outer_parameters, learned, strict=True)):
                            handle = communicator.all_reduce_async(difference, difference, op=ReduceOp.AVG, tag=tag)
                            handle.result()
                            mine.grad = difference.detach()
                    except BaseException as error:
                        failures.append(error)

                reducing = threading.Thread(target=reduce)
                reducing.start()
            land()
            communicator.update_topology()
            return content(outer_parameters)

    first, second = run_threads(2, peer)
    assert first == second
