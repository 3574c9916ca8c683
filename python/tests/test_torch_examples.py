"""The examples, run as a user runs them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


class Program:
    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"the program ended without '{pattern}', exit code {self.process.wait(PATIENCE_S)}")

    def end(self) -> str:
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, output
        return str(output)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    made: list[Program] = []

    def start(*arguments: str, **environment: str) -> Program:
        made.append(Program(*arguments, **environment))
        return made[-1]

    yield start
    for one in made:
        one.kill()


def test_the_basics_notebook() -> None:
    notebook = json.loads((EXAMPLES / "basics.ipynb").read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {"__name__": "__main__"}
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                assert not cell["outputs"], "the notebook is kept without outputs"
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    text = output.getvalue()
    assert text.startswith("2 members\n[15. 15. 15. 15. 15.] ReduceInfo(local_world_size=2")
    assert "sums [1.0, 3.0, 5.0, 7.0]" in text
    assert text.count("[7. 7. 7.] SharedStateSyncInfo") == 2
    assert "alone, with [1. 1. 1.]" in text
    assert "send has 3 elements and recv 4" in text


def test_digits_with_peers_that_come_and_go(program: Callable[..., Program], master: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")

    def peer(*options: str) -> Program:
        return program(str(EXAMPLES / "digits_ddp.py"), master, "--steps", "200", *options)

    first, victim = peer("--min-peers", "2"), peer("--min-peers", "2")
    victim.read_until(r"step 20, 2 peers")
    victim.kill()
    first.read_until(r"step \d+, 1 peers")
    newcomer = peer()
    lines = [one.read_until(r"accuracy (\S+), parameters (\S+)") for one in (first, newcomer)]
    assert float(lines[0][1]) > 0.85
    assert lines[0][2] == lines[1][2]
    for one in (first, newcomer):
        one.end()


def test_sharded_replicas_that_come_and_go(program: Callable[..., Program], master: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    import torch.distributed as dist

    stores = []

    def replica(*options: str) -> list[Program]:
        # As under torchrun, which serves the store of its processes.
        stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        return [
            program(
                str(EXAMPLES / "fsdp_diloco.py"),
                master,
                "--rounds",
                "12",
                *options,
                RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(stores[-1].port),
                TORCHELASTIC_USE_AGENT_STORE="True",
            )
            for rank in range(2)
        ]

    first, victim = (replica("--min-replicas", "2") for _ in range(2))
    victim[0].read_until("round 2, 2 replicas")
    for process in victim:
        process.kill()
    first[0].read_until(r"round \d+, 1 replicas")
    newcomer = replica()
    ends = [[process.read_until(r"accuracy (\S+), shard (\d) (\S+)") for process in one] for one in (first, newcomer)]
    for shard in range(2):
        assert ends[0][shard][2] == str(shard) and ends[0][shard][3] == ends[1][shard][3]
    assert float(ends[0][0][1]) > 0.85
    for process in first + newcomer:
        process.end()


def test_examples_are_short_and_their_types_right(tree: Path) -> None:
    examples = sorted(EXAMPLES.glob("*.py"))
    assert all(len(example.read_text().splitlines()) <= 150 for example in examples)
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tree / "build/mypy"), *map(str, examples)],
        cwd=tree,
        env={**os.environ, "MYPYPATH": str(tree / "python")},
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
    )
    assert checked.returncode == 0, checked.stdout
