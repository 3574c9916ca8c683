"""Draws the pictures of the pages: `python docs/pictures/draw.py` writes them beside this file. Needs nothing else."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

INK, FAINT, PAPER = "#1f2933", "#7b8794", "#ffffff"
BLUE, BLUE_FILL = "#1d5fa8", "#dcebfa"
GREEN, GREEN_FILL = "#2c7a3f", "#dff3e3"
RED, RED_FILL = "#b42318", "#fde5e3"
AMBER, AMBER_FILL = "#9a6700", "#fdf1cf"
GREY_FILL = "#eef1f4"


class Picture:
    """SVG text, piece by piece. The paper is white, so that it reads alike on light and dark pages."""

    def __init__(self, width: int, height: int, title: str) -> None:
        heads = "".join(
            f'<marker id="head{color[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" '
            f'markerWidth="12" markerHeight="12" orient="auto"><path d="M0 0L10 5L0 10z" fill="{color}"/></marker>'
            for color in (INK, FAINT, BLUE, GREEN, RED, AMBER)
        )
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="{INK}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<defs>{heads}</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        ]

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "middle", size: int = 14, color: str = INK,
        bold: bool = False, mono: bool = False,
    ) -> None:  # fmt: skip
        style = ' font-weight="bold"' if bold else ""
        style += ' font-family="Menlo, Consolas, monospace"' if mono else ""
        for number, line in enumerate(words.split("\n")):
            self._parts.append(
                f'<text x="{x:.1f}" y="{y + number * size * 1.3:.1f}" text-anchor="{anchor}" font-size="{size}" '
                f'fill="{color}"{style}>{escape(line)}</text>'
            )

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = GREY_FILL, edge: str = FAINT,
        dashed: bool = False, round_: float = 6,
    ) -> None:  # fmt: skip
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_}" fill="{fill}" '
            f'stroke="{edge}" stroke-width="1.4"{dash}/>'
        )

    def circle(self, x: float, y: float, radius: float, *, fill: str, edge: str, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{edge}" stroke-width="1.6"{dash}/>'
        )

    def path(
        self, data: str, *, color: str = INK, width: float = 1.8, dashed: bool = False, head: bool = True
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        end = f' marker-end="url(#head{color[1:]})"' if head else ""
        self._parts.append(f'<path d="{data}" fill="none" stroke="{color}" stroke-width="{width}"{dash}{end}/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, **style: object) -> None:
        self.path(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", **style)  # type: ignore[arg-type]

    def source(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def run() -> str:
    picture = Picture(760, 300, "A run: one master, its members in a ring, a newcomer that waits")
    picture.box(270, 24, 220, 56, fill=AMBER_FILL, edge=AMBER)
    picture.text(380, 48, "master", bold=True)
    picture.text(380, 68, "who takes part, what was agreed", size=11, color=FAINT)
    xs = [90, 270, 450]
    for index, x in enumerate(xs):
        picture.box(x - 62, 180, 124, 60, fill=BLUE_FILL, edge=BLUE)
        picture.text(x, 206, f"peer {'ABC'[index]}", bold=True)
        picture.text(x, 226, "your program", size=11, color=FAINT)
        picture.arrow(x, 178, 330 + 30 * index, 82, color=AMBER, dashed=True)
    picture.arrow(152, 210, 206, 210, color=BLUE, width=3)
    picture.arrow(332, 210, 386, 210, color=BLUE, width=3)
    picture.path("M450 242C450 286 90 286 90 244", color=BLUE, width=3)
    picture.box(608, 180, 124, 60, edge=FAINT, dashed=True)
    picture.text(670, 206, "peer D", bold=True, color=FAINT)
    picture.text(670, 226, "waits in connect()", size=11, color=FAINT)
    picture.arrow(655, 178, 450, 82, color=AMBER, dashed=True)
    picture.text(560, 262, "counted from the members' next\nupdate_topology() on", size=11, color=FAINT)
    picture.text(30, 44, "dashed: votes and decisions", anchor="start", size=12, color=AMBER)
    picture.text(30, 64, "thick: tensors, from peer to peer", anchor="start", size=12, color=BLUE)
    return picture.source()


def loop() -> str:
    picture = Picture(
        820, 330, "The training loop: update_topology, sync_shared_state, compute, all_reduce, push_revision"
    )
    steps = [
        ("update_topology()", "all members vote;\nnewcomers enter,\nthe ring is built", AMBER_FILL, AMBER),
        ("sync_shared_state()", "the group compares\nrevision and bytes,\nwho differs receives", GREEN_FILL, GREEN),
        ("compute", "each on its own data;\nno call, no network", GREY_FILL, FAINT),
        ("all_reduce()", "the group sums or\naverages, or nobody\nhas changed a byte", BLUE_FILL, BLUE),
        ("apply\npush_revision()", "the same arithmetic\non every member", GREY_FILL, FAINT),
    ]
    width, gap, top = 140, 20, 130
    for index, (name, what, fill, edge) in enumerate(steps):
        x = 20 + index * (width + gap)
        picture.box(x, top, width, 104, fill=fill, edge=edge)
        call = name != "compute"
        picture.text(x + width / 2, top + 22, name, bold=True, size=11 if call else 12, mono=call)
        picture.text(x + width / 2, top + (58 if "\n" in name else 46), what, size=12)
        if index:
            picture.arrow(x - gap + 1, top + 52, x - 1, top + 52)
    picture.path("M730 236C730 304 690 304 640 304L150 304C110 304 90 290 90 238", color=INK)
    picture.text(410, 296, "next turn", size=12, color=FAINT)
    picture.box(110, 24, 140, 48, fill=PAPER, edge=FAINT, dashed=True)
    picture.text(180, 44, "connect()", bold=True, size=12, mono=True)
    picture.text(180, 61, "waits until admitted", size=11, color=FAINT)
    picture.path("M180 73C180 96 250 92 250 128", color=AMBER)
    where = "a newcomer enters here: no update_topology() in its first turn,\nthe members' call has just let it in"
    picture.text(266, 96, where, anchor="start", size=12)
    return picture.source()


def _peers_in_ring(
    picture: Picture, x: float, y: float, names: str, *, dead: str = "", color: str = BLUE, broken: bool = False
) -> None:
    radius, size = 78, 25
    places = {}
    for index, name in enumerate(names):
        angle = 2 * math.pi * index / len(names) - math.pi / 2
        places[name] = (x + radius * math.cos(angle), y + radius * math.sin(angle))
    order = list(names)
    for name, following in zip(order, order[1:] + order[:1], strict=True):
        (x1, y1), (x2, y2) = places[name], places[following]
        length = math.hypot(x2 - x1, y2 - y1)
        dx, dy = (x2 - x1) / length * (size + 3), (y2 - y1) / length * (size + 3)
        tint, width = RED if dead and dead in (name, following) else color, 1.8 if broken else 3
        picture.arrow(x1 + dx, y1 + dy, x2 - dx, y2 - dy, color=tint, width=width, dashed=broken)
    for name, (px, py) in places.items():
        if name == dead:
            picture.circle(px, py, size, fill=RED_FILL, edge=RED, dashed=True)
            cross = f"M{px - 12:.1f} {py - 12:.1f}l24 24M{px + 12:.1f} {py - 12:.1f}l-24 24"
            picture.path(cross, color=RED, width=3, head=False)
        else:
            picture.circle(px, py, size, fill=BLUE_FILL, edge=BLUE)
            picture.text(px, py + 5, name, bold=True)


def ring() -> str:
    picture = Picture(820, 330, "A ring in which a peer dies: the call fails for all, and three make it again")
    panels = [
        ("1  all_reduce() runs", "slices go round; each peer adds\nits own to what comes", "ABCD", "", BLUE, False),
        ("2  C dies", "A, B, D: PCCLConnectionLostError,\ntheir arrays hold the input again", "ABCD", "C", FAINT, True),
        ("3  the same call again", "the average of three, the same\nbytes on A, B and D", "ABD", "", BLUE, False),
    ]
    for index, (title, what, names, dead, color, broken) in enumerate(panels):
        x = 140 + index * 270
        picture.text(x, 32, title, bold=True, size=15)
        _peers_in_ring(picture, x, 155 if len(names) == 4 else 165, names, dead=dead, color=color, broken=broken)
        picture.text(x, 290, what, size=12)
        if index:
            picture.path(f"M{x - 135} 50l0 250", color="#d5dbe1", width=1.4, head=False)
    return picture.source()


def diloco() -> str:
    picture = Picture(820, 500, "Three forms of DiLoCo: synchronous, one step behind, streaming, over three rounds")
    left, right = 150, 790

    def bar(x1: float, x2: float, y: float, height: float, fill: str, edge: str, label: str) -> None:
        picture.box(x1, y, x2 - x1, height, fill=fill, edge=edge, round_=3)
        if label:
            picture.text((x1 + x2) / 2, y + height / 2 + 4, label, size=11)

    def lane(y: float, title: str, arguments: str) -> None:
        picture.text(left, y - 30, title, anchor="start", bold=True)
        picture.text(right, y - 30, arguments, anchor="end", size=12, mono=True, color=FAINT)
        picture.text(left - 12, y + 17, "inner steps", anchor="end", size=12)
        picture.text(left - 12, y + 57, "network", anchor="end", size=12)

    # Synchronous: nobody computes while the average travels.
    y = 56
    lane(y, "synchronous", "H=100")
    compute, travel = 150, 60
    for index in range(3):
        x = left + index * (compute + travel)
        bar(x, x + compute, y, 26, GREEN_FILL, GREEN, f"round {index + 1}: H steps")
        bar(x + compute, x + compute + travel, y + 40, 26, BLUE_FILL, BLUE, f"average {index + 1}")
        picture.arrow(x + compute, y + 28, x + compute, y + 39, color=BLUE)
        picture.arrow(x + compute + travel - 4, y + 39, x + compute + travel - 4, y + 14, color=AMBER)

    # One step behind: the average of a round is applied at the end of the next one.
    y = 216
    lane(y, "one step behind", "H=100, overlap=True")
    for index in range(4):
        x = left + index * compute
        bar(x, x + compute, y, 26, GREEN_FILL, GREEN, f"round {index + 1}: H steps")
        if index:
            bar(x, x + 84, y + 40, 26, BLUE_FILL, BLUE, f"average {index}")
            picture.arrow(x + 5, y + 28, x + 5, y + 39, color=BLUE)
            applied = x + compute - 7
            picture.path(f"M{x + 86} {y + 53}L{applied} {y + 53}L{applied} {y + 28}", color=AMBER, dashed=True)

    # Streaming: a part at a time, applied some steps after it was sent.
    y = 376
    lane(y, "streaming", "H=100, fragments=4, overlap=True, delay=5")
    quarter = compute / 4
    for index in range(4):
        x = left + index * compute
        bar(x, x + compute, y, 26, GREEN_FILL, GREEN, f"round {index + 1}: H steps")
    for index in range(16):
        lands = left + (index + 1) * quarter
        bar(lands - 26, lands - 6, y + 40, 26, BLUE_FILL, BLUE, str(index % 4 + 1))
        picture.arrow(lands - 24, y + 28, lands - 24, y + 39, color=BLUE, width=1.2)
        picture.path(f"M{lands - 5} {y + 53}L{lands - 1} {y + 53}L{lands - 1} {y + 29}", color=AMBER, width=1.2)
    picture.text(left + 330, y + 84, "each part of the parameters, 1 to 4, travels once a round", size=12, color=FAINT)

    picture.arrow(left, 484, left + 30, 484, color=BLUE)
    picture.text(left + 38, 488, "launched", anchor="start", size=12)
    picture.arrow(left + 130, 484, left + 160, 484, color=AMBER)
    picture.text(left + 168, 488, "applied: the outer step", anchor="start", size=12)
    return picture.source()


def grid() -> str:
    picture = Picture(820, 420, "A grid of replicas and shards: rows are replicas, columns are shards and peer groups")
    left, top, width, height = 170, 84, 110, 54
    across, down = 145, 96
    for shard in range(4):
        x = left + shard * across
        picture.text(x + width / 2, 34, f"shard {shard}", bold=True)
        picture.text(x + width / 2, 54, f"peer group {shard}", size=12, color=BLUE)
    for replica in range(3):
        y = top + replica * down
        whole = (left - 22, y - 14, 3 * across + width + 44, height + 28)
        picture.box(*whole, fill="#f7faf7", edge=GREEN, dashed=True, round_=10)
        picture.text(left - 34, y + 24, f"replica {replica}", anchor="end", bold=True)
        picture.text(left - 34, y + 42, ("site X", "site Y", "site Z")[replica], anchor="end", size=12, color=FAINT)
        for shard in range(4):
            x = left + shard * across
            picture.box(x, y, width, height, fill=BLUE_FILL, edge=BLUE)
            picture.text(x + width / 2, y + 24, f"process {shard}", size=12)
            picture.text(x + width / 2, y + 42, f"holds shard {shard}", size=11, color=FAINT)
            if shard:
                picture.path(f"M{x - 34} {y + height / 2}l32 0", color=GREEN, width=2, head=False)
            if replica:
                picture.arrow(x + width / 2, y - down + height + 1, x + width / 2, y - 2, color=BLUE, width=3)
    for shard in range(4):
        x = left + shard * across + width / 2
        bottom, first = top + 2 * down + height + 1, top + height - 8
        picture.path(
            f"M{x} {bottom}C{x} {bottom + 26} {x + 72} {bottom + 26} {x + 72} {bottom - 30}L{x + 72} {first + 30}"
            f"C{x + 72} {first} {x + 66} {first} {x + 57} {first}",
            color=BLUE, width=1.6, dashed=True,
        )  # fmt: skip
    picture.path("M60 384l30 0", color=GREEN, width=2, head=False)
    picture.text(100, 388, "within a replica: FSDP2 over its own fast network", anchor="start", size=12)
    picture.arrow(430, 384, 460, 384, color=BLUE, width=3)
    picture.text(470, 388, "between replicas: one ring for each shard", anchor="start", size=12)
    whole_step = "A replica takes a step with all its processes, or not at all."
    picture.text(60, 410, whole_step, anchor="start", size=12, color=FAINT)
    return picture.source()


PICTURES = {"run": run, "loop": loop, "ring": ring, "diloco": diloco, "grid": grid}


def main() -> None:
    for name, draw in PICTURES.items():
        (Path(__file__).parent / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
