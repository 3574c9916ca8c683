"""Changes core/ at one place after the other, and asks the simulator which changes it notices.

Run by `./dev mutants --everywhere`. Nothing here is a mistake that somebody made; but what survives shows where the
simulator does not look, or where the core does more than it has to.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plant import plant

ROOT = Path(__file__).resolve().parents[3]
WORK = ROOT / "build/mutants/everywhere"
NEEDED = ("CMakeLists.txt", "VERSION", "cmake", "core", "include", "net-sim", "harness", "tools",
          "tests/property/rare_seeds.txt")
REGRESSIONS = ROOT / "tests/property/regressions"
SEEDS = 3000  # of which it is known what they reach
SLOW = 0.15  # seconds: longer scenarios are left out
HANGS = 60  # seconds


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        print(done.stdout[-4000:])
        raise SystemExit(f"mutants: {' '.join(map(str, command[:3]))} ... failed")


def copy(to: Path, keep=()):
    """The files that git lists; what is the same keeps its time, so little is built again."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *NEEDED], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    listed = [name for name in listed if name and (ROOT / name).exists()]
    wanted = {to / name for name in listed}
    for part in NEEDED:
        for file in (to / part).rglob("*"):
            if file.is_file() and file not in wanted and not file.name.startswith("switch."):
                file.unlink()
    for name in listed:
        source, target = ROOT / name, to / name
        if name.startswith(keep):
            continue
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def configure(source: Path, flags: str):
    if not (source / "build/build.ninja").exists():
        run([
            os.environ.get("PCCL_CMAKE", "cmake"), "-S", source, "-B", source / "build", "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", "-DPCCL_BUILD_TESTS=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            f"-DCMAKE_CXX_FLAGS={flags}"
        ])


def build(jobs: int):
    """The switched simulator; returns its changes."""
    clean, switched = WORK / "clean", WORK / "switched"
    copy(clean)
    configure(clean, "")
    targets = subprocess.run(["ninja", "-C", clean / "build", "-t", "targets", "all"], capture_output=True, text=True,
                             check=True).stdout
    run(["ninja", "-C", clean / "build", *re.findall(r"^([^ :]*\.pb\.h):", targets, re.MULTILINE)])
    copy(switched, ("core/", ))
    for file in (clean / "core").rglob("*"):
        target = switched / file.relative_to(clean)
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    changes = plant(clean, clean / "build", switched)
    touched = {row[1] for row in changes}
    for file in (clean / "core").rglob("*"):  # what has no change any more, or never had one
        name = str(file.relative_to(clean))
        if file.is_file() and name not in touched and (switched / name).read_bytes() != file.read_bytes():
            (switched / name).write_bytes(file.read_bytes())
    configure(switched, f"-w -include {switched}/core/base/switch.hpp")
    run(["ninja", "-C", switched / "build", "-j", str(jobs), "sim-run"])
    return changes, switched / "build/bin/sim-run"


class Hunt:

    def __init__(self, binary: Path, jobs: int):
        self.binary = binary
        self.jobs = jobs

    def play(self, arguments, number=0, **more):
        environment = dict(os.environ, PCCL_MUTANT=str(number), **more)
        try:
            return subprocess.run([self.binary, *arguments], env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=HANGS).returncode
        except subprocess.TimeoutExpired:
            return -1

    def reach(self):
        """What each run reaches; without a change all of them must hold."""
        folder = WORK / "reach"
        folder.mkdir(exist_ok=True)
        runs = [("--seed", str(seed)) for seed in range(1, SEEDS + 1)]
        runs += [("--scenario", str(path)) for path in sorted(REGRESSIONS.glob("*.scenario"))]

        def one(arguments):
            file = folder / Path(arguments[1]).name
            began = time.monotonic()
            if self.play(arguments, PCCL_REACHED=str(file)) != 0:
                raise SystemExit(f"mutants: the tree itself fails: sim-run {' '.join(arguments)}")
            return arguments, file.read_bytes(), time.monotonic() - began

        with ThreadPoolExecutor(self.jobs) as workers:
            for arguments, reached, seconds in workers.map(one, runs):
                if arguments[0] == "--seed":
                    yield arguments[1], reached
                elif seconds < SLOW:
                    yield arguments, reached

    def notices(self, number, seeds, scenarios, draw):
        """What found the change: seed, scenario or nothing. First seeds that reach it, for most changes are coarse."""
        draw.shuffle(seeds)
        draw.shuffle(scenarios)
        for part in (seeds[:25], scenarios[:100], seeds[25:200]):
            if part and isinstance(part[0], str):
                listed = WORK / f"seeds.{threading.get_ident()}"
                listed.write_text("\n".join(part) + "\n")
                if self.play(["--seed-list", str(listed), "--jobs", "1", "--stop-at-first"], number) != 0:
                    return "seed"
            elif any(self.play(scenario, number) != 0 for scenario in part):
                return "scenario"
        return "-"


def main():
    parser = argparse.ArgumentParser(prog="./dev mutants --everywhere", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sample", type=int, default=1000, help="how many lines are changed (default 1000)")
    parser.add_argument("--draw", type=int, default=1, help="which lines: another number draws others")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("PCCL_JOBS", os.cpu_count())))
    chosen = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    changes, binary = build(chosen.jobs)
    hunt = Hunt(binary, chosen.jobs)
    with open(WORK / "changes.txt", "w", encoding="utf-8") as file:
        for number, path, line, kind, text in changes:
            file.write(f"{number}\t{path}:{line}\t{kind}\t{text}\n")
    print(f"{len(changes)} changes; asking which runs reach them", flush=True)
    runs = list(hunt.reach())

    draw = random.Random(chosen.draw)
    lines = defaultdict(list)
    unreached = 0
    for row in changes:
        if any(reached[row[0]] for _, reached in runs):
            lines[row[1:3]].append(row)
        else:
            unreached += 1
    sample = [draw.choice(rows) for _, rows in sorted(lines.items())]
    draw.shuffle(sample)
    sample = sample[:chosen.sample]

    def one(row):
        seeds = [name for name, reached in runs if isinstance(name, str) and reached[row[0]]]
        scenarios = [name for name, reached in runs if isinstance(name, tuple) and reached[row[0]]]
        return row, len(seeds), hunt.notices(row[0], seeds, scenarios, random.Random(row[0]))

    survivors, found = [], Counter()
    with ThreadPoolExecutor(chosen.jobs) as workers:
        for done, (row, reaching, how) in enumerate(workers.map(one, sample), 1):
            found[how] += 1
            if how == "-":
                survivors.append((row, reaching))
            if done % 100 == 0:
                print(f"{done} of {len(sample)}: {done - found['-']} noticed", flush=True)
    with open(WORK / "survivors.txt", "w", encoding="utf-8") as file:
        for (number, path, line, kind, text), reaching in sorted(survivors, key=lambda s: s[0][1:3]):
            file.write(f"{path}:{line}\t{kind}\t{text}\t{reaching} seeds\tPCCL_MUTANT={number}\n")
    print(f"{len(lines)} lines with {len(changes) - unreached} changes that a run reaches, {unreached} that none reaches")
    print(f"of {len(sample)} changes, one a line: {found['seed']} noticed by seeds that reach them, "
          f"{found['scenario']} by kept scenarios, {found['-']} by none")
    print(f"those: {WORK / 'survivors.txt'}; play one with PCCL_MUTANT=N {binary}")


if __name__ == "__main__":
    sys.exit(main())
