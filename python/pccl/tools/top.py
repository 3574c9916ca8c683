"""``python -m pccl top``: members of a run, its rings, what is done, and which votes wait for which members."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence

from pccl.tools.screen import Line, Screen, age, drop_output, line, plain_text, rate, wants_drawing
from pccl.tools.status import DEFAULT_PORT, Gang, Group, Peer, Status, StatusError, Vote, fetch, url_of

_STATE_STYLES = {"member": "green", "joining": "yellow", "resuming": "yellow", "absent": "red", "unreachable": "red"}
_RING_COLUMNS = 100
_LONG_MS = 30_000
_JOURNAL_HANGS_MS = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pccl top",
        description="Shows the status of a master that was started with `pccl-master --status HOST:PORT`.",
        epilog="Exit codes: 0 shown (also when ended with Ctrl-C), 1 no status could be read, 2 wrong usage.",
    )
    parser.add_argument(
        "--master",
        default=f"127.0.0.1:{DEFAULT_PORT}",
        metavar="HOST:PORT",
        help="where the master's status is served, or its URL (default: %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="show it once and end; rates are those of one interval")
    parser.add_argument("--plain", action="store_true", help="no colours, nothing drawn in place")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="between two looks (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.interval <= 3600:
        parser.error(f"--interval {options.interval:g}: use 0 to 3600 seconds")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        url = url_of(options.master)
    except ValueError:
        parser.error(f"--master {options.master}: write HOST:PORT, [V6]:PORT or http://HOST:PORT")
    try:
        return _once(url, options.interval) if options.once else _follow(url, max(options.interval, 0.1), options.plain)
    except StatusError as error:
        print(f"python -m pccl top: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        drop_output()
        return 0


def _once(url: str, interval: float) -> int:
    before = Look(fetch(url)) if interval > 0 else None
    time.sleep(interval)
    _print(picture(Look(fetch(url)), before, url))
    return 0


def _print(lines: list[Line]) -> None:
    print("\n".join(plain_text(content) for content in lines), flush=True)


def _follow(url: str, interval: float, plain: bool) -> int:
    last = Look(fetch(url))
    if not wants_drawing(sys.stdout, plain):
        before: Look | None = None
        while True:
            _print([*picture(last, before, url), []])
            time.sleep(interval)
            before, last = last, Look(fetch(url))
    with Screen(sys.stdout) as screen:
        shown = picture(last, None, url)
        while True:
            screen.draw(shown)
            time.sleep(interval)
            try:
                before, last = last, Look(fetch(url))
                shown = picture(last, before, url)
            except StatusError as error:
                # The master may come back: one that was killed is started again.
                silent = age(int((time.monotonic() - last.at) * 1000))
                shown = [line((f"as of {silent} ago: {error}", "red")), *picture(last, None, url)]


class Look:
    """A status, and the time at which it was read."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.at = time.monotonic()


def picture(now: Look, before: Look | None, url: str) -> list[Line]:
    status = now.status
    joining = len(status.peers) - sum(peer.state in ("member", "resuming", "absent") for peer in status.peers)
    style = "green" if status.state == "serving" else "yellow"
    lines = [
        line(
            (f"pccl-master {status.version}", "bold"),
            f"  run {status.run}, incarnation {status.incarnation}, ",
            (status.state, style),
            f" for {age(status.uptime_ms)}  ({url})",
        ),
        line(
            f"{status.members} members, {joining} to be admitted, {status.removed} gone; "
            f"epoch {status.epoch}, {status.decisions} decisions"
            + (", optimizing the rings" if status.optimizing else "")
        ),
    ]
    if status.journal_waits_ms is not None and status.journal_waits_ms >= _JOURNAL_HANGS_MS:
        told = f"the disk of the journal has not answered for {age(status.journal_waits_ms)}: every call waits for it"
        lines.append(line((told, "red")))
    for group in status.groups:
        lines += [line(), *_group_lines(group, now, before)]
    lines += [line()]
    lines += _peer_lines(status.peers, status.gangs) if status.peers else [line(("nobody is here yet", "dim"))]
    if status.votes:
        lines += [line(), line(("VOTES THAT WAIT", "bold"))]
        lines += [_vote_line(vote) for vote in status.votes]
        if status.votes_open > len(status.votes):
            lines.append(line(f"  and {status.votes_open - len(status.votes)} more"))
    if status.removals:
        lines += [line(), line(("GONE", "bold"))]
        lines += [line(f"  {one.peer}  {age(one.ago_ms)} ago: {one.reason}") for one in reversed(status.removals)]
    return lines


