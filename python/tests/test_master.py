"""Masters in a program, and the master program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pccl
import pccl.master
import pytest
from conftest import PATIENCE_S, Script

pytestmark = pytest.mark.torch_free

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
    assert program.end()[0] == 0  # end() closes its standard input


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


MAIN = "import sys, pccl.master; sys.exit(pccl.master.main())"
DAEMON = "import sys, pccl.master; sys.exit(pccl.master.daemon())"


def test_main_serves_within_the_process(script: MakeScript) -> None:
    program = script(MAIN, "--listen-address", "127.0.0.1:0")
    line = program.line()
    assert line.startswith("listening on 127.0.0.1:")
    joins(line.rsplit(":", 1)[1])
    program.wait_until_handled(signal.SIGTERM)
    program.process.terminate()
    assert program.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_program(script: MakeScript, number: signal.Signals) -> None:
    program = script(DAEMON, "--listen-address", "127.0.0.1:0")
    line = program.line()
    assert line.startswith("listening on 127.0.0.1:")
    joins(line.rsplit(":", 1)[1])
    program.process.send_signal(number)
    assert program.end()[0] == 0


@pytest.mark.parametrize("program", [DAEMON, MAIN], ids=["daemon", "main"])
def test_programs_take_up_their_run(script: MakeScript, tmp_path: Path, program: str) -> None:
    """After a kill and a restart on its journal, the peer that was a member still is."""
    journal = {"PCCL_STATE_DIR": str(tmp_path)}
    master = script(program, "--listen-address", "127.0.0.1:0", **journal)
    address = "127.0.0.1:" + master.line().rsplit(":", 1)[1]
    array = numpy.zeros(4, numpy.float32)
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(array, "array")])
    with pccl.Communicator(address) as communicator:
        communicator.connect()
        for _ in range(3):
            communicator.sync_shared_state(state)
            state.push_revision()
        master.kill()
        script(program, "--listen-address", address, **journal).line()
        communicator.sync_shared_state(state)
        assert state.revision == 3


@pytest.mark.parametrize("module", [["pccl.master"], ["pccl", "master"]])
def test_program_as_module_and_its_exit_codes(master: str, module: list[str]) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *module, *arguments], capture_output=True, text=True, timeout=PATIENCE_S
        )

    told = run("--help")
    assert told.returncode == 0 and "--state-dir" in told.stdout
    usage = run("--listen-address", "a:b:c")
    assert usage.returncode == 2 and "a:b:c" in usage.stderr
    in_use = run("--listen-address", master)
    assert in_use.returncode == 1 and "in use" in in_use.stderr


def test_a_package_without_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pccl.master, "__file__", str(tmp_path / "master.py"))
    assert pccl.master.daemon([]) == 1
    assert "No such file" in capsys.readouterr().err


def test_failures_with_bytes_that_are_not_utf_8(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    path, shown = b"/proc/gew\xedcht", "/proc/gew\N{REPLACEMENT CHARACTER}cht"
    monkeypatch.setitem(os.environb, b"PCCL_STATE_DIR", path)
    with pccl.MasterNode("127.0.0.1:0") as node, pytest.raises(pccl.PCCLError, match=shown):
        node.run()
    for name in (b"PCCL_TLS_CA", b"PCCL_TLS_CERT", b"PCCL_TLS_KEY"):
        monkeypatch.setitem(os.environb, name, path)
    with pccl.Communicator(master) as communicator:
        with pytest.raises(pccl.PCCLError, match=shown):
            communicator.connect(1)
        assert shown in communicator.last_message()
