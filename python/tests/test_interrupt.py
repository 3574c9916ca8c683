"""Ctrl-C ends every call that waits, and a program that Ctrl-C interrupts exits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, Script, admit

pytestmark = pytest.mark.torch_free

MakeScript = Callable[..., Script]

# A member whose other member does nothing, so each call waits for ever.
MEMBER = """
import os, signal, sys, threading
import numpy
import pccl
from pccl import ReduceOp

def interrupt_soon():
    # From another thread, so that this one is in the call by then; before it would do as well.
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

communicator = pccl.Communicator(sys.argv[1])
communicator.connect()
while communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
    if communicator.are_peers_pending():
        communicator.update_topology()
array = numpy.ones(100, numpy.float32)
state = pccl.SharedState([pccl.TensorInfo.from_numpy(array, "array")])
descriptor = pccl.ReduceOpDescriptor.from_numpy(
    array, array, pccl.ReduceDescriptor(100, ReduceOp.SUM, 0, pccl.ReduceOperandDescriptor(pccl.DataType.FLOAT))
)
"""

CALLS = {
    "update_topology": "communicator.update_topology()",
    "are_peers_pending": "communicator.are_peers_pending()",
    "optimize_topology": "communicator.optimize_topology()",
    "sync_shared_state": "communicator.sync_shared_state(state)",
    "all_reduce": "communicator.all_reduce(array, array, op=ReduceOp.SUM)",
    "all_reduce_multiple_with_retry": "communicator.all_reduce_multiple_with_retry([descriptor])",
    "handle.wait": "communicator.all_reduce_async(array, array, op=ReduceOp.SUM).wait()",
    "handle.wait(timeout)": "communicator.all_reduce_async(array, array, op=ReduceOp.SUM).wait(3600)",
}

INTERRUPTED = """
try:
    interrupt_soon()
    {call}
except KeyboardInterrupt:
    assert (array == 1).all()
    print("interrupted")
communicator.close()
print("closed")
"""


@pytest.fixture
def idle_member(master: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The master's address, and a function that admits one other peer."""
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        yield master, lambda: admit(communicator, 2)


@pytest.mark.parametrize("call", CALLS)
def test_each_call(call: str, idle_member: tuple[str, Callable[[], None]], script: MakeScript) -> None:
    address, let_in = idle_member
    program = script(MEMBER + INTERRUPTED.format(call=CALLS[call]), address)
    let_in()
    assert program.line() == "interrupted"
    assert program.line() == "closed"
    assert program.end()[0] == 0


@pytest.mark.parametrize("arrays", [1, 2])
def test_run(arrays: int, master: str, script: MakeScript) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        program = script(
            """
import os, signal, sys, threading
import numpy
import pccl

weights = numpy.zeros(4)
state = pccl.SharedState([pccl.TensorInfo.from_numpy(weights, "weights")])
communicator = pccl.Communicator(sys.argv[1])
run = pccl.Run(communicator, state, min_peers=2)
assert run.step()
arrays = [numpy.ones(4) for _ in range(int(sys.argv[2]))]
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    run.all_reduce(*arrays)
except KeyboardInterrupt:
    print("interrupted", communicator.state, *(array.sum() for array in arrays))
assert run.step()
print("again")
""",
            master,
            str(arrays),
        )
        admit(communicator, 2)
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(numpy.zeros(4), "weights")])
        communicator.sync_shared_state(state)
        # This member takes no part in the reductions.
        assert program.line() == "interrupted lost" + " 4.0" * arrays
        while not communicator.are_peers_pending():
            pass
        communicator.update_topology()
        communicator.sync_shared_state(state)
        assert program.line() == "again"
        assert program.end()[0] == 0


def test_connect(idle_member: tuple[str, Callable[[], None]], script: MakeScript) -> None:
    address, _ = idle_member
    program = script(
        """
import os, signal, sys, threading
import pccl
communicator = pccl.Communicator(sys.argv[1])
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    communicator.connect()
except KeyboardInterrupt:
    print("interrupted")
""",
        address,
    )
    assert program.line() == "interrupted"
    assert program.end()[0] == 0


def test_a_handler_that_returns_lets_the_call_go_on(
    idle_member: tuple[str, Callable[[], None]], script: MakeScript
) -> None:
    address, let_in = idle_member
    program = script(
        MEMBER
        + """
import signal, threading
main = threading.main_thread()
def handler(*_):
    assert threading.current_thread() is main
    print("handled")
signal.signal(signal.SIGUSR1, handler)
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGUSR2, stop)
try:
    print("waiting")
    communicator.update_topology()
except Stop:
    print("stopped")
""",
        address,
    )
    let_in()
    assert program.line() == "waiting"
    program.process.send_signal(signal.SIGUSR1)
    assert program.line() == "handled"
    program.process.send_signal(signal.SIGUSR2)
    assert program.line() == "stopped"
    assert program.end()[0] == 0


# Handlers that raise once the reduction is launched and, if it is to succeed, has its result.
RAISING = """
import time
class Stop(Exception): pass
def is_launched():
    return communicator.stats()["all_reduce"]["launched"] == 1
def wait_for_result():
    print("launched")
    while succeeds and (array != 3).any():
        pass
"""
# In the wait.
IN_THE_WAIT = """
def stop(*_):
    if is_launched():
        signal.setitimer(signal.ITIMER_REAL, 0)
        wait_for_result()
        raise Stop
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
"""
# Before the call can return: it needs the GIL, which the thread keeps.
AT_THE_END = """
def stop(*_):
    raise Stop
signal.signal(signal.SIGALRM, stop)
def end():
    while not is_launched():
        time.sleep(0.001)  # only spares the processor
    sys.setswitchinterval(1000)
    wait_for_result()
    os.kill(os.getpid(), signal.SIGALRM)
threading.Thread(target=end).start()
"""


