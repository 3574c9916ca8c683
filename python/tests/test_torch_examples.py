"""The examples, run as a user runs them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_peers import PRELOAD, Channel, Peer, context, start  # noqa: F401

context.set_forkserver_preload([*PRELOAD, "sklearn.datasets"])

Start = Callable[..., Peer]

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


class _Lines(io.TextIOBase):
    """Sends standard output of an example to the test, line by line. After the line ``last`` the example stops for
    ever."""

    def __init__(self, channel: Channel, last: str | None) -> None:
        self._channel = channel
        self._last = last
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._channel.send(line)
            if self._last is not None and self._last in line:
                self._channel.recv()
        return len(text)


def run_example(
    channel: Channel, name: str, arguments: list[str], environment: dict[str, str], last: str | None = None
) -> None:
    """``python name arguments``, without the seconds that importing torch takes."""
    os.environ |= environment
    sys.argv = [name, *arguments]
    sys.stdout = _Lines(channel, last)  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def read_until(peer: Peer, pattern: str) -> re.Match[str]:
    while True:
        if found := re.search(pattern, peer.hear()):
            return found


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


def test_digits_with_peers_that_come_and_go(start: Start, master: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")

    def peer(last: str | None = None) -> Peer:
        return start(run_example, "digits_ddp.py", [master, "--steps", "150", "--min-peers", "2"], {}, last)

    # The other peer cannot reach the end before the victim is dead.
    first, victim = peer(), peer("step 20,")
    read_until(victim, r"step 20, 2 peers")
    victim.kill()
    newcomer = peer()
    lines = [read_until(one, r"accuracy (\S+), parameters (\S+)") for one in (first, newcomer)]
    assert float(lines[0][1]) > 0.85
    assert lines[0][2] == lines[1][2]
    for one in (first, newcomer):
        one.result()


def test_pieces_of_peers_that_come_and_go(start: Start, master: str) -> None:
    def peer(last: str | None = None) -> Peer:
        return start(run_example, "gather_pieces.py", [master, "--steps", "60", "--min-peers", "3"], {}, last)

    def steps(one: Peer) -> dict[int, tuple[int, str]]:
        lines = [re.fullmatch(r"step (\d+), (\d+) peers, \d+ samples, (\w+)", line) for line in one.said()]
        return {int(line[1]): (int(line[2]), line[3]) for line in lines if line is not None}

    first, second, victim = peer(), peer(), peer("step 20,")
    read_until(victim, r"step 20, 3 peers")
    victim.kill()
    newcomer = peer()
    ours, theirs, late = (steps(one) for one in (first, second, newcomer))
    assert ours == theirs and sorted(ours) == list(range(60))
    assert {peers for peers, _ in ours.values()} == {3}  # without the victim they wait for the newcomer
    assert late and all(ours[step] == said for step, said in late.items())


def test_sharded_replicas_that_come_and_go(start: Start, master: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    import torch.distributed as dist

    stores = []

    def replica(last: str | None = None) -> list[Peer]:
        # As under torchrun, which serves the store of its processes.
        stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(stores[-1].port)}
        common["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        arguments = [master, "--rounds", "8", "--min-replicas", "2"]
        return [
            start(run_example, "fsdp_diloco.py", arguments, {**common, "RANK": str(rank)}, last) for rank in range(2)
        ]

    first, victim = replica(), replica("round 2,")
    read_until(victim[0], "round 2, 2 replicas")
    for process in victim:
        process.kill()
    newcomer = replica()
    ends = [[read_until(process, r"accuracy (\S+), shard (\d) (\S+)") for process in one] for one in (first, newcomer)]
    for shard in range(2):
        assert ends[0][shard][2] == str(shard) and ends[0][shard][3] == ends[1][shard][3]
    assert float(ends[0][0][1]) > 0.85
    for process in first + newcomer:
        process.result()


def test_examples_are_short() -> None:
    examples = sorted(EXAMPLES.glob("*.py"))
    assert len(examples) == 4
    assert all(len(example.read_text().splitlines()) <= 150 for example in examples)
