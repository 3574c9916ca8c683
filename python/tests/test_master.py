"""Masters in a program, and the master program."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pccl
import pccl.master
import pytest
from conftest import PATIENCE_S, Script

MakeScript = Callable[..., Script]

SERVES = """
import pccl
master = pccl.MasterNode("127.0.0.1:0")
master.run()
print(master.port)
{rest}
"""


def joins(port: str) -> None:
    with pccl.Communicator(f"127.0.0.1:{port}") as communicator:
        communicator.connect()
        assert communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_that_ends_keeps_serving(script: MakeScript, number: signal.Signals) -> None:
    program = script(SERVES.format(rest="print('end of script')"))
    port = program.line()
    assert program.line() == "end of script"
    joins(port)
    program.wait_until_handled(signal.SIGTERM)
    program.process.send_signal(number)
    assert program.end()[0] == 0


def test_an_object_that_nobody_holds_keeps_serving(script: MakeScript) -> None:
    program = script(SERVES.format(rest="del master\nimport gc; gc.collect(); print('dropped')"))
    port = program.line()
    assert program.line() == "dropped"
    joins(port)
    program.wait_until_handled(signal.SIGTERM)
    program.process.terminate()
    assert program.end()[0] == 0


def test_interrupt_lets_a_script_end(script: MakeScript) -> None:
    program = script(SERVES.format(rest="master.interrupt()\nmaster.interrupt()"))
    program.line()
    assert program.end()[0] == 0


def test_interrupt_of_another_thread_lets_a_script_end(script: MakeScript) -> None:
    rest = """
import sys, threading
def stop():
    sys.stdin.readline()
    master.interrupt()
threading.Thread(target=stop, daemon=True).start()
"""
    program = script(SERVES.format(rest=rest))
    joins(program.line())
    assert program.end()[0] == 0  # which closes its standard input


def test_states() -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        with pytest.raises(pccl.PCCLUsageError, match="never run"):
            node.interrupt()
        with pytest.raises(pccl.PCCLUsageError, match="never run"):
            _ = node.port
        node.run()
        with pytest.raises(pccl.PCCLUsageError, match="run already"):
            node.run()
        with pccl.MasterNode(f"127.0.0.1:{node.port}") as other, pytest.raises(pccl.PCCLUsageError, match="in use"):
            other.run()
        assert node.wait(0) is False
        node.interrupt()
        node.interrupt()
        assert node.wait(PATIENCE_S) is True
    node.close()
    pccl.MasterNode("127.0.0.1:0").close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_program(script: MakeScript, number: signal.Signals) -> None:
    program = script(
        "import sys, pccl.master; sys.exit(pccl.master.main())", "--listen-address", "127.0.0.1:0"
    )
    line = program.line()
    assert line.startswith("listening on 127.0.0.1:")
    joins(line.rsplit(":", 1)[1])
    program.wait_until_handled(signal.SIGTERM)
    program.process.send_signal(number)
    assert program.end()[0] == 0


def test_program_as_module_and_its_exit_codes(master: str) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pccl.master", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
        )

    assert run("--help").returncode == 0
    usage = run("--listen-address", "nonsense")
    assert usage.returncode == 2 and "'nonsense' is no address" in usage.stderr
    in_use = run("--listen-address", master)
    assert in_use.returncode == 1 and "in use" in in_use.stderr