@pytest.mark.parametrize("succeeds, how", [(False, IN_THE_WAIT), (True, IN_THE_WAIT), (True, AT_THE_END)])
def test_an_exception_says_what_became_of_the_call(succeeds: bool, how: str, master: str, script: MakeScript) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        program = script(
            MEMBER
            + RAISING
            + f"succeeds = {succeeds}\n"
            + how
            + """
try:
    communicator.all_reduce(array, array, op=ReduceOp.SUM)
except Stop as error:
    print(error.pccl_succeeded, len(getattr(error, "__notes__", [])), array.min(), array.max())
""",
            master,
        )
        admit(communicator, 2)
        assert program.line() == "launched"
        if succeeds:
            other = numpy.full(100, 2, numpy.float32)
            communicator.all_reduce(other, other, op=pccl.ReduceOp.SUM)
        assert program.line() == ("True 1 3.0 3.0" if succeeds else "False 0 1.0 1.0")
        assert program.end()[0] == 0


def test_a_handler_closes_what_waits(idle_member: tuple[str, Callable[[], None]], script: MakeScript) -> None:
    address, let_in = idle_member
    program = script(
        MEMBER
        + """
def leave(*_):
    communicator.close()
    print(communicator.state)
    sys.exit(3)
signal.signal(signal.SIGUSR1, leave)
print("waiting")
communicator.all_reduce(array, array, op=ReduceOp.SUM)
""",
        address,
    )
    let_in()
    assert program.line() == "waiting"
    program.process.send_signal(signal.SIGUSR1)
    assert program.line() == "closed"
    status, _, errors = program.end()
    assert status == 3, errors


def test_a_handler_closes_what_another_thread_closes(
    idle_member: tuple[str, Callable[[], None]], script: MakeScript
) -> None:
    """The other thread holds the lock of close() until the call below the handler returns."""
    address, let_in = idle_member
    program = script(
        MEMBER
        + """
def is_free(lock):
    taken = lock.acquire(blocking=False)
    if taken:
        lock.release()
    return taken
def close(*_):
    thread = threading.Thread(target=communicator.close)
    thread.start()
    while thread.is_alive() and is_free(communicator._closing):
        pass
    communicator.close()
    print("closed")
signal.signal(signal.SIGUSR1, close)
try:
    print("waiting")
    communicator.update_topology()
except pccl.PCCLError:
    print(communicator.state)
""",
        address,
    )
    let_in()
    assert program.line() == "waiting"
    program.process.send_signal(signal.SIGUSR1)
    assert program.line() == "closed"
    assert program.line() == "closed"
    assert program.end()[0] == 0


@pytest.mark.parametrize("end", ["Stop", "PCCLTimeoutError"])
def test_a_handler_waits_itself(end: str, idle_member: tuple[str, Callable[[], None]], script: MakeScript) -> None:
    """The call below runs signal handlers further on, and keeps its time limit."""
    address, let_in = idle_member
    program = script(
        MEMBER
        + f"""
other = pccl.Communicator(sys.argv[1])
def wait_in_vain(*_):
    try:
        other.connect(timeout=0.01)
    except pccl.PCCLTimeoutError:
        print("handled")
signal.signal(signal.SIGUSR1, wait_in_vain)
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGUSR2, stop)
try:
    print("waiting")
    communicator.update_topology(timeout={None if end == "Stop" else 1})
except (Stop, pccl.PCCLError) as error:
    print(type(error).__name__)
""",
        address,
    )
    let_in()
    assert program.line() == "waiting"
    program.process.send_signal(signal.SIGUSR1)
    assert program.line() == "handled"
    if end == "Stop":
        program.process.send_signal(signal.SIGUSR1)
        assert program.line() == "handled"
        program.process.send_signal(signal.SIGUSR2)
    assert program.line() == end
    assert program.end()[0] == 0


def test_a_program_with_threads_ends(idle_member: tuple[str, Callable[[], None]], script: MakeScript) -> None:
    address, let_in = idle_member
    program = script(
        MEMBER
        + """
import threading
def reduce():
    try:
        print("waiting")
        communicator.all_reduce(array, array, op=ReduceOp.SUM)
    except pccl.PCCLError as error:
        print(type(error).__name__)
thread = threading.Thread(target=reduce)
thread.start()
thread.join()
""",
        address,
    )
    let_in()
    assert program.line() == "waiting"
    program.interrupt()
    status, output, errors = program.end()
    assert status != 0 and "KeyboardInterrupt" in errors
    assert "Error" in output  # the reduction failed, so no thread still waits


def test_an_interrupted_peer_has_left(idle_member: tuple[str, Callable[[], None]], script: MakeScript) -> None:
    address, let_in = idle_member
    program = script(
        MEMBER
        + """
try:
    interrupt_soon()
    communicator.update_topology()
except KeyboardInterrupt:
    print(communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE))
sys.stdin.read()
""",
        address,
    )
    let_in()
    assert program.line() == "1"


def test_the_python_thread_of_another_call_keeps_running(master: str) -> None:
    """A waiting call does not hold the GIL."""
    with pccl.Communicator(master) as first, pccl.Communicator(master) as second:
        first.connect()
        thread = threading.Thread(target=second.connect, daemon=True)
        thread.start()
        # This thread votes while that one waits.
        while not first.are_peers_pending():
            pass
        assert sum(range(1000)) == 499500
        first.update_topology()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
