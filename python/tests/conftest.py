"""Runs on this machine: masters in this process, peers as threads or as processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["PCCL_PORT_RANGE"] = "0"

import pccl

# A test that hangs fails after this time. Unless the machine is busy, no test takes a tenth of it. Runs with planted
# bugs set a shorter time.
PATIENCE_S = float(os.environ.get("PCCL_TEST_PATIENCE_S", 500))


ALL_SKIPPED = 77  # ctest counts a test with this exit code as skipped


def pytest_sessionfinish(session: pytest.Session) -> None:
    """For pytest, a file that is skipped as a whole has no tests: count it as skipped. A file that has no tests by
    mistake remains an error."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = ALL_SKIPPED


@pytest.fixture
def master() -> Iterator[str]:
    """The address of a master."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        yield f"127.0.0.1:{node.port}"


@pytest.fixture
def port() -> Iterator[int]:
    """A port for masters that start later or again. It stays bound all the time, so that no other process gets it."""
    with reserved_port() as number:
        yield number


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.002)  # only spares the processor


def in_one_run(run: Callable[[], Any], check: Callable[[Any], None], runs: int = 20) -> None:
    """Calls ``check(run())`` until the check passes; raises its last failure. For counts of bytes: if threads wait for a
    processor, a connection may seem to stall, and its bytes are sent again on another one. Not each run has that."""
    for _ in range(runs - 1):
        result = run()
        with contextlib.suppress(AssertionError):
            return check(result)
    check(run())


def admit(
    communicator: pccl.Communicator, world: int, attribute: pccl.Attribute = pccl.Attribute.GLOBAL_WORLD_SIZE
) -> None:
    """Admits peers until there are ``world`` members. All members call it with the same number."""
    while communicator.get_attribute(attribute) < world:
        if communicator.are_peers_pending():
            communicator.update_topology()
        else:
            time.sleep(0.002)  # only spares the processor


def run_threads(count: int, body: Callable[[int], Any]) -> list[Any]:
    """Calls body(0..count-1), each in a thread. Returns their results; raises the first failure."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = body(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.02)
        # The others may wait for a peer that has failed.
        if failures or time.monotonic() > deadline:
            break
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "peers hang"
    return results


@pytest.fixture
def run_peers(master: str) -> Callable[..., list[Any]]:
    """run_peers(n, body): n members of one run, each a thread that calls body(communicator, index)."""

    def run(count: int, body: Callable[[pccl.Communicator, int], Any], **settings: Any) -> list[Any]:
        made: list[pccl.Communicator] = []

        def member(index: int) -> Any:
            communicator = pccl.Communicator(master, **settings)
            made.append(communicator)
            communicator.connect()
            admit(communicator, count)
            return body(communicator, index)

        try:
            return run_threads(count, member)
        finally:
            for communicator in made:
                communicator.close()

    return run


# A shell starts what runs in its background with SIGINT ignored, and programs pass that on to those that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Script:
    """A Python program in a process of its own. Lines of its standard output are read one by one."""

    def __init__(self, source: str, *arguments: str, options: tuple[str, ...] = (), **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *options, "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        overdue = threading.Timer(PATIENCE_S, self.process.kill)
        overdue.start()
        text = self.process.stdout.readline().rstrip("\n")
        overdue.cancel()
        if not text:
            _, errors = self.process.communicate(timeout=PATIENCE_S)
            raise AssertionError(f"the script ended:\n{errors}")
        return text

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, timeout: float = PATIENCE_S) -> tuple[int, str, str]:
        """Waits for the end. Returns exit status, the rest of standard output, and standard error."""
        output, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, output, errors

    def wait_until_handled(self, number: signal.Signals) -> None:
        """Blocks until the script has a handler for the signal."""

        def handled() -> bool:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
            return bool(int(caught, 16) >> (number - 1) & 1)

        wait_until(handled, f"the script has a handler for {number.name}")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    made: list[Script] = []

    def start(*arguments: str, **keywords: Any) -> Script:
        made.append(Script(*arguments, **keywords))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.kill()
        for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def tree() -> Path:
    return Path(__file__).resolve().parents[2]
