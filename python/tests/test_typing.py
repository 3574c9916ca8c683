"""Types: the package, its stub and a program that uses it pass mypy --strict."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S

pytest.importorskip("mypy")

PROGRAM = """
import numpy
import pccl

async def train(communicator: pccl.Communicator) -> int:
    array = numpy.ones(3)
    handle = communicator.all_reduce_async(array, array, op=pccl.ReduceOp.SUM)
    ok, status, info = handle.wait(timeout=1.0)
    reveal_type(ok)
    reveal_type(handle.result())
    reveal_type(await handle)
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(array, "array")])
    reveal_type(communicator.sync_shared_state(state).rx_bytes)
    return info.local_world_size + status

with pccl.MasterNode("127.0.0.1:0") as node:
    reveal_type(node.port)
"""

REVEALED = ["bool", "ReduceInfo", "ReduceInfo", "int", "int"]


def mypy(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=tree,
        env={**os.environ, "MYPYPATH": str(tree / "python")},
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,  # the types of torch take long to read
    )


@pytest.mark.torch_free
def test_package(tree: Path) -> None:
    done = mypy(tree, "mypy")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_examples(tree: Path, tmp_path: Path) -> None:
    """Checked together with pccl.torch and the types of torch, which the check of the whole package leaves out."""
    for module in ("torch", "sklearn"):
        pytest.importorskip(module)
    configuration = tmp_path / "mypy.ini"
    configuration.write_text("[mypy]\nstrict = true\n[mypy-ml_dtypes.*]\nignore_missing_imports = true\n")
    done = mypy(
        tree, "mypy", "--config-file", str(configuration), "--cache-dir", str(tree / "build/mypy-torch"),
        "python/examples",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_stub_is_what_the_extension_has(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    # stubtest imports what it checks, and some modules of the package need torch.
    package = "pccl" if importlib.util.find_spec("torch") else "pccl._native"
    done = mypy(
        tree, "mypy.stubtest", package, "--mypy-config-file", "pyproject.toml",
        "--allowlist", "python/stubtest.allow", "--ignore-unused-allowlist",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    made = tmp_path / "_native.pyi"
    command = ["nanobind.stubgen", "-q", "-m", "pccl._native", "-o"]
    assert mypy(tree, *command, str(made)).returncode == 0
    assert made.read_text() == (tree / "python/pccl/_native.pyi").read_text(), (
        f"run PYTHONPATH=python python -m {' '.join(command)} python/pccl/_native.pyi"
    )


@pytest.mark.torch_free
def test_a_program(tree: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = mypy(tree, "mypy", "--config-file", "pyproject.toml", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    notes = [line.split('"')[1].split(".")[-1] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert notes == REVEALED
