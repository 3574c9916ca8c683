"""Log lines, forks and the end of the interpreter."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pccl
import pytest
from conftest import Script, wait_until

MakeScript = Callable[..., Script]

FAILS = """
import sys
import pccl
communicator = pccl.Communicator("127.0.0.1:1")
try:
    communicator.update_topology()
except pccl.PCCLUsageError:
    pass
communicator.close()
"""


def test_lines_go_to_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "pccl"):
        # The port makes the line unique among the tests: the log counts repeated lines instead of writing them.
        with pccl.Communicator("127.0.0.1:2") as communicator, pytest.raises(pccl.PCCLMasterConnectionError):
            communicator.connect(n_attempts=1)
        pccl._logging.end()  # waits until all lines are delivered
        pccl._logging.begin()
    # Lines of earlier tests may be delivered only now.
    records = [record for record in caplog.records if record.name == "pccl" and "127.0.0.1:2:" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.ERROR]
    peer, text = records[0].getMessage().split(" ", 1)  # time and level are those of the record
    assert len(peer) == 8 and text.startswith("pcclConnect: pcclMasterConnectionFailed: cannot connect to the master")


def test_lines_go_to_standard_error_where_logging_is_not_configured(script: MakeScript) -> None:
    status, _, errors = script(FAILS).end()
    assert status == 0
    assert errors.count("\n") == 1 and " ERR pccl pcclUpdateTopology: " in errors


def test_the_level_of_the_environment_counts(script: MakeScript) -> None:
    status, _, errors = script(FAILS, PCCL_LOG_LEVEL="NONE").end()
    assert (status, errors) == (0, "")


def test_a_configured_program_formats_lines_itself(script: MakeScript) -> None:
    configured = "import logging\nlogging.basicConfig(format='%(name)s|%(levelname)s|%(message)s')\n" + FAILS
    _, _, errors = script(configured).end()
    assert errors.startswith("pccl|ERROR|pccl pcclUpdateTopology: ")


def test_a_slow_or_failing_handler_harms_nobody(script: MakeScript) -> None:
    program = """
import logging, sys
class Handler(logging.Handler):
    def emit(self, record):
        raise RuntimeError("handler")
logging.getLogger("pccl").addHandler(Handler())
logging.raiseExceptions = True
""" + FAILS
    status, _, errors = script(program).end()
    assert status == 0 and "RuntimeError: handler" in errors


@pytest.mark.parametrize("kind", ["left alone", "in a thread", "pending handle", "callback waits"])
def test_the_interpreter_ends(script: MakeScript, kind: str) -> None:
    program = """
import sys, threading
import numpy
import pccl
from pccl import ReduceOp
kind = sys.argv[1]
master = pccl.MasterNode("127.0.0.1:0")
master.run()
address = f"127.0.0.1:{master.port}"
first, second = pccl.Communicator(address), pccl.Communicator(address)
first.connect()
joining = threading.Thread(target=second.connect, daemon=True)
joining.start()
if kind in ("pending handle", "callback waits"):
    while first.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
        first.update_topology()
    joining.join()
    array = numpy.ones(1000)
    handle = first.all_reduce_async(array, array, op=ReduceOp.SUM)
    if kind == "callback waits":
        handle.add_done_callback(lambda _: None)
if kind == "in a thread":
    threading.Thread(target=first.update_topology, daemon=True).start()
print("end")
master.interrupt()
"""
    one = script(program, kind)
    assert one.line() == "end"
    status, _, errors = one.end()
    assert status == 0, errors


def test_a_fork_has_nothing_of_its_parent(script: MakeScript) -> None:
    program = """
import os, sys, warnings
import numpy
import pccl
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, which is what is tested
master = pccl.MasterNode("127.0.0.1:0")
master.run()
address = f"127.0.0.1:{master.port}"
communicator = pccl.Communicator(address)
communicator.connect()
child = os.fork()
if child == 0:
    try:
        communicator.update_topology()
    except pccl.PCCLUsageError as error:
        assert "fork" in str(error), error
    else:
        raise SystemExit("the call worked")
    with pccl.Communicator(address, 1) as own:  # waits for nobody: the parent lets it in
        own.connect()
        assert own.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) == 2
    sys.exit(0)
while communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
    communicator.update_topology()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
communicator.update_topology()
communicator.close()
master.close()
sys.exit(status)
"""
    status, _, errors = script(program, PCCL_LOG_LEVEL="FATAL").end()
    assert status == 0, errors


# Two members, and a collective of the first that the second never launches.
PAIR = """
import os, signal, sys, threading, warnings
import numpy
import pccl
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, which is what is tested
master = pccl.MasterNode("127.0.0.1:0")
master.run()
first, second = (pccl.Communicator(f"127.0.0.1:{master.port}") for _ in range(2))
first.connect()
joining = threading.Thread(target=second.connect)
joining.start()
while first.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
    first.update_topology()
joining.join()
array, other = numpy.ones(4), numpy.ones(4)
handle = first.all_reduce_async(array, array, op=pccl.ReduceOp.SUM)

def fails(call):
    try:
        call()
    except pccl.PCCLUsageError as error:
        return "fork" in str(error)
    return False

