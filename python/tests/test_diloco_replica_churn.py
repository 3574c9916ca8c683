"""Replicas and nodes of several processes that lose processes, stop, come and return, and a master that restarts. All
parts of the outer state are the same bytes in all replicas after each outer step."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from diloco_run import Run  # noqa: E402
from test_diloco_churn import MODES  # noqa: E402

ROUNDS = 60
# The processes of each replica. A "node" has DistributedDataParallel, and only its rank 0 is in the run.
KINDS = {"fsdp": 2, "tp": 2, "hsdp": 4, "ddp": 2, "node": 2}
# What is sent and when does not depend on how a model is sharded, so not every mode is combined with every kind.
MODES_OF_ALL = ("streaming_int8", "eager", "sync_top_k", "whole", "checkpoints_behind_int8")


def combinations(*daily: tuple[str, str]) -> list[Any]:
    return [
        pytest.param(kind, mode, marks=[] if (kind, mode) in daily else [pytest.mark.nightly])
        for kind in KINDS
        for mode in (MODES if kind in ("fsdp", "tp") else MODES_OF_ALL)
    ]


@pytest.mark.parametrize("kind,mode", combinations(("fsdp", "streaming_int8")))
def test_churn(tmp_path: Path, kind: str, mode: str) -> None:
    with Run(tmp_path, ROUNDS, MODES[mode], shards=KINDS[kind], kind=kind) as run:
        run.start_first(2)
        first, second = run.peers

        run.train(2)
        third = run.start(seed=3)
        run.join(third)

        # One process dies in the middle of the reduction of its part.
        run.train(run.allowed + 1)
        victim = second.sender
        victim.order("die")
        second.order(f"to {run.allowed + 2}")
        run.alive.remove(second)
        run.train(run.allowed + 2)
        run.wait(lambda: second.returned() is not None, "all processes of the second have ended")
        assert victim.returned() == -signal.SIGKILL
        assert all(one.returned() == 1 for one in second.processes if one is not victim), run.story()

        # A process is killed at any moment.
        run.train(run.allowed + 1)
        run.allow_round()
        first.processes[0].signal(signal.SIGKILL)
        run.gone(first)
        run.train(run.allowed)
        again = run.start(seed=1)
        run.join(again)

        run.train(run.allowed + 1)
        run.restart_master()
        run.train(run.allowed + 1)
        assert all(peer.count("lost") == 0 for peer in (third, again)), run.story()

        run.train(run.allowed + 1)
        third.signal(signal.SIGTERM)
        run.gone(third)
        assert third.returned() == 0, run.story()
        run.join(run.start(seed=4))
        run.train(run.allowed + 2)
        assert again.members == 2, run.story()


@pytest.mark.parametrize("kind,mode", combinations(("fsdp", "one_step_behind_int8")))
def test_one_process_is_stopped_for_too_long(tmp_path: Path, kind: str, mode: str) -> None:
    """The master removes its replica as a whole. All its processes join again as newcomers."""
    with Run(tmp_path, ROUNDS, MODES[mode], timeout_ms=2000, shards=KINDS[kind], kind=kind) as run:
        run.start_first(3)
        run.train(2)
        stopped = run.peers[2]
        stopped.members_of_run[-1].signal(signal.SIGSTOP)
        run.alive.remove(stopped)
        run.train_until(lambda: all(peer.members == 2 for peer in run.alive), "the stopped one is removed")
        stopped.members_of_run[-1].signal(signal.SIGCONT)
        run.alive.append(stopped)
        joined = stopped.count("joined")
        run.train_until(lambda: stopped.count("joined") > joined, "it has joined again")
        run.train(run.allowed + 2)
        assert stopped.count("lost") > 0, run.story()
