"""What a reader has to know about the machine to judge the numbers."""

from __future__ import annotations

import datetime
import os
import platform
import time
from pathlib import Path

from compare.networks import Failed, run


def _first(path: str, name: str) -> str:
    try:
        with open(path) as lines:
            for line in lines:
                if line.startswith(name):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def _answer(*command: str) -> str:
    try:
        return run(command).strip().splitlines()[0]
    except (Failed, IndexError):
        return "unknown"


def _file(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def load(seconds: float = 2.0) -> float:
    """Processors in use over the next seconds, also by other guests of the host. Unlike the load average of the system, it
    does not count a build that has just ended."""

    def ticks() -> int:
        user, nice, system, _, _, *others = (int(field) for field in _file("/proc/stat").splitlines()[0].split()[1:9])
        return user + nice + system + sum(others)

    before, began = ticks(), time.monotonic()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


def describe(tree: Path, versions: dict[str, str]) -> dict[str, str]:
    in_use = load()
    changed = _answer("git", "-C", str(tree), "status", "--porcelain", "--untracked-files=no") != "unknown"
    commit = _answer("git", "-C", str(tree), "rev-parse", "--short", "HEAD")
    cores = len(os.sched_getaffinity(0))
    found = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit + (" with changes" if changed else ""),
        "processor": f"{_first('/proc/cpuinfo', 'model name')}, {cores} cores",
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / (1 << 20):.0f} GiB",
        "kernel": platform.release(),
        "system": _first_of_os_release(),
        "load before": f"{in_use:.1f}" + ("  (BUSY: the numbers are worth little)" if in_use > 0.3 * cores else ""),
        "congestion control": _file("/proc/sys/net/ipv4/tcp_congestion_control"),
        "slow start after idle": _file("/proc/sys/net/ipv4/tcp_slow_start_after_idle"),
    }
    return found | versions


def _first_of_os_release() -> str:
    for line in _file("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip('"')
    return "unknown"
