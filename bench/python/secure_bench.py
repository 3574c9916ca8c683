"""What a secure run costs on loopback: ``./dev bench tls``.

Two members reduce one array over TCP, with and without TLS in turns, so that other load slows both alike. Prints the best
and the median time of each, their ratios, and the CPU time for each GB that a member sends. The bound is the ratio that
encryption alone causes: the time that OpenSSL takes for these bytes, divided by the number of cores.

Then both run while strangers dial all ports as fast as they can. The strangers run on this machine and take CPU time from
the members. The bench measures that share, and compares the speed with that of the remaining share.

Last: how much longer a peer takes to join, and how long the connections of a revoked peer stay open. ``--wan`` measures
reductions and joins on a path of 1 Gbit/s and 40 ms instead (bench/delay_line.cpp; needs root).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from compare import networks

_MEMBERS = 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Strangers:
    """Threads that connect, send bytes that begin a handshake or a frame wrongly, and go away."""

    def __init__(self, ports: list[int], threads: int) -> None:
        self.dials = 0
        self.cores = 0.0  # CPU seconds of this process per second
        self._ports, self._over = ports, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(threads)]

    def __enter__(self) -> Strangers:
        self._began = time.monotonic(), time.process_time()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.cores = (time.process_time() - self._began[1]) / (time.monotonic() - self._began[0])

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        # The head of a TLS record with a client's hello, or of anything else.
        heads = [bytes.fromhex("1603010200010001fc0303"), b"GET / HTTP/1.1\r\n", b""]
        while not self._over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(
                ("127.0.0.1", draw.choice(self._ports)), timeout=1
            ) as stream:
                self.dials += 1
                stream.sendall(draw.choice(heads) + draw.randbytes(draw.randrange(600)))
                if draw.random() < 0.5:
                    stream.settimeout(0.05)
                    stream.recv(100)


class Members:
    def __init__(
        self, programs: Path, secure: bool, directory: str, count: int, network: networks.Network | None = None
    ) -> None:
        self._programs, self._directory = programs, directory
        place, host = ([], "127.0.0.1") if network is None else network.master()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PCCL_")} | {"PCCL_LOG_LEVEL": "FATAL"}
        command = [*place, programs / "pccl-master", "--listen", f"{host}:0", "--state-dir", directory]
        self._master = subprocess.Popen(
            [*map(str, command), *(["--secure"] if secure else [])],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert self._master.stdout is not None
        self._members: list[subprocess.Popen[str]] = []
        try:
            self._start_members(programs, secure, directory, count, host, network, environment)
        except BaseException:
            for process in [self._master, *self._members]:
                process.kill()
            raise

    def _start_members(
        self, programs: Path, secure: bool, directory: str, count: int, host: str,
        network: networks.Network | None, environment: dict[str, str],
    ) -> None:  # fmt: skip
        assert self._master.stdout is not None
        port = int(self._master.stdout.readline().rsplit(":", 1)[1])
        self.ports = [port]
        began = time.monotonic()
        for rank in range(count):
            own = environment | {"PCCL_SHARED_MEMORY": "0", "PCCL_PORT_RANGE": str(free_port())}
            self.ports.append(int(own["PCCL_PORT_RANGE"]))
            if secure:
                own["PCCL_INVITE"] = subprocess.check_output(
                    [programs / "pccl-master", "invite", "--state-dir", directory, "--name", f"member-{rank}"],
                    text=True, env=environment,
                ).strip()  # fmt: skip
            began = time.monotonic()
            inside = [] if network is None else network.prefix(rank)
            self._members.append(
                subprocess.Popen(
                    [*inside, str(programs / "pccl-bench"), "--role", "peer", "--rank", str(rank),
                     "--world", str(count), "--master-host", host, "--master-port", str(port)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own,
                )
            )  # fmt: skip

        for member in self._members:
            assert member.stdout is not None
            if member.stdout.readline().split() != ["ready"]:
                raise SystemExit("secure_bench: a member did not join")
        self.joined_after = time.monotonic() - began  # of the last one, from its start

    def revoke_last(self) -> float:
        """Seconds until the last member has no open connection any more. The run is of no use afterwards."""
        pid = self._members[-1].pid
        if not open_connections(pid):
            raise SystemExit("secure_bench: the member to be revoked has no connection")
        began = time.monotonic()
        name = f"member-{len(self._members) - 1}"
        subprocess.check_output(
            [self._programs / "pccl-master", "revoke", name, "--state-dir", self._directory], text=True
        )
        while open_connections(pid):
            if time.monotonic() - began > 60:
                raise SystemExit("secure_bench: a revoked member keeps its connections")
            time.sleep(0.002)
        return time.monotonic() - began

    def reduce(self, size: int, iterations: int) -> tuple[list[float], float]:
        """The times of reductions in milliseconds, and the processor time of all members for one in seconds."""
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(f"reduce {size} 0 1 1 {iterations}\n")
            member.stdin.flush()
        times: list[float] = []
        used = 0.0
        for member in self._members:
            assert member.stdout is not None
            words = member.stdout.readline().split()
            if words[:2] != ["reduced", "0"]:
                raise SystemExit(f"secure_bench: a member did not reduce: {' '.join(words)}")
            times = times or [float(word) for word in words[5:]]
            used += float(words[2]) / iterations
        return times, used

    def close(self) -> None:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.close()
            member.wait(timeout=60)
        self._master.terminate()
        self._master.wait(timeout=60)


def cipher_seconds_per_gb() -> float:
    """Seconds in which OpenSSL encrypts 1 GB in records of 16 KiB on one core, and decrypts it."""
    total = 0.0
    for extra in ([], ["-decrypt"]):
        answer = subprocess.check_output(
            ["openssl", "speed", "-mr", "-seconds", "1", "-bytes", "16384", *extra, "-evp", "aes-128-gcm"],
            text=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        total += 1e9 / float(answer.strip().rsplit(":", 1)[1])
    return total


def open_connections(pid: int) -> int:
    """How many established TCP connections a process has."""
    established = "01"
    inodes = {
        fields[9] for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[3] == established
    }  # fmt: skip
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(descriptor).removeprefix("socket:[").removesuffix("]") in inodes
    return count


@contextlib.contextmanager
def members(
    programs: Path, secure: bool, count: int = _MEMBERS, network: networks.Network | None = None
) -> Iterator[Members]:
    with tempfile.TemporaryDirectory() as directory:
        run = Members(programs, secure, directory, count, network)
        try:
            yield run
        finally:
            run.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench tls", description=__doc__)
    parser.add_argument("--programs", type=Path, default=Path("build/bin"), help="where pccl-master and pccl-bench are")
    parser.add_argument("--mib", type=int, default=256, help="size of the array (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=5, help="reductions at a time (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="times with and without (default: %(default)s)")
    parser.add_argument("--strangers", type=int, default=4, help="threads that dial (default: %(default)s)")
    parser.add_argument("--joins", type=int, default=7, help="runs for the times of joining and revoking; 0: none")
    parser.add_argument("--wan", action="store_true", help="64 MiB over 1 Gbit/s and 40 ms, with and without TLS")
    options = parser.parse_args()
    if options.wan:
        measure_wan(options)
        return 0
    size = options.mib << 20
    times: dict[bool, list[float]] = {False: [], True: []}
    used: dict[bool, list[float]] = {False: [], True: []}
    stormed: dict[bool, list[Storm]] = {False: [], True: []}
    with members(options.programs, secure=False) as plain, members(options.programs, secure=True) as secure:
        runs = {False: plain, True: secure}
        for _ in range(options.rounds):
            for is_secure, run in runs.items():
                some, seconds = run.reduce(size, options.iterations)
                times[is_secure] += some
                used[is_secure].append(seconds)
        for _ in range(options.rounds):
            for is_secure, run in runs.items():
                stormed[is_secure].append(storm(run, size, options))
    median = {is_secure: statistics.median(own) for is_secure, own in times.items()}
    best = {is_secure: min(own) for is_secure, own in times.items()}
    # Two members send the whole array each; n of them 2 (n - 1) / n of it.
    sent_gb = _MEMBERS * size / 1e9
    per_gb = {is_secure: min(own) / sent_gb for is_secure, own in used.items()}
    cipher = cipher_seconds_per_gb()
    cores = min(_MEMBERS, os.cpu_count() or 1)
    bound = 1 + cipher * sent_gb / cores / (best[False] / 1000)
    print(f"all-reduce of {options.mib} MiB, {_MEMBERS} members, TCP on loopback, {os.cpu_count()} cores; "
          f"{options.rounds} times {options.iterations} in turn")  # fmt: skip
    print(f"{'':30}{'best':>10}{'median':>10}{'processor time for 1 GB sent':>32}")
    for is_secure, name in {False: "without TLS", True: "with TLS"}.items():
        print(f"  {name:28}{best[is_secure]:7.1f} ms{median[is_secure]:7.1f} ms{per_gb[is_secure]:30.2f} s")
    print(f"  {'ratio':28}{best[True] / best[False]:10.2f}{median[True] / median[False]:10.2f}"
          f"{per_gb[True] / per_gb[False]:32.2f}")  # fmt: skip
    print(f"  AES-128-GCM alone takes {cipher:.2f} s to encrypt and decrypt 1 GB: a ratio of {bound:.2f}")
    for is_secure, name in {False: "without TLS", True: "with TLS"}.items():
        print_storms(name, median[is_secure], stormed[is_secure])
    if options.joins > 0:
        measure_joins(options)
        measure_revocations(options)
    return 0


class Storm(NamedTuple):
    """While strangers dial: median time of a reduction in milliseconds, dials a second, cores that they used."""

    time: float
    dials: float
    cores: float


def storm(run: Members, size: int, options: argparse.Namespace) -> Storm:
    began = time.monotonic()
    with Strangers(run.ports, options.strangers) as strangers:
        taken = statistics.median(run.reduce(size, options.iterations)[0])
    return Storm(taken, strangers.dials / (time.monotonic() - began), strangers.cores)


def print_storms(name: str, undisturbed: float, storms: list[Storm]) -> None:
    taken, dials, cores = map(statistics.median, zip(*storms, strict=True))
    speed, all_cores = undisturbed / taken, os.cpu_count() or 1
    print(f"  {name}, while strangers dial: {taken:.1f} ms, {speed:.0%} of the speed; {dials:.0f} dials a second")
    print(f"    strangers use {cores:.2f} of {all_cores} cores; the rest gives "
          f"{speed / (1 - cores / all_cores):.0%} of its speed (bound: 80 %)")  # fmt: skip


def measure_wan(options: argparse.Namespace) -> None:
    size = 64 << 20
    setting = networks.Setting("wan", interface_mbit=1000, latency_ms=20)
    times: dict[bool, list[float]] = {False: [], True: []}
    with networks.wan(setting, _MEMBERS, options.programs) as network:
        with (
            members(options.programs, False, network=network) as plain,
            members(options.programs, True, network=network) as secure,
        ):
            runs = {False: plain, True: secure}
            for run in runs.values():
                run.reduce(size, 2)  # the windows of TCP grow
            for _ in range(options.rounds):
                for is_secure, run in runs.items():
                    times[is_secure] += run.reduce(size, options.iterations)[0]
        if options.joins > 0:
            measure_joins(options, network)
        counted = network.end_delay_line()
    print(f"all-reduce of 64 MiB, {_MEMBERS} members, {setting.text()}; {options.rounds} times {options.iterations} in "
          f"turn; packets were at most {counted.get('late_us_p99', 0):.0f} us late (99 %)")  # fmt: skip
    best = {is_secure: min(own) for is_secure, own in times.items()}
    median = {is_secure: statistics.median(own) for is_secure, own in times.items()}
    for is_secure, name in {False: "without TLS", True: "with TLS"}.items():
        print(f"  {name:12} best {best[is_secure]:7.1f} ms, median {median[is_secure]:7.1f} ms")
    print(f"  ratio        best {best[True] / best[False]:7.3f}   , median {median[True] / median[False]:7.3f}"
          "   (bound: 1.03)")  # fmt: skip


def measure_joins(options: argparse.Namespace, network: networks.Network | None = None) -> None:
    joins: dict[bool, list[float]] = {False: [], True: []}
    count = 1 if network is None else 2  # the first one is where the master is
    for _ in range(options.joins):
        for is_secure, times in joins.items():
            with members(options.programs, is_secure, count, network) as run:
                times.append(run.joined_after)
    join = {is_secure: 1000 * statistics.median(times) for is_secure, times in joins.items()}
    print(f"a peer starts and joins in {join[False]:.0f} ms without TLS, in {join[True]:.0f} ms with an invitation: "
          f"{join[True] - join[False]:.0f} ms longer (bound: 1000 ms and 4 round trips)")  # fmt: skip


def measure_revocations(options: argparse.Namespace) -> None:
    revocations = []
    for _ in range(options.joins):
        with members(options.programs, True, 3) as run:
            revocations.append(1000 * run.revoke_last())
    print(f"the connections of a revoked peer are closed everywhere after {statistics.median(revocations):.0f} ms, "
          f"at most {max(revocations):.0f} ms (bound: 1000 ms)")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
