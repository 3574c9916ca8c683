"""DiLoCo with processes that join, die, stop and return. All outer state is the same bytes after each outer step, and
the training reaches the same loss as without churn."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import pccl  # noqa: E402
from diloco_run import Run  # noqa: E402
from diloco_worker import falling  # noqa: E402
from pccl.diloco import TopK  # noqa: E402

ROUNDS = 30
OUTER = {"lr": 0.5, "momentum": 0.6, "nesterov": True}
MODES: dict[str, dict[str, Any]] = {
    "sync": {"H": 6, "outer": OUTER},
    "one_step_behind": {"H": 6, "outer": OUTER, "overlap": True, "delay": 6},
    "streaming": {"H": 6, "outer": OUTER, "overlap": True, "fragments": 3, "delay": 1},
    "sync_int8": {"H": 6, "outer": OUTER, "quantize": "int8"},
    "one_step_behind_int8": {"H": 6, "outer": OUTER, "overlap": True, "delay": 6, "quantize": "int8"},
    "streaming_int8": {"H": 6, "outer": OUTER, "overlap": True, "fragments": 3, "quantize": "int8"},
    "eager": {"H": 6, "outer": OUTER, "overlap": True, "eager": True},
    # Pieces of about 165 kB, so that a peer can die while one is on its way (Dying.dies_in). With fragments, that of the
    # large layer is as long.
    "sync_top_k": {"H": 6, "outer": OUTER, "quantize": TopK(k=512, chunk=1024)},
    "streaming_top_k": {
        "H": 6,
        "outer": OUTER,
        "overlap": True,
        "fragments": [["0", "4"], ["2"]],
        "quantize": TopK(k=512, chunk=1024),
    },
    "sparse_loco": {
        "H": 6,
        "outer": {"lr": falling, "momentum": 0.0},
        "overlap": True,
        "delay": 2,
        "quantize": TopK(k=512, chunk=1024),
    },
    "eager_int8": {"H": 6, "outer": OUTER, "overlap": True, "eager": True, "quantize": "int8"},
    "eager_top_k": {"H": 6, "outer": OUTER, "overlap": True, "eager": True, "quantize": TopK(k=512, chunk=1024)},
    # Later than the launch and within the round; one's own parameters are mixed in, and are not.
    "whole": {"H": 6, "outer": OUTER, "overlap": True, "delay": 2},
    "whole_int8_no_mix": {"H": 6, "outer": OUTER, "overlap": True, "delay": 2, "mix": 0.0, "quantize": "int8"},
    "by_module_int8": {"H": 6, "outer": OUTER, "overlap": True, "fragments": [["0", "4"], ["2"]], "quantize": "int8"},
    "sync_ring": {"H": 6, "outer": OUTER, "quantize": pccl.QuantizationOptions()},
    "weighted_streaming_int8": {
        "H": 6,
        "outer": {**OUTER, "lr": falling},
        "overlap": True,
        "fragments": 3,
        "quantize": "int8",
        "weighted": True,
    },
    "checkpoints_behind_int8": {
        "H": 6,
        "outer": OUTER,
        "overlap": True,
        "delay": 6,
        "quantize": "int8",
        "checkpoints": True,
    },
    "checkpoints_streaming_top_k": {
        "H": 6,
        "outer": OUTER,
        "overlap": True,
        "fragments": [["0", "4"], ["2"]],
        "quantize": TopK(k=512, chunk=1024),
        "checkpoints": True,
    },
}


def modes(*daily: str) -> list[Any]:
    """All modes. Those in ``daily`` run every day; the others are variations for the nightly run."""
    return [pytest.param(name, marks=[] if name in daily else [pytest.mark.nightly]) for name in MODES]


def calm_loss(folder: Path, mode: str) -> float:
    with Run(folder, ROUNDS, MODES[mode]) as run:
        run.start_first(3)
        loss = run.finish()
        assert all(peer.count("retry") + peer.count("lost") == 0 for peer in run.peers)
        return loss


@pytest.mark.parametrize("mode", modes("one_step_behind_int8"))
def test_churn(tmp_path: Path, mode: str) -> None:
    with Run(tmp_path / "churn", ROUNDS, MODES[mode], shared_memory=False) as run:
        run.start_first(3)
        first, second, third = run.peers

        run.train(4)
        fourth = run.start(seed=4)
        run.join(fourth)

        run.train(max(8, run.allowed))
        second.order("die")
        second.order(f"to {run.allowed + 1}")
        run.alive.remove(second)
        run.train(run.allowed + 1)
        run.wait(lambda: second.returned() is not None, "the second has died")
        assert second.returned() == -signal.SIGKILL

        run.train(run.allowed + 1)
        # One step behind, the others see the outcome only in the next round.
        assert first.count("retry") and third.count("retry") and fourth.count("retry"), run.story()

        # Stopped for less than the time-out, so the others wait. The three seconds are the fault itself.
        run.train(max(11, run.allowed))
        third.signal(signal.SIGSTOP)
        run.allow_round()
        time.sleep(3)
        third.signal(signal.SIGCONT)
        run.train(run.allowed)
        assert third.count("lost") == 0 and first.members == 3, run.story()

        run.train(max(14, run.allowed))
        first.signal(signal.SIGKILL)
        run.gone(first)
        again = run.start(seed=1)
        run.join(again)

        run.train(max(16, run.allowed))
        run.restart_master()
        run.train(run.allowed + 1)
        assert all(peer.count("lost") == 0 for peer in run.alive), run.story()

        run.train(max(18, run.allowed))
        fourth.signal(signal.SIGTERM)
        run.gone(fourth)
        assert fourth.returned() == 0
        loss = run.finish()
        assert again.members == 2, run.story()
    calm = calm_loss(tmp_path / "calm", mode)
    print(f"{mode}: loss {loss:.4f}, without churn {calm:.4f}")
    assert abs(loss - calm) <= 0.15 * calm


@pytest.mark.parametrize("mode", modes("one_step_behind_int8"))
def test_removed_peer_comes_back(tmp_path: Path, mode: str) -> None:
    """A peer that is stopped for longer than the time-out is removed, notices it, and joins again as a newcomer."""
    with Run(tmp_path, ROUNDS, MODES[mode], timeout_ms=2000) as run:
        run.start_first(3)
        run.train(3)
        stopped = run.peers[2]
        stopped.signal(signal.SIGSTOP)
        run.alive.remove(stopped)
        run.train_until(lambda: all(peer.members == 2 for peer in run.alive), "the stopped one is removed")
        stopped.signal(signal.SIGCONT)
        run.alive.append(stopped)
        joined = stopped.count("joined")
        run.train_until(lambda: stopped.count("joined") > joined, "it has joined again")
        run.finish()
        assert stopped.count("lost") > 0, run.story()


@pytest.mark.parametrize("mode", modes("streaming"))
def test_left_alone_and_joined_again(tmp_path: Path, mode: str) -> None:
    """A peer that is left alone trains on. A peer that joins later receives what it has learned."""
    with Run(tmp_path, ROUNDS, MODES[mode]) as run:
        run.start_first(2)
        first, second = run.peers
        run.train(3)
        second.signal(signal.SIGKILL)
        run.gone(second)
        alone = first.count("outer_step")
        run.train(8)
        assert first.members == 1 and first.count("outer_step") > alone + 2, run.story()
        run.join(run.start(seed=2))
        run.finish()
