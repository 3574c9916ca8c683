"""What of models and optimizers is shared, and in which memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl
import pccl.torch
import torch.distributed as dist
from conftest import admit, run_threads
from torch_peers import Channel, Peer, start  # noqa: F401

Start = Callable[..., Peer]


def model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def names(state: pccl.SharedState) -> list[str]:
    return [info.name for info in state.tensor_infos]


def test_a_shared_state_is_where_the_model_is() -> None:
    module = model()
    state = pccl.torch.shared_state(module, more={"step": torch.zeros((), dtype=torch.int64)})
    assert names(state) == [
        "model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias",
        "model.1.running_mean", "model.1.running_var", "model.1.num_batches_tracked", "more.step",
    ]  # fmt: skip
    assert state.tensor_infos[0].data_ptr == module[0].weight.data_ptr()
    compiled = torch.nn.Module()
    compiled._orig_mod = module  # as torch.compile wraps it
    assert names(pccl.torch.shared_state(compiled))[0] == "model.0.weight"
    local = pccl.torch.local_tensors(module)["0.weight"]
    local.zero_()
    assert not local.requires_grad and not module[0].weight.any()


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), []),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1), ["momentum_buffer"]),
        (lambda p: torch.optim.Adam(p, amsgrad=True), ["exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"]),
        (lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), weight_decay=0.1), ["exp_avg", "exp_avg_sq", "step"]),
        (
            lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
            ["grad_avg", "momentum_buffer", "square_avg", "step"],
        ),
        (lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.5), ["step", "sum"]),
        (lambda p: torch.optim.RAdam(p), ["exp_avg", "exp_avg_sq", "step"]),
    ],
)
def test_an_optimizer_that_was_shared_before_its_first_step_steps_as_ever(make: Any, keys: list[str]) -> None:
    shared, plain = model(), model()
    optimizers = [make(list(module.parameters())) for module in (shared, plain)]
    shared[0].weight.grad = torch.ones(3, 4)
    state = pccl.torch.shared_state(shared, optimizers[0])
    assert [name.removeprefix("optimizer.0.bias.") for name in names(state) if "optimizer.0.bias" in name] == keys
    assert torch.equal(shared[0].weight.grad, torch.ones(3, 4)) and shared[0].bias.grad is None
    inputs = torch.randn(8, 4)
    for _ in range(3):
        for module, optimizer in zip((shared, plain), optimizers, strict=True):
            optimizer.zero_grad()
            module(inputs).square().sum().backward()
            optimizer.step()
    for ours, theirs in zip(shared.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_sharing_an_optimizer_is_no_step() -> None:
    """Neither the parameters nor their gradients change, and no hook is called."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    module, called = model(), []
    optimizer = torch.optim.Adam(module.parameters(), eps=0.0)  # 0 / 0 in a step without gradient
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    everywhere = register_optimizer_step_post_hook(lambda *_: called.append("everywhere"))
    module(torch.randn(5, 4)).square().sum().backward()
    before = [(one.detach().clone(), one.grad.clone(), one._version) for one in module.parameters()]
    try:
        pccl.torch.shared_state(module, optimizer)
    finally:
        everywhere.remove()
    for one, (content, gradient, version) in zip(module.parameters(), before, strict=True):
        assert torch.equal(one, content) and torch.equal(one.grad, gradient) and one._version == version
    assert not called and len(optimizer.param_groups[0]["params"]) == len(before)
    optimizer.step()
    assert called == ["before", "after"]


def test_momentum_with_dampening_begins_with_a_gradient() -> None:
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    with pytest.raises(ValueError, match="SGD with dampening begins with the first gradient"):
        pccl.torch.shared_state(module, optimizer)
    module(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    assert any("momentum_buffer" in name for name in names(pccl.torch.shared_state(module, optimizer)))


def test_optimizers_whose_beginning_is_not_zero_must_begin_themselves() -> None:
    module = model()
    optimizer = torch.optim.NAdam(module.parameters())
    with pytest.raises(ValueError, match="a NAdam that has made no step yet.*first step"):
        pccl.torch.shared_state(module, optimizer)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert "optimizer.0.weight.mu_product" in names(pccl.torch.shared_state(module, optimizer))
    with pytest.raises(ValueError, match="a parameter that the module does not have"):
        pccl.torch.shared_state(torch.nn.Linear(2, 2), optimizer)


class Odd(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mask: Any
        self.phase: Any
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("phase", torch.tensor([1 + 2j]))


def test_types_that_the_library_does_not_know_travel_as_bytes(master: str) -> None:
    modules = [Odd(), Odd()]
    modules[1].mask.fill_(False)
    modules[1].phase.fill_(0)
    order = [pccl.Communicator(master) for _ in modules]
    order[0].connect()  # its content wins

    def body(index: int) -> None:
        if index:
            order[index].connect()
        admit(order[index], 2)
        order[index].sync_shared_state(pccl.torch.shared_state(modules[index]))

    run_threads(2, body)
    for communicator in order:
        communicator.close()
    assert modules[1].mask.tolist() == [True, False] and modules[1].phase.tolist() == [1 + 2j]


def test_replaced_memory_is_noticed(master: str) -> None:
    module = model()
    state = pccl.torch.shared_state(module)
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        communicator.sync_shared_state(state)
        state.push_revision()
        module[0].weight.data = torch.zeros(3, 4)
        with pytest.raises(ValueError, match="'model.0.weight' has other memory.*make the SharedState again"):
            communicator.sync_shared_state(state)


def dtensors(_: Channel, master: str) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    sharded = torch.nn.Parameter(distribute_tensor(torch.arange(8.0).view(4, 2), mesh, [Shard(0)]))
    local = pccl.torch.local_tensor(sharded)
    assert type(local) is torch.Tensor and not local.requires_grad
    local.mul_(2)
    assert torch.equal(sharded.full_tensor().detach(), torch.arange(8.0).view(4, 2) * 2)

    partial = DTensor.from_local(torch.ones(2), mesh, [Partial()])
    with pytest.raises(ValueError, match=r"partial.*use tensor.redistribute\(\)"):
        pccl.torch.local_tensor(partial)
    across = DTensor.from_local(torch.ones(2, 4).t(), mesh, [Replicate()])
    with pytest.raises(ValueError, match="not contiguous.*shard along the first dimension"):
        pccl.torch.local_tensor(across)

    # If a local tensor is needed, the error of the base package says how to get it.
    with pccl.Communicator(master) as communicator:
        with pytest.raises(ValueError, match=r"DTensor.*use tensor.to_local\(\)"):
            communicator.all_reduce(sharded, sharded, op=pccl.ReduceOp.AVG)
        with pytest.raises(ValueError, match=r"DTensor.*use tensor.to_local\(\)"):
            pccl.TensorInfo.from_torch(sharded, "weight")
    dist.destroy_process_group()


def test_dtensors(start: Start, master: str) -> None:
    start(dtensors, master).result()


def test_tensors_on_other_devices_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="device 'meta'.*materialize it first"):
        pccl.torch.shared_state(torch.nn.Linear(2, 2, device="meta"))
