"""The results as a table, as JSON, as plots and as a page of the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compare.plan import Comparison, Part, Row, size_text


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _ratio(row: Row, ours: str, other: str) -> str:
    ratio = row.ratio(ours, other)
    return f"{ratio[0]:.2f}" if ratio else "-"


def _columns(row: Row, ours: str, others: list[str]) -> list[str]:
    """Times of all, our ratios to the others, and what limits or predicts our time."""
    own = row.median_ms(ours)
    cells = [_ms(own)] + [_ms(row.median_ms(name)) for name in others]
    cells += [_ratio(row, ours, name) for name in others]
    cells.append(_ms(row.limit_ms()))
    # The simulator runs our core, so it predicts nobody else.
    predicted = row.predicted_ms if ours == "pccl" else None
    cells.append(_ms(predicted))
    cells.append(f"{100 * (predicted / own - 1):+.0f} %" if predicted and own else "-")
    return cells


def _heads(ours: str, others: list[str]) -> list[str]:
    return [ours, *others, *(f"/ {name}" for name in others), "iperf3", "predicted", "error"]


class Table:
    """On the terminal, row by row."""

    def __init__(self, names: list[str]) -> None:
        self.ours, self.others = names[0], names[1:]

    def part(self, part: Part) -> None:
        print(f"\n{part.setting.text()}, {part.peers} peers; ms")
        print(f"{'size':>9}" + "".join(f"{head:>11}" for head in _heads(self.ours, self.others)), flush=True)

    def row(self, row: Row) -> None:
        cells = _columns(row, self.ours, self.others)
        print(f"{size_text(row.size):>9}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def as_json(comparison: Comparison, machine: dict[str, str], command: str) -> dict[str, Any]:
    return {
        "command": command,
        "machine": machine,
        "remarks": comparison.remarks,
        "delay_lines": comparison.delay_lines,
        "rows": [row.as_json() for row in comparison.rows],
    }


def _groups(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.part, row.peers), []).append(row)
    return groups


COLOURS = {"pccl": "#d62728", "ring": "#7f7f7f", "gloo": "#1f77b4", "openmpi": "#2ca02c"}


def plot(rows: list[Row], names: list[str], folder: Path) -> list[Path]:
    """One file for each part: time over size, a picture for each number of peers. ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    # The same numbers give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "pccl", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for part in dict.fromkeys(row.part for row in rows):
        groups = {peers: found for (name, peers), found in _groups(rows).items() if name == part}
        figure, pictures = pyplot.subplots(1, len(groups), figsize=(4 * len(groups), 3.4), squeeze=False, sharey=True)
        for picture, (peers, found) in zip(pictures[0], groups.items()):
            for name in names:
                points = [(row.size, row.median_ms(name)) for row in found if row.median_ms(name) is not None]
                if points:
                    picture.loglog(*zip(*points), marker="o", markersize=3, label=name, color=COLOURS.get(name))
            for label, style, of in (
                ("path limit (iperf3)", ":", Row.limit_ms),
                ("predicted", "--", lambda row: row.predicted_ms),
            ):
                points = [(row.size, of(row)) for row in found if of(row)]
                # The time on the wire of some bytes is no limit that anybody meets.
                points = [(size, value) for size, value in points if value is not None and value > 0.01]
                if points:
                    picture.loglog(*zip(*points), linestyle=style, color="black", linewidth=1, label=label)
            picture.set_title(f"{part}, {peers} peers")
            picture.set_xlabel("bytes of an all-reduce")
            picture.grid(alpha=0.3)
        pictures[0][0].set_ylabel("ms, median")
        pictures[0][0].legend(fontsize=7)
        figure.tight_layout()
        path = folder / f"{part}.svg"
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
        written.append(path)
    return written


def page(report: dict[str, Any], comparison: Comparison, names: list[str], plots: list[str], run: str) -> str:
    """docs/benchmarks.md."""
    ours, others = names[0], names[1:]
    lines = [
        "# Benchmarks",
        "",
        "Times of PCCL beside other libraries, on one machine. [How to read them](performance.md).",
        "",
        "```sh",
        "./dev bench --write-docs                         # the all-reduces of this page, 20 minutes",
        "./dev bench collectives time bytes --write-docs  # its last section",
        "./dev bench wan --peers 2                        # one part",
        "```",
        "",
        "## This run",
        "",
        *(["**The machine was busy. This run shows that the bench works; its numbers are worth little.**", ""]
          if "BUSY" in report["machine"]["load before"] else []),
        f"Command: `{run}`",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in report["machine"].items()),
        "",
        "Times are in ms: medians over rounds in which all libraries take turns. `/ x` is our time over that of x: the",
        "median of the ratios of the rounds, so below 1 means that we are faster. `iperf3` is the time that these bytes",
        "need on the path at the rate that iperf3 measured. `predicted` is the time in the simulator, and `error` its",
        "deviation.",
        "",
    ]
    for (part, peers), rows in _groups(comparison.rows).items():
        heads = _heads(ours, others)
        lines += [f"## {rows[0].setting.text()}, {peers} peers", ""]
        lines += ["| size | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for row in rows:
            lines.append(f"| {size_text(row.size)} | " + " | ".join(_columns(row, ours, others)) + " |")
        lines += ["", f"(`./dev bench {part} --peers {peers} --sizes {','.join(str(row.size) for row in rows)}`)", ""]
    if plots:
        lines += ["## Plots", "", *(f"![{Path(plot).stem}]({plot})" for plot in plots), ""]
    remarks = list(report["remarks"])
    for line in report["delay_lines"]:
        late = f"{line['late_us_p99'] / 1e3:.2f} ms (99 %), {line['late_us_max'] / 1e3:.1f} ms (all)"
        lost = f"{line['lost_queue']} in queues and {line['lost_random']} at random of {line['segments']}"
        remarks.append(f"{line['part']}, {line['peers']} peers: packets were at most {late} late; lost segments: {lost}")
    if remarks:
        lines += ["## Remarks", "", *(f"- {remark}" for remark in remarks), ""]
    return "\n".join(lines)


COLLECTIVES = "## Every collective beside gloo"  # the last section of the page, which another bench writes


def write_page(page_path: Path, text: str | None = None, collectives: str | None = None) -> None:
    """Writes the page, or its last section; what is None stays as it was."""
    old = page_path.read_text() if page_path.exists() else ""
    before, head, section = old.partition(COLLECTIVES)
    text = before if text is None else text
    collectives = head + section if collectives is None else collectives
    page_path.write_text(text.rstrip() + "\n" + ("\n" + collectives.rstrip() + "\n" if collectives else ""))


def write_json(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
