"""DiLoCo with models that change, or differ between peers: peers average what they train, or raise an error."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pccl  # noqa: E402
from conftest import PATIENCE_S, run_threads  # noqa: E402
from diloco_trainee import MODES, Trainee, train_together, vector  # noqa: E402
from pccl.diloco import DiLoCo, Event  # noqa: E402
from pccl.diloco._parameters import Parameters  # noqa: E402

# ---- parameters that change after the helper was made


def other_memory(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def other_type_and_back(model: Any) -> None:
    model.double().float()


@pytest.mark.parametrize("change", [other_memory, other_type_and_back])
def test_parameters_with_other_memory_are_averaged_on(master: str, change: Callable[[Any], None]) -> None:
    expected = [vector(trainee.model) for trainee, _, _ in train_together(master, 2, 8, H=2, overlap=True)]

    def body(index: int) -> Any:
        trainee = Trainee(index)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2, overlap=True, min_peers=2)
            if index == 1:
                change(trainee.model)
            with diloco:
                trainee.train(diloco, 3)
                if index == 0:
                    change(trainee.model)
                trainee.train(diloco, 8)
        return vector(trainee.model)

    for ours, same in zip(run_threads(2, body), expected, strict=True):
        assert torch.equal(ours, same)


def halved(model: Any) -> None:
    model.half()


def assigned(model: Any) -> None:
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)


def frozen(model: Any) -> None:
    model[2].bias.requires_grad_(False)


def unfrozen(model: Any) -> None:
    model[0].bias.requires_grad_(True)


def reshaped(model: Any) -> None:
    model[0].weight.data = torch.zeros(20, 12)


def freed(model: Any) -> None:
    model[2].weight.untyped_storage().resize_(0)


CHANGES = {
    halved: r"0.weight is torch.float16 \(40, 6\) and was torch.float32.*convert the model before",
    assigned: r"0.weight was replaced by another object \(load_state_dict\(assign=True\)\?\)",
    frozen: "2.bias was frozen or removed",
    unfrozen: "0.bias requires a gradient and did not.*never be averaged",
    reshaped: r"0.weight is torch.float32 \(20, 12\) and was",
    freed: "2.weight has no memory",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_no_longer_trains_what_is_averaged_is_refused(
    master: str, change: Callable[[Any], None]
) -> None:
    """The peer raises an error and leaves. The others go on without its zeros, and do not wait for it."""

    def body(index: int) -> int:
        trainee = Trainee(index)
        trainee.model[0].bias.requires_grad_(False)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2, min_peers=2)
            diloco.join()
            trainee.train(diloco, 4)
            if index == 1:
                while diloco.inner_step % 2 == 0:  # the capture is at the end of a round
                    trainee.train(diloco, diloco.inner_step + 1)
                change(trainee.model)
                with pytest.raises(pccl.PCCLArgumentError, match=CHANGES[change]):
                    diloco.advance()
                assert diloco.world == 1
                with pytest.raises(RuntimeError, match=r"join\(\) comes before"):
                    diloco.advance()
                gone.wait(PATIENCE_S)  # the communicator stays open
                return 0
            while diloco.world == 2:
                trainee.train(diloco, diloco.inner_step + 2)
            gone.set()
            return diloco.batches

    gone = threading.Event()
    # Two rounds of two steps by two peers, and at least one round of two that the first peer trained alone.
    assert run_threads(2, body)[0] >= 2 * 2 * 2 + 2
    with pccl.Communicator(master) as comm:
        trainee = Trainee(0)
        trainee.model[0].bias.requires_grad_(False)
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm)
        change(trainee.model)
        with pytest.raises(pccl.PCCLArgumentError, match=CHANGES[change]):
            diloco.join()


def test_a_helper_that_fails_while_it_joins_leaves(master: str) -> None:
    """It leaves after it was admitted. Here an exception of the program itself makes it fail."""

    def body(index: int) -> int:
        trainee = Trainee(index)

        def fail(event: Event) -> None:
            if index == 1 and event.kind == "joined":
                raise ZeroDivisionError

        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=2, min_peers=2, on_event=fail)
            if index == 1:
                with pytest.raises(ZeroDivisionError):
                    diloco.join()
                gone.wait(PATIENCE_S)  # the communicator stays open
                return 0
            diloco.join()
            trainee.train(diloco, 6)
            gone.set()
            return diloco.world

    gone = threading.Event()
    assert run_threads(2, body) == [1, 0]


# ---- models that differ between peers


def layers(*parts: Any) -> Any:
    return torch.nn.Sequential(*parts)


ALIKE = lambda: layers(torch.nn.Linear(6, 4, bias=False), torch.nn.Linear(4, 6, bias=False))  # noqa: E731
OTHERS = {
    "shapes": lambda: layers(torch.nn.Linear(4, 6, bias=False), torch.nn.Linear(6, 4, bias=False)),
    "order and names": lambda: torch.nn.ModuleDict(
        {"up": torch.nn.Linear(6, 4, bias=False), "down": torch.nn.Linear(4, 6, bias=False)}
    ),
    "types": lambda: ALIKE().bfloat16(),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_model_of_equal_size_that_is_another_one_is_refused(master: str, other: str) -> None:
    refused, begun = threading.Event(), threading.Event()

    def body(index: int) -> str:
        model = ALIKE() if index == 0 else OTHERS[other]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pccl.Communicator(master) as comm:
            if index == 0:
                with DiLoCo(model, optimizer, comm, H=1) as diloco:
                    begun.set()
                    while not refused.is_set():
                        diloco.step()
                    assert diloco.world == 1
                return ""
            begun.wait(PATIENCE_S)
            try:
                with pytest.raises(pccl.PCCLError) as failure:
                    DiLoCo(model, optimizer, comm, H=1).join()
            finally:
                refused.set()
            return str(failure.value)

    message = run_threads(2, body)[1]
    shown = re.findall(r"diloco\.outer\(2 tensors of 48 elements, ([0-9a-f]{16})\)", message)
    assert len(set(shown)) == 2, message


@pytest.mark.filterwarnings("ignore")  # warnings of torch about itself
def test_wrappers_do_not_make_another_model() -> None:
    plain = str(Parameters(ALIKE()))
    assert str(Parameters(torch.compile(ALIKE()))) == plain
    compiled_inside = ALIKE()
    compiled_inside[1] = torch.compile(compiled_inside[1])
    assert str(Parameters(compiled_inside)) == plain
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    checkpointed = ALIKE()
    checkpointed[0] = checkpoint_wrapper(checkpointed[0])
    assert str(Parameters(checkpointed)) == plain


@pytest.mark.filterwarnings("ignore")  # warnings of torch about itself
def test_wrappers_of_process_groups() -> None:
    from torch import distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert str(Parameters(DistributedDataParallel(ALIKE()))) == str(Parameters(ALIKE()))
        for original in (False, True):
            flat = FullyShardedDataParallel(ALIKE(), device_id=torch.device("cpu"), use_orig_params=original)
            for model in (flat, layers(flat)):
                with pytest.raises(ValueError, match="FSDP1.*flat parameters.*fully_shard"):
                    Parameters(model)
    finally:
        dist.destroy_process_group()


# ---- the program's defaults


@pytest.mark.parametrize("mode", ["one_step_behind", "streaming_int8", "sync_ring"])
def test_defaults_of_torch_do_not_matter(master: str, mode: str) -> None:
    """A program may create its tensors on a GPU and in another type. A tensor on the meta device has no memory."""
    options = MODES[mode]
    expected = [vector(trainee.model) for trainee, _, _ in train_together(master, 2, 12, **options)]
    comms = [pccl.Communicator(master) for _ in range(2)]
    trainees = [Trainee(index) for index in range(2)]
    torch.set_default_dtype(torch.float64)  # of all threads
    try:
        with torch.device("meta"):  # of this one
            made = [
                DiLoCo(trainee.model, trainee.optimizer, comm, min_peers=2, **options)
                for trainee, comm in zip(trainees, comms, strict=True)
            ]
    finally:
        torch.set_default_dtype(torch.float32)

    def body(index: int) -> Any:
        trainee, diloco = trainees[index], made[index]
        with torch.device("meta"):
            diloco.join()
        while diloco.inner_step < 12:
            trainee.optimizer.zero_grad()
            trainee.loss(diloco.inner_step).backward()
            with torch.device("meta"):
                diloco.step()
        with torch.device("meta"):
            diloco.finish()
        comms[index].close()
        return vector(trainee.model)

    first, second = run_threads(2, body)
    assert torch.equal(first, second)
    # How the ring rounds depends on who joined first.
    assert torch.allclose(first, expected[0], rtol=0, atol=0.01 if mode == "sync_ring" else 0)