def end(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    first.close()
    second.close()
    master.close()
    sys.exit(status)
"""


def test_a_collective_in_flight_has_failed_in_a_fork(script: MakeScript) -> None:
    program = (
        PAIR
        + """
assert not handle.done()
handle.add_done_callback(lambda _: None)
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends a child that hangs
    assert handle.done()
    told = threading.Event()
    handle.add_done_callback(lambda _: told.set())
    assert told.wait(60)
    assert fails(handle.result)
    del first, handle
    sys.exit(0)
assert not handle.done()
end(child)
"""
    )
    status, _, errors = script(program, PCCL_LOG_LEVEL="FATAL").end()
    assert status == 0, errors


@pytest.mark.parametrize("call", ["handle.result()", "handle.result(3600)", "first.all_reduce(other, other, op=pccl.ReduceOp.SUM, tag=1)"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_signal_handler_forks_within_a_call(call: str, raises: bool, script: MakeScript) -> None:
    program = (
        PAIR
        + f"""
class Stop(Exception): pass
child = None
def handler(*_):
    global child
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        if {raises}:
            raise Stop
        return
    raise Stop
signal.signal(signal.SIGUSR1, handler)
try:
    # Usually in the call by then; before it would do as well.
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    good = fails(lambda: {call})
except Stop:
    good = child != 0 or {raises}
if child == 0:
    sys.exit(0 if good else 1)
assert good
end(child)
"""
    )
    status, _, errors = script(program, PCCL_LOG_LEVEL="FATAL").end()
    assert status == 0, errors


def test_a_fork_while_another_thread_closes(script: MakeScript) -> None:
    source = """
import os
import signal
import threading
import warnings
import pccl
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, which is what is tested
communicator = pccl.Communicator("127.0.0.1:1")
held, forked = threading.Event(), threading.Event()

def hold():
    with communicator._closing:
        held.set()
        forked.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends a child that hangs
    communicator.close()
    os._exit(0)
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert script(source).line() == "0"


def test_a_fork_has_callbacks_and_log_records_of_its_own(script: MakeScript) -> None:
    program = """
import logging, os, sys, threading, warnings
import numpy
import pccl
logging.basicConfig(format="%(name)s|%(process)d|%(message)s")
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, which is what is tested
master = pccl.MasterNode("127.0.0.1:0")
master.run()
address = f"127.0.0.1:{master.port}"
def reduce_and_fail(call):
    told = threading.Event()
    with pccl.Communicator(address) as first, pccl.Communicator(address) as second:
        first.connect()
        joining = threading.Thread(target=second.connect)
        joining.start()
        while first.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
            first.update_topology()
        joining.join()
        arrays = [numpy.ones(4), numpy.ones(4)]
        handles = [one.all_reduce_async(a, a, op=pccl.ReduceOp.SUM) for one, a in zip((first, second), arrays)]
        handles[0].add_done_callback(lambda _: told.set())
        assert all(handle.wait()[0] for handle in handles)
        if not told.wait(60):
            raise SystemExit("nobody calls back")
    try:
        call(pccl.Communicator(address))
    except pccl.PCCLUsageError:
        pass
reduce_and_fail(pccl.Communicator.update_topology)
child = os.fork()
if child == 0:
    reduce_and_fail(pccl.Communicator.are_peers_pending)
    sys.exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(child)
master.close()
sys.exit(status)
"""
    status, output, errors = script(program).end()
    assert status == 0, errors
    # The fork happens while the first line is on its way to the parent's logger. Only the parent shows it.
    assert errors.count(f"pccl|{output.strip()}|pccl pcclArePeersPending: ") == 1, errors
    assert errors.count("|pccl pcclUpdateTopology: ") == 1, errors


def test_data_loader_workers(script: MakeScript) -> None:
    pytest.importorskip("torch")
    program = """
import torch, warnings
import pccl
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore", DeprecationWarning)
with pccl.MasterNode("127.0.0.1:0") as master:
    master.run()
    with pccl.Communicator(f"127.0.0.1:{master.port}") as communicator:
        communicator.connect()
        loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=8, num_workers=2)
        for _ in range(2):
            assert sum(batch[0].sum().item() for batch in loader) == 2016
            communicator.update_topology()
"""
    status, _, errors = script(program).end()
    assert status == 0, errors


def test_descriptors_and_threads_are_given_back() -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def once() -> None:
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            with pccl.Communicator(f"127.0.0.1:{node.port}") as communicator:
                communicator.connect()

    once()
    descriptors, threads = count()
    for _ in range(5):
        once()
    # After a thread was joined, the system may still list it for a moment.
    wait_until(lambda: count()[0] <= descriptors and count()[1] <= threads, "all is given back")


def test_the_original_in_the_same_folder_is_noticed(script: MakeScript, tree: Path, tmp_path: Path) -> None:
    """If pip removes one of the two, it deletes files of the other."""
    program = "import pccl\nprint(pccl.__file__, flush=True)"
    (tmp_path / "pccl").symlink_to(tree / "python/pccl")
    alone = script(program, PYTHONPATH=str(tmp_path))
    assert alone.line() == str(tmp_path / "pccl/__init__.py")
    assert alone.end() == (0, "", "")
    (tmp_path / "pypccl-1.0.0.dist-info").mkdir()
    status, output, errors = script(program, PYTHONPATH=str(tmp_path)).end()
    assert status == 0 and output
    assert f"RuntimeWarning: pypccl (PCCL 1.0.0) is installed in {tmp_path}, too" in errors
    assert "pip uninstall pypccl pccl" in errors
    assert errors.startswith("<string>:1: ")  # the warning names the line of the program
