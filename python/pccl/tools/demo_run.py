"""The run behind ``python -m pccl demo``: a master in this process, workers as processes, and what they report."""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pccl
from pccl import _logging
from pccl.tools.screen import printable

_PATIENCE_S = 60.0  # without a step of any worker
_END_S = 10.0


class DemoError(Exception):
    """The demo failed; the text says what happened."""


@dataclass(frozen=True)
class Step:
    step: int
    at: float  # seconds since the beginning
    loss: float
    reduce_ms: float
    world: int
    sent: int
    digest: str  # of the weights behind the step


@dataclass
class Worker:
    index: int
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    state: str = "starting"
    life: int = 0
    digest: str = ""
    steps: list[Step] = field(default_factory=list)  # of all lives


@dataclass
class Outage:
    worker: int
    killed_at: float
    killed_step: int
    others_at: float | None = None  # first step of another worker behind the kill
    back_at: float | None = None
    back_step: int | None = None


@dataclass(frozen=True)
class Plan:
    workers: int
    steps: int
    kill: bool
    leave: bool
    pace: float

    @property
    def kill_step(self) -> int:
        return self.steps // 4

    @property
    def leave_step(self) -> int:
        return self.steps // 2

    @property
    def at_the_end(self) -> int:
        return self.workers - 1 if self.leave else self.workers

    def return_step(self, killed_step: int) -> int:
        # At two thirds the others stop until all workers are there.
        return min(killed_step + max(2, self.steps // 10), self.steps * 2 // 3)


class _LogLines(logging.Handler):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        self._run.queue.put((-1, 0, {"event": "log", "text": record.getMessage()}))


class Run:
    """A context manager. At its end no process is left."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.workers: list[Worker] = []
        self.happened: list[tuple[float, str]] = []
        self.outage: Outage | None = None
        self.digests: dict[int, str] = {}  # by step
        self.queue: queue.Queue[tuple[int, int, dict[str, Any] | None]] = queue.Queue()
        self._began = time.monotonic()
        self._progress = self._began
        self._log = _LogLines(self)
        self._master = pccl.MasterNode("127.0.0.1:0")

    def __enter__(self) -> Run:
        logger = logging.getLogger("pccl")
        logger.addHandler(self._log)
        logger.propagate = False
        try:
            self._master.run()
            self._note(f"the master listens on 127.0.0.1:{self._master.port}")
            for index in range(self.plan.workers):
                self._start(index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
            worker.errors.close()
        self._master.close()
        # Lines about the workers that were just killed come late, and are of no use on the screen.
        _logging.flush()
        logger = logging.getLogger("pccl")
        logger.removeHandler(self._log)
        logger.propagate = True

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._master.port}"

    def now(self) -> float:
        return time.monotonic() - self._began

    def step(self) -> int:
        return max((worker.steps[-1].step for worker in self.workers if worker.steps), default=0)

    def turns(self, interval: float) -> Iterator[None]:
        """Yields after each ``interval``, until all workers have left or reached the end. Raises DemoError."""
        shown = time.monotonic()
        while any(worker.state not in ("done", "left") for worker in self.workers):
            try:
                index, life, event = self.queue.get(timeout=max(0.0, shown + interval - time.monotonic()))
                self._take(index, life, event)
            except queue.Empty:
                pass
            if time.monotonic() >= shown + interval:
                shown = time.monotonic()
                yield
            self._bring_back()
            if time.monotonic() - self._progress > _PATIENCE_S:
                raise DemoError(f"nobody has made a step for {_PATIENCE_S:.0f} s; workers: {self._states()}")
        for worker in self.workers:
            worker.process.wait(_END_S)
        if len({worker.digest for worker in self.workers if worker.state == "done"}) != 1:
            raise DemoError("the workers hold different weights: " + self._states())

    def _start(self, index: int) -> None:
        options = {
            "master": self.address,
            "index": index,
            "steps": self.plan.steps,
            "workers": self.plan.at_the_end,
            "pace": self.plan.pace,
        }
        if self.plan.leave and index == 0:
            options["leave-at"] = self.plan.leave_step
        if self.plan.kill and index == self.plan.workers - 1 and self.outage is None:
            options["hold-at"] = self.plan.kill_step
        command = [sys.executable, "-m", "pccl.tools.demo_worker"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        folder = str(Path(pccl.__file__).resolve().parents[1])
        path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
        errors = tempfile.TemporaryFile()
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closes when this process ends, and then the worker ends, too
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches only the parent, which ends the workers
            env={"PCCL_PORT_RANGE": "0", **os.environ, "PYTHONPATH": path},
        )
        if index < len(self.workers):
            worker = self.workers[index]
            worker.errors.close()
            worker.process, worker.errors, worker.state = process, errors, "starting"
            worker.life += 1
        else:
            worker = Worker(index, process, errors)
            self.workers.append(worker)
        threading.Thread(target=self._read, args=(index, worker.life, process), daemon=True).start()

    def _read(self, index: int, life: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stdin is not None
        for text in process.stdout:
            try:
                self.queue.put((index, life, json.loads(text)))
            except ValueError:
                self.queue.put((index, life, {"event": "log", "text": text.decode(errors="replace").strip()}))
        process.stdout.close()
        process.stdin.close()
        self.queue.put((index, life, None))

    def _take(self, index: int, life: int, event: dict[str, Any] | None) -> None:
        if index < 0:
            assert event is not None
            self._note(event["text"])  # begins with "master"
            return
        worker = self.workers[index]
        if life != worker.life or worker.state == "killed":
            return  # late events of a process that is gone
        if event is None:
            if worker.state not in ("done", "left"):
                raise DemoError(f"worker {index} ended ({worker.process.wait()}):\n{self._errors(worker)}")
            return
        kind = event["event"]
        if kind == "step":
            self._take_step(worker, event)
        elif kind == "connected":
            worker.state = "joined"
            self._note(f"worker {index} is in, with {event['world'] - 1} others")
        elif kind == "wait":
            worker.state = f"waits for {event['needed']}"
        elif kind == "held":
            self._kill(worker)
        elif kind == "retry":
            self._note(f"worker {index}: {event['what']} again, because {event['text']}")
        elif kind == "log":
            self._note(f"worker {index}: {event['text']}")
        elif kind == "left":
            worker.state = "left"
            self._note(f"worker {index} leaves behind step {worker.steps[-1].step}, as it was told to")
        elif kind == "end":
            worker.state, worker.digest = "done", event["digest"]
        elif kind == "failed":
            raise DemoError(f"worker {index}: {event['text']}")

    def _take_step(self, worker: Worker, event: dict[str, Any]) -> None:
        step = Step(
            event["step"], self.now(), event["loss"], event["reduce_ms"], event["world"], event["sent"], event["digest"]
        )
        worker.state = "trains"
        worker.steps.append(step)
        self._progress = time.monotonic()
        if self.digests.setdefault(step.step, step.digest) != step.digest:
            raise DemoError(f"worker {worker.index} holds other weights than the others behind step {step.step}")
        outage = self.outage
        if outage is None:
            return
        if outage.worker != worker.index and outage.others_at is None and step.step > outage.killed_step:
            outage.others_at = step.at
        if outage.worker == worker.index and outage.back_step is None:
            outage.back_at, outage.back_step = step.at, step.step
            self._note(f"worker {worker.index} is back, at step {step.step} with the state of the others")

    def _kill(self, worker: Worker) -> None:
        worker.process.kill()
        worker.process.wait()
        worker.state = "killed"
        self.outage = Outage(worker.index, self.now(), self.step())
        self._note(f"worker {worker.index} is killed in the step behind {self.step()}")

    def _bring_back(self) -> None:
        outage = self.outage
        if outage is None or self.workers[outage.worker].state != "killed":
            return
        if self.step() >= self.plan.return_step(outage.killed_step):
            self._note(f"worker {outage.worker} is started again, at step {self.step()} of the others")
            self._start(outage.worker)

    def _note(self, text: str) -> None:
        self.happened.append((self.now(), printable(text)))

    def _states(self) -> str:
        return ", ".join(f"{worker.index} {worker.state} {worker.digest[:8]}".strip() for worker in self.workers)

    def _errors(self, worker: Worker) -> str:
        worker.errors.seek(0)
        return worker.errors.read()[-4000:].decode(errors="replace")