def _group_lines(group: Group, now: Look, before: Look | None) -> list[Line]:
    doing = f"{group.running} running" + (", synchronizing" if group.syncing else "")
    lines = [
        line(
            (f"GROUP {group.id}", "bold"),
            f"  revision {group.expected_revision}, {doing}; "
            f"{group.committed} reductions{_rates(group, now, before)}, ",
            (f"{group.aborted} aborted", "yellow" if group.aborted else ""),
            f", {group.refused} refused, {group.syncs} synchronizations",
        )
    ]
    parts = [_edge_text(group, index) for index in range(len(group.ring))]
    text = "  ring"
    for part in [*parts, group.ring[0] if len(group.ring) > 1 else ""]:
        if len(text) + len(part) > _RING_COLUMNS:
            lines.append(line(text))
            text = "      "
        text += f" {part}"
    lines.append(line(text))
    return lines


def _edge_text(group: Group, index: int) -> str:
    name = group.ring[index]
    if len(group.ring) < 2 or index >= len(group.edges):
        return name
    edge = group.edges[index]
    if not edge.up:
        return f"{name} -x->"
    return f"{name} -{rate(edge.bytes_per_second)}->" if edge.bytes_per_second else f"{name} ->"


def _rates(group: Group, now: Look, before: Look | None) -> str:
    """Rates between two documents of one process of the master. Empty if both are the same page, which is kept for a
    moment."""
    if before is None or now.status.uptime_ms <= before.status.uptime_ms:
        return ""
    seconds = (now.status.uptime_ms - before.status.uptime_ms) / 1000
    for former in before.status.groups:
        if former.id == group.id and former.committed <= group.committed:
            operations = (group.committed - former.committed) / seconds
            return f" ({operations:.1f}/s, {rate((group.committed_bytes - former.committed_bytes) / seconds)})"
    return ""


def _peer_lines(peers: list[Peer], gangs: list[Gang]) -> list[Line]:
    width = max(len("ADDRESS"), *(len(peer.address) for peer in peers))
    head = f"{'PEER':8}  {'ADDRESS':{width}}  {'GROUP':>5}  {'STATE':11}  {'SINCE':>12}  {'HEARD':>12}  WAITS IN"
    lines = [line((head, "bold"))]
    for peer in sorted(peers, key=lambda one: (one.group, -one.since_ms)):
        waits = "-"
        if peer.waits is not None:
            tag = "" if peer.waits.tag is None else f" with tag {peer.waits.tag}"
            more = f" and {peer.waits.others} more" if peer.waits.others else ""
            waits = f"{peer.waits.vote}{tag} for {age(peer.waits.for_ms)}{more}"
        elif peer.state in ("joining", "unreachable"):
            waits = next((gang.waits() for gang in gangs if gang.name == peer.gang), "update topology of the members")
        lines.append(
            line(
                f"{peer.name:8}  {peer.address:{width}}  {peer.group:5}  ",
                (f"{peer.state:11}", _STATE_STYLES.get(peer.state, "")),
                f"  {age(peer.since_ms):>12}  {age(peer.heard_ms):>12}  {waits}",
            )
        )
    return lines


def _vote_line(vote: Vote) -> Line:
    tag = "" if vote.tag is None else f" with tag {vote.tag}"
    group = "" if vote.group is None else f" in group {vote.group}"
    text = f"  {vote.vote}{tag}{group}: {vote.voted} voted, open for "
    if vote.missing == 0:
        waits = "; complete, starts when there is a place and the ring is connected"
    else:
        more = vote.missing - len(vote.waits_for)
        waits = f"; waits for {', '.join(vote.waits_for)}" + (f" and {more} more" if more > 0 else "")
    return line(text, (age(vote.open_ms), "yellow" if vote.open_ms >= _LONG_MS else ""), waits)
