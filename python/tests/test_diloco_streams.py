"""DiLoCo of models on a GPU, without one: inner steps are late, and so are the copies from and to the parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pccl  # noqa: E402
from conftest import PATIENCE_S, run_threads  # noqa: E402
from diloco_trainee import MODES, Trainee, vector  # noqa: E402
from late_streams import LateStreams, gpu  # noqa: E402, F401 (a fixture)
from pccl.diloco import DiLoCo  # noqa: E402


class Drift(torch.optim.Optimizer):
    """Moves all parameters, each step and each peer in another way."""

    def __init__(self, model: Any, index: int, do: Callable[[Callable[[], object]], object]) -> None:
        super().__init__(model.parameters(), {})
        self._steps = 0
        self._index = index
        self._do = do

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._steps += 1
        amount = 0.01 * (self._index + 1) * self._steps
        for parameter in self.param_groups[0]["params"]:
            self._do(lambda parameter=parameter: parameter.data.mul_(1 - amount).add_(amount))


def train(master: str, mode: str, gpu: LateStreams | None) -> list[tuple[Any, Any]]:  # noqa: F811
    # Without mix: the fake streams are late with copies only, and not with arithmetic.
    options = {**MODES[mode], "min_peers": 2, "mix": 0.0}
    # Where the ring quantizes, the bytes depend on who is first in it. Both runs have the same order.
    first_is_member = threading.Event()

    def body(index: int) -> tuple[Any, Any]:
        model = Trainee(index).model
        if gpu is not None:
            for parameter in model.parameters():
                gpu.put(parameter)
        optimizer = Drift(model, index, (lambda work: work()) if gpu is None else (lambda work: gpu.current().do(work)))
        with pccl.Communicator(master) as communicator:
            if index == 1:
                assert first_is_member.wait(PATIENCE_S)
            communicator.connect()
            first_is_member.set()
            with DiLoCo(model, optimizer, communicator, **options) as diloco:
                while diloco.inner_step < 3 * options["H"]:
                    diloco.step()
        if gpu is not None:
            gpu.current().synchronize()
        return diloco.outer, vector(model)

    return run_threads(2, body)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_model_on_a_gpu_gets_the_same_bytes(mode: str, gpu: LateStreams) -> None:  # noqa: F811
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        on_cpu = train(f"127.0.0.1:{node.port}", mode, None)
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        late = train(f"127.0.0.1:{node.port}", mode, gpu)
    for plain, staged in zip(on_cpu, late, strict=True):
        assert torch.equal(plain[0], staged[0])
        assert torch.equal(plain[1], staged[1])
