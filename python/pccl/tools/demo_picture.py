"""The picture of a demo: loss, time of each reduction, and number of members."""

from __future__ import annotations

from pathlib import Path

from pccl.tools.demo_run import Run

_KINDS = (".png", ".svg", ".pdf")


def why_not(target: Path) -> str | None:
    """The reason why no picture can be written there, or None. Checked before the work is done."""
    if target.suffix.lower() not in _KINDS:
        return f"{target}: the name has to end with {', '.join(_KINDS)}"
    if not target.absolute().parent.is_dir():
        return f"{target}: there is no directory {target.absolute().parent}"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "it is drawn by matplotlib, which is not installed: pip install matplotlib"
    return None


def draw(run: Run, target: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8), layout="constrained")
    FigureCanvasAgg(figure)
    losses, times, worlds = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 1])
    members: dict[int, int] = {}
    for worker in run.workers:
        steps = [step.step for step in worker.steps]
        # Dots, because a line would hide the time in which the worker was gone.
        losses.plot(steps, [step.loss for step in worker.steps], ".", markersize=4, label=f"worker {worker.index}")
        times.plot(steps, [step.reduce_ms for step in worker.steps], ".", markersize=4)
        members.update({step.step: step.world for step in worker.steps})
    losses.set_ylabel("loss of the worker's batch")
    times.set_ylabel("all-reduce [ms]")
    times.set_yscale("log")
    known = sorted(members)
    worlds.step(known, [members[step] for step in known], where="mid", color="black")
    worlds.set_ylabel("members")
    worlds.set_ylim(0, run.plan.workers + 0.5)
    worlds.set_yticks(range(run.plan.workers + 1))
    worlds.set_xlabel("step")
    outage = run.outage
    if outage is not None:
        for axes in (losses, times, worlds):
            axes.axvline(outage.killed_step, color="red", linewidth=1)
            if outage.back_step is not None:
                axes.axvline(outage.back_step, color="green", linewidth=1)
        losses.plot([], [], color="red", linewidth=1, label=f"worker {outage.worker} is killed")
        losses.plot([], [], color="green", linewidth=1, label="and is back")
    losses.legend(loc="upper right")
    figure.suptitle(f"{run.plan.workers} workers, {run.plan.steps} steps")
    figure.savefig(target, dpi=120)
