"""A worker of ``python -m pccl demo``. It trains a small network with the other workers, and reports to its parent what
happens, one JSON object per line. It ends when its parent ends."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy
from numpy.typing import NDArray

import pccl
from pccl import Attribute, ReduceOp

Array = NDArray[numpy.float32]
_T = TypeVar("_T")
_HIDDEN = 32
_CLASSES = 3
_BATCH = 96
_RATE = 0.5
_PAUSE_S = 0.02
_HELD_S = 3600.0


class Network:
    """Two layers in one array. All workers keep it equal, and reduce its gradient."""

    def __init__(self) -> None:
        shapes = [(2, _HIDDEN), (_HIDDEN,), (_HIDDEN, _CLASSES), (_CLASSES,)]
        sizes = [int(numpy.prod(shape)) for shape in shapes]
        ends = [int(end) for end in numpy.cumsum(sizes)[:-1]]
        self.weights: Array = numpy.zeros(sum(sizes), numpy.float32)
        self.gradient: Array = numpy.zeros_like(self.weights)
        self._w1, self._b1, self._w2, self._b2 = self._views(self.weights, ends, shapes)
        self._g = self._views(self.gradient, ends, shapes)
        start = numpy.random.default_rng(1)
        self._w1[:] = start.normal(0, 1, self._w1.shape)
        self._w2[:] = start.normal(0, 0.1, self._w2.shape)

    def digest(self) -> str:
        return hashlib.sha256(self.weights.tobytes()).hexdigest()

    @staticmethod
    def _views(array: Array, ends: list[int], shapes: list[Any]) -> list[Array]:
        return [part.reshape(shape) for part, shape in zip(numpy.split(array, ends), shapes, strict=True)]

    def learn(self, points: Array, classes: NDArray[numpy.int64]) -> float:
        """Computes the gradient of this batch; returns its loss."""
        hidden = numpy.maximum(points @ self._w1 + self._b1, 0)
        scores = hidden @ self._w2 + self._b2
        scores -= scores.max(axis=1, keepdims=True)
        chances = numpy.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        rows = numpy.arange(len(classes))
        loss = float(-numpy.log(chances[rows, classes] + 1e-9).mean())
        error = chances
        error[rows, classes] -= 1
        error /= len(classes)
        back = (error @ self._w2.T) * (hidden > 0)
        for target, value in zip(
            self._g, (points.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)), strict=True
        ):
            target[:] = value
        return loss


def batch(random: numpy.random.Generator) -> tuple[Array, NDArray[numpy.int64]]:
    """Points on three arms of a spiral, and the arm of each point."""
    classes = random.integers(0, _CLASSES, _BATCH)
    radius = random.uniform(0.05, 1, _BATCH)
    angle = 3 * radius + classes * 2 * numpy.pi / _CLASSES + random.normal(0, 0.12, _BATCH)
    points = numpy.stack([radius * numpy.cos(angle), radius * numpy.sin(angle)], axis=1)
    return (2 * points).astype(numpy.float32), classes


def tell(event: str, **fields: Any) -> None:
    # One write per line, so that lines of several threads do not mix.
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell("log", text=record.getMessage())


def end_with_parent() -> None:
    """Ends this process when the parent ends. The parent holds the other end of standard input and never writes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def again(call: Callable[[], _T], what: str) -> _T:
    """Repeats the call until it succeeds. The loss of another peer is no reason to end."""
    while True:
        try:
            return call()
        except pccl.PCCLConnectionLostError as error:
            tell("retry", what=what, text=error.cause)


def train(
    communicator: pccl.Communicator, index: int, steps: int, workers: int, pace: float, hold_at: int, leave_at: int
) -> Network | None:
    """The network behind the last step; nothing if this worker leaves before."""
    network = Network()
    step = numpy.zeros(1, numpy.int64)  # the revision also counts the turns in which workers only wait
    state = pccl.SharedState(
        [pccl.TensorInfo.from_numpy(network.weights, "weights"), pccl.TensorInfo.from_numpy(step, "step")]
    )
    random = numpy.random.default_rng([index, os.getpid()])
    first = True
    while True:
        if not first:
            again(communicator.update_topology, "update_topology")
        first = False
        # Sizes that are read after a call of all members are the same for all, so all of them branch alike.
        if communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) < 2:
            tell("wait", needed=2)
            time.sleep(_PAUSE_S)
            continue
        again(lambda: communicator.sync_shared_state(state), "sync_shared_state")
        if step[0] >= steps:
            return network
        # The last third needs all workers, so that a lost one has time to come back.
        if step[0] >= steps * 2 // 3 and communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) < workers:
            tell("wait", needed=workers)
            time.sleep(_PAUSE_S)
            state.push_revision()
            continue
        began = time.monotonic()
        loss = network.learn(*batch(random))
        if hold_at and step[0] >= hold_at:
            # In the middle of a step, while the others wait for this worker: the parent kills it now.
            tell("held")
            time.sleep(_HELD_S)
        reduced = numpy.empty_like(network.gradient)
        try:
            asked = time.monotonic()
            info = again(
                lambda: communicator.all_reduce(network.gradient, reduced, op=ReduceOp.AVG), "all_reduce"
            )
            reduce_s = time.monotonic() - asked
        except pccl.PCCLTooFewPeersError:
            state.push_revision()
            continue
        network.weights -= numpy.float32(_RATE) * reduced
        step += 1
        state.push_revision()
        tell(
            "step", step=int(step[0]), loss=loss, reduce_ms=reduce_s * 1000, world=info.local_world_size,
            sent=info.tx_bytes, digest=network.digest(),
        )  # fmt: skip
        if leave_at and step[0] >= leave_at:
            return None
        time.sleep(max(0.0, pace - (time.monotonic() - began)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="pccl.tools.demo_worker")
    parser.add_argument("--master", required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--pace", type=float, required=True)
    parser.add_argument("--hold-at", type=int, default=0)
    parser.add_argument("--leave-at", type=int, default=0)
    options = parser.parse_args()
    end_with_parent()
    logger = logging.getLogger("pccl")
    logger.addHandler(_Teller())
    logger.propagate = False
    try:
        with pccl.Communicator(options.master) as communicator:
            communicator.connect()
            tell("connected", world=communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE))
            network = train(
                communicator,
                options.index,
                options.steps,
                options.workers,
                options.pace,
                options.hold_at,
                options.leave_at,
            )
            if network is None:
                tell("left")
            else:
                tell("end", digest=network.digest())
    except pccl.PCCLError as error:
        tell("failed", text=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
