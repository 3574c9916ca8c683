"""``python -m pccl demo``: several processes on this machine train a small network, and one of them may be killed."""

from __future__ import annotations

import argparse
import importlib.util
import io
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from pccl._errors import PCCLError
from pccl.tools import demo_picture
from pccl.tools.demo_run import DemoError, Plan, Run
from pccl.tools.screen import Line, Screen, drop_output, line, wants_drawing

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_COLUMNS = 60
_HAPPENED_LINES = 10
_DRAW_S = 0.1
_STYLES = {"trains": "green", "joined": "green", "done": "green", "killed": "red", "left": "dim"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pccl demo",
        description="Starts a master and some workers on this machine, which train a small network together, and shows "
        "what goes on.",
        epilog="Exit codes: 0 all workers have come to the same end, or nobody reads the output any more, 1 they have "
        "not, 2 wrong usage, 130 Ctrl-C.",
    )
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=150, metavar="N", help="of training (default: %(default)s)")
    parser.add_argument(
        "--kill", action="store_true", help="kill a worker after a quarter, and start it again while the others go on"
    )
    parser.add_argument(
        "--leave", action="store_true", help="let a worker leave after half of the steps; the others go on without it"
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE.png",
        help="draw the losses and the times of reductions (needs matplotlib)",
    )
    parser.add_argument(
        "--pace", type=float, default=0.05, metavar="SECONDS", help="least time of a step (default: %(default)s)"
    )
    parser.add_argument("--plain", action="store_true", help="no colours, nothing drawn in place")
    options = parser.parse_args(arguments)
    if not 2 <= options.workers <= 64:
        parser.error(f"--workers {options.workers}: use 2 to 64")
    for wanted, words in ((options.kill, "--kill"), (options.leave, "--leave")):
        least = 4 if options.kill and options.leave else 3
        if wanted and options.workers < least:
            parser.error(f"{words} needs --workers {least} or more: one alone would have nobody to go on with")
    if not 12 <= options.steps <= 1_000_000:
        parser.error(f"--steps {options.steps}: use 12 to 1000000")
    if not 0 <= options.pace <= 10:
        parser.error(f"--pace {options.pace:g}: use 0 to 10 seconds")
    if importlib.util.find_spec("numpy") is None:
        parser.error("the workers compute with numpy, which is not installed: pip install numpy")
    if options.picture is not None and (why := demo_picture.why_not(options.picture)):
        parser.error(f"--picture: {why}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    plan = Plan(options.workers, options.steps, options.kill, options.leave, options.pace)
    try:
        with Run(plan) as run:
            if wants_drawing(sys.stdout, options.plain):
                _draw(run)
            else:
                _print(run)
            print("\n".join(summary(run)), flush=True)
            if options.picture is not None:
                demo_picture.draw(run, options.picture)
                print(f"picture: {options.picture}", flush=True)
    except BrokenPipeError:
        drop_output()
        return 0
    except (DemoError, PCCLError, OSError) as error:
        print(f"python -m pccl demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the workers are stopped", file=sys.stderr)
        return 130
    return 0


def _draw(run: Run) -> None:
    with Screen(sys.stdout) as screen:
        screen.draw(picture(run))
        for _ in run.turns(_DRAW_S):
            screen.draw(picture(run))


def _print(run: Run) -> None:
    told = 0
    said = 0
    every = max(1, run.plan.steps // 10)
    for _ in run.turns(_DRAW_S):
        told = _print_happened(run, told)
        if run.step() // every > said:
            said = run.step() // every
            print(f"{run.now():6.1f} s  {_progress(run)}", flush=True)
    _print_happened(run, told)


def _print_happened(run: Run, told: int) -> int:
    for at, text in run.happened[told:]:
        print(f"{at:6.1f} s  {text}", flush=True)
    return len(run.happened)


def _progress(run: Run) -> str:
    leader = max(run.workers, key=lambda worker: worker.steps[-1].step if worker.steps else 0)
    if not leader.steps:
        return f"step 0 of {run.plan.steps}, nobody has begun yet"
    last = leader.steps[-1]
    return (
        f"step {last.step} of {run.plan.steps}, {last.world} members, loss {last.loss:.3f}, "
        f"all-reduce {last.reduce_ms:.2f} ms, {last.sent / 1000:.1f} kB sent by each"
    )


def _curve(values: list[float]) -> str:
    """At most _CURVE_COLUMNS columns. Each shows the mean of the values that fall into it."""
    columns = min(_CURVE_COLUMNS, len(values))
    parts = [values[len(values) * i // columns : len(values) * (i + 1) // columns] for i in range(columns)]
    means = [statistics.fmean(part) for part in parts]
    top = max(means, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, int(mean / top * len(_BARS)))] for mean in means)


def picture(run: Run) -> list[Line]:
    lines = [
        line(("pccl demo", "bold"), f"  {run.plan.workers} workers, master at {run.address}, {run.now():.1f} s"),
        line(_progress(run)),
        line(),
        line((f"{'WORKER':6}  {'PID':>8}  {'STATE':12}  {'STEP':>7}  {'LOSS':>7}  ALL-REDUCE", "bold")),
    ]
    for worker in run.workers:
        last = worker.steps[-1] if worker.steps else None
        lines.append(
            line(
                f"{worker.index:6}  {worker.process.pid:8}  ",
                (f"{worker.state:12}", _STYLES.get(worker.state, "yellow")),
                f"  {last.step:7}  {last.loss:7.3f}  {last.reduce_ms:.2f} ms" if last else "",
            )
        )
    longest = run.workers[1].steps  # neither killed nor told to leave
    lines += [
        line(),
        line("loss        ", (_curve([step.loss for step in longest]), "cyan")),
        line("all-reduce  ", (_curve([step.reduce_ms for step in longest]), "cyan")),
        line(),
    ]
    return lines + [line((f"{at:6.1f} s  ", "dim"), text) for at, text in run.happened[-_HAPPENED_LINES:]]


def summary(run: Run) -> list[str]:
    first = run.workers[1].steps  # neither killed nor told to leave
    times = [step.reduce_ms for worker in run.workers for step in worker.steps]
    tenth = max(1, len(first) // 10)
    begin, end = (statistics.fmean(step.loss for step in part) for part in (first[:tenth], first[-tenth:]))
    lines = [
        f"{run.plan.steps} steps in {run.now():.1f} s; loss {begin:.3f} at the begin, {end:.3f} at the end",
        f"all-reduce: {statistics.median(times):.2f} ms in the middle, {max(times):.2f} ms at worst, "
        f"{sum(step.sent for worker in run.workers for step in worker.steps) / 1e6:.2f} MB sent by all",
    ]
    outage = run.outage
    if outage is not None and outage.back_step is not None and outage.back_at is not None:
        lines.append(
            f"worker {outage.worker} was killed at step {outage.killed_step} and was back at step {outage.back_step}, "
            f"{outage.back_at - outage.killed_at:.1f} s later; the others made "
            f"{outage.back_step - outage.killed_step - 1} steps meanwhile"
        )
    if outage is not None and outage.others_at is not None:
        lines.append(f"the kill cost the others {1000 * (outage.others_at - outage.killed_at):.0f} ms")
    lines.append(
        f"all {run.plan.at_the_end} workers hold the same weights (sha256 {run.workers[1].digest[:16]}...), and held the "
        f"same ones behind each of {len(run.digests)} steps"
    )
    return lines
