"""The libraries that are compared. Each contestant keeps one process per peer, which obeys the commands of
bench/contest.hpp. A contestant that is not installed says why, and the comparison goes on without it."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import socket
import stat
import sys
import tempfile
import time
from pathlib import Path

from compare.networks import PATH, Child, Failed, Network, run

START_S = 60.0


@dataclasses.dataclass
class Tools:
    """Where programs are."""

    programs: Path
    scripts: Path
    python: str = sys.executable


@dataclasses.dataclass
class Measured:
    times_ms: list[float]
    cpu_seconds: float


class Contestant:
    name = ""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.children: list[Child] = []
        self.speakers: list[Child | Pipes] = []  # those of the peers, by rank

    def missing(self) -> str:
        """Why this contestant cannot take part; empty if it can."""
        return ""

    def version(self) -> str:
        return ""

    def start(self, network: Network) -> None:
        raise NotImplementedError

    def measure(self, size_bytes: int, in_place: bool, warmup: int, iterations: int, timeout_s: float,
                tags: int = 1, quantized: bool = False) -> Measured:
        """`tags` operations at a time, and `quantized` ones, are for pccl-bench only."""
        words = f"reduce {size_bytes} {int(in_place)} {tags} {warmup} {iterations}" + (" 1" if quantized else "")
        return self.ask(words, timeout_s)

    def stream(self, size_bytes: int, in_flight: int, iterations: int, timeout_s: float) -> Measured:
        """Operations without a pause, so many of them in flight; the mean time for so many (pccl-bench only)."""
        return self.ask(f"stream {size_bytes} {in_flight} 1 {iterations}", timeout_s)

    def ask(self, words: str, timeout_s: float) -> Measured:
        for speaker in self.speakers:
            speaker.write_line(words)
        result = Measured([], 0)
        for speaker in self.speakers:
            code, cpu_seconds, _, count, *times = speaker.expect("reduced", timeout_s)
            if code != "0":
                raise Failed(f"{self.name}: an all-reduce failed with {code}")
            result.cpu_seconds += float(cpu_seconds)
            result.times_ms += [float(time_ms) for time_ms in times[: int(count)]]
        if not result.times_ms:
            raise Failed(f"{self.name}: no times")
        return result

    def synchronize(self, size_bytes: int, turns: int, timeout_s: float) -> tuple[float, list[float]]:
        """Of a state of this size (pccl-bench only): CPU seconds of a peer where all are equal, and for each turn the
        seconds in which the last peer receives all of it."""
        for speaker in self.speakers:
            speaker.write_line(f"state {size_bytes} {turns}")
        equal_s, received_s = 0.0, []
        for speaker in self.speakers:
            code, hash_s, _, *times = speaker.expect("state", timeout_s)
            if code != "0":
                raise Failed(f"{self.name}: a synchronization failed with {code}")
            equal_s = max(equal_s, float(hash_s))
            received_s += [float(time_s) for time_s in times]
        return equal_s, received_s

    def move(self, kind: str, size_bytes: int, iterations: int, timeout_s: float) -> list[float]:
        """Collectives of one kind (bench/collectives.hpp); the time of each in ms, from the first begin of a member to
        the last end."""
        for speaker in self.speakers:
            speaker.write_line(f"move {kind} {size_bytes} {iterations}")
        ranks = []
        for speaker in self.speakers:
            code, *times = speaker.expect("moved", timeout_s)
            if code != "0" or len(times) != 2 * iterations:
                raise Failed(f"{self.name}: {kind} of {size_bytes} bytes failed with {code}")
            ranks.append([int(time_ns) for time_ns in times])
        begins = [min(times) for times in zip(*(rank[::2] for rank in ranks))]
        ends = [max(times) for times in zip(*(rank[1::2] for rank in ranks))]
        return [(end - begin) * 1e-6 for begin, end in zip(begins, ends)]

    def spawn(self, arguments: list[str], environment: dict[str, str] | None = None) -> Child:
        child = Child(arguments, environment)
        self.children.append(child)
        return child

    def close(self) -> None:
        for speaker in self.speakers:
            try:
                speaker.write_line("quit")
            except (Failed, OSError):
                pass
        # In reverse: the peers before the master.
        for child in reversed(self.children):
            child.close()
        self.children.clear()
        self.speakers.clear()

    def _program(self, name: str) -> str:
        return str(self.tools.programs / name)


class Ours(Contestant):
    name = "pccl"
    environment: dict[str, str] = {}

    def missing(self) -> str:
        return "" if os.access(self._program("pccl-bench"), os.X_OK) else "pccl-bench is not part of this build"

    def everywhere(self, network: Network) -> dict[str, str]:
        """The environment of the master and of all peers."""
        transport = {} if network.setting.shared_memory else {"PCCL_SHARED_MEMORY": "0"}
        return {"PCCL_PORT_RANGE": "0", **transport, **self.environment}

    def start_master(self, network: Network) -> tuple[str, str]:
        """The master's address and port."""
        program = self._program("pccl-bench")
        place, host = network.master()
        master = self.spawn([*place, program, "--role", "master", "--master-host", host], self.everywhere(network))
        (port,) = master.expect("port", START_S)
        return host, port

    def start(self, network: Network) -> None:
        everywhere = self.everywhere(network)
        program = self._program("pccl-bench")
        host, port = self.start_master(network)
        for rank in range(network.peers):
            peer = self.spawn(
                [
                    *network.prefix(rank), program, "--role", "peer", "--rank", str(rank),
                    "--world", str(network.peers), "--master-host", host, "--master-port", port, "--connections",
                    # On loopback the library chooses.
                    str(network.setting.connections if network.setting.kind != "loopback" else 0),
                ],
                {**everywhere, "PCCL_BIND_ADDRESS": network.addresses[rank]},
            )  # fmt: skip
            self.speakers.append(peer)
        for speaker in self.speakers:
            speaker.expect("ready", START_S)


class OursOverTcp(Ours):
    name = "pccl, TCP"
    environment = {"PCCL_SHARED_MEMORY": "0"}


class OursThroughTorch(Ours):
    """The backend of torch.distributed. It moves arrays, but does not obey the command `reduce`."""

    name = "pccl, torch"

    def missing(self) -> str:
        try:
            run([self.tools.python, "-B", "-c", "import pccl.torch"], 60)
        except Failed:
            return f"{self.tools.python} cannot import pccl.torch"
        return super().missing()

    def start(self, network: Network) -> None:
        everywhere = self.everywhere(network)
        host, port = self.start_master(network)
        for rank in range(network.peers):
            self.speakers.append(self.spawn(
                [*network.prefix(rank), self.tools.python, "-B", str(self.tools.scripts / "torch_peer.py"), str(rank),
                 str(network.peers), f"{host}:{port}"],
                {**everywhere, "PCCL_BIND_ADDRESS": network.addresses[rank], "OMP_NUM_THREADS": "1"},
            ))  # fmt: skip
        for speaker in self.speakers:
            speaker.expect("ready", START_S)


class Ring(Contestant):
    name = "ring"

    def missing(self) -> str:
        return "" if os.access(self._program("ring_contestant"), os.X_OK) else "it is not part of this build"

    def start(self, network: Network) -> None:
        ports = []
        for rank in range(network.peers):
            peer = self.spawn(
                [*network.prefix(rank), self._program("ring_contestant"), "--rank", str(rank), "--world",
                 str(network.peers), "--address", network.addresses[rank], "--connections",
                 str(network.setting.connections)]
            )  # fmt: skip
            self.speakers.append(peer)
            ports.append(peer.expect("port", START_S)[0])
        for rank, speaker in enumerate(self.speakers):
            after = (rank + 1) % network.peers
            speaker.write_line(f"next {network.addresses[after]} {ports[after]}")
        for speaker in self.speakers:
            speaker.expect("ready", START_S)


class Gloo(Contestant):
    name = "gloo"

    def missing(self) -> str:
        try:
            run([self.tools.python, "-B", "-c", "import torch.distributed as d; assert d.is_gloo_available()"], 60)
        except Failed:
            return f"{self.tools.python} has no torch with gloo"
        return ""

    def version(self) -> str:
        return "torch " + run([self.tools.python, "-B", "-c", "import torch; print(torch.__version__)"], 60).strip()

    def start(self, network: Network) -> None:
        port = "0"
        for rank in range(network.peers):
            peer = self.spawn(
                [*network.prefix(rank), self.tools.python, "-B", str(self.tools.scripts / "gloo_peer.py"), str(rank),
                 str(network.peers), network.addresses[0], port, str(network.setting.connections)],
                {"GLOO_SOCKET_IFNAME": network.interface, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            self.speakers.append(peer)
            if rank == 0:
                (port,) = peer.expect("port", START_S)
        for speaker in self.speakers:
            speaker.expect("ready", START_S)


class Pipes:
    """Talks to one MPI rank through its named pipes."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.job: Child | None = None
        self._received = b""
        paths = [folder / f"{kind}.{rank}" for kind in ("in", "out")]
        for path in paths:
            os.mkfifo(path)
        # Read and write: the open does not wait for the rank.
        self._in, self._out = (os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in paths)

    def write_line(self, line: str) -> None:
        os.write(self._in, line.encode() + b"\n")

    def expect(self, word: str, timeout_s: float) -> list[str]:
        end = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            assert self.job is not None
            if self.job.process.poll() is not None:
                raise Failed(f"mpirun ended with {self.job.process.returncode}: {self.job.errors()}")
            if time.monotonic() > end:
                raise Failed(f"no answer from an MPI rank within {timeout_s:.0f} s {self.job.errors()}")
            if select.select([self._out], [], [], 0.5)[0]:
                self._received += os.read(self._out, 65536)
        line, self._received = self._received.split(b"\n", 1)
        words = line.decode().split()
        if words[:1] != [word]:
            raise Failed(f"MPI: '{line[:200]!r}' instead of '{word}'")
        return words[1:]

    def close(self) -> None:
        os.close(self._in)
        os.close(self._out)


PREFIX = "pccl-bench-"


def remove_stale_folders() -> None:
    """Those of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*-*"):
        number = folder.name.removeprefix(PREFIX).split("-")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            shutil.rmtree(folder, ignore_errors=True)


# mpirun calls this instead of ssh. A host is the namespace of a peer, with a host name of its own: otherwise OpenMPI
# would take all ranks for one host.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
number=${host#pccl-peer-}
namespace=$(sed -n "$((number + 1))p" "${0%/*}/namespaces")
exec setpriv --pdeathsig KILL nsenter --net="$namespace" unshare --uts sh -c 'hostname "$0" && eval "exec $1"' "$host" "$*"
"""


class OpenMpi(Contestant):
    name = "openmpi"

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def missing(self) -> str:
        if shutil.which("mpirun", path=PATH) is None:
            return "mpirun is not installed (Debian: openmpi-bin, libopenmpi-dev)"
        built = os.access(self._program("mpi_contestant"), os.X_OK)
        return "" if built else "libopenmpi-dev was not here when bench/ was configured"

    def version(self) -> str:
        return run(["mpirun", "--version"]).splitlines()[0]

    def start(self, network: Network) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        folder = Path(self._folder.name)
        command = [
            *network.prefix(0), "mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(network.peers),
            # By itself OpenMPI would choose shared memory ("vader") between processes of one host.
            "--mca", "pml", "ob1", "--mca", "btl", f"{'vader' if network.setting.shared_memory else 'tcp'},self",
            "--mca", "btl_tcp_if_include", network.interface,
            # With 8 links, messages of 1 MiB did not arrive within a minute on a path with latency (OpenMPI 4.1.4).
            "--mca", "btl_tcp_links", str(min(network.setting.connections, 4)),
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        if network.setting.kind != "loopback":
            agent = folder / "agent"
            agent.write_text(AGENT)
            agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
            (folder / "namespaces").write_text("".join(line + "\n" for line in network.namespaces))
            hosts = ",".join(f"pccl-peer-{rank}:1" for rank in range(network.peers))
            command += [
                "--host", hosts, "--map-by", "node", "--leave-session-attached", "--mca", "plm", "rsh",
                "--mca", "plm_rsh_agent", str(agent), "--mca", "plm_rsh_no_tree_spawn", "1",
                "--mca", "oob_tcp_if_include", network.interface,
            ]  # fmt: skip
        # Session files of the job go away with the folder.
        environment = {"TMPDIR": str(folder), "OMPI_MCA_orte_tmpdir_base": str(folder)}
        pipes = [Pipes(folder, rank) for rank in range(network.peers)]
        self.speakers += pipes
        job = self.spawn([*command, self._program("mpi_contestant"), str(folder)], environment)
        for pipe in pipes:
            pipe.job = job
        for pipe in pipes:
            pipe.expect("ready", START_S)

    def close(self) -> None:
        pipes = [speaker for speaker in self.speakers if isinstance(speaker, Pipes)]
        super().close()
        for pipe in pipes:
            pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


CONTESTANTS: tuple[type[Contestant], ...] = (Ours, Ring, Gloo, OpenMpi)


def path_limit(network: Network, connections: int, seconds: int = 2) -> float:
    """Bytes per second that iperf3 moves between two peers, in both directions at once; the smaller rate of the two."""
    if shutil.which("iperf3", path=PATH) is None:
        raise Failed("iperf3 is not installed (Debian: iperf3)")
    port = 5201
    if not network.namespaces:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    where = ["-p", str(port), "-B", network.addresses[1]]
    server = Child([*network.prefix(1), "iperf3", "-s", "-1", "--forceflush", *where])
    try:
        while "listening" not in server.read_line(10):
            pass
        text = run(
            [*network.prefix(0), "iperf3", "-c", network.addresses[1], "-p", str(port), "-J", "--bidir", "-O", "1",
             "-t", str(seconds), "-P", str(connections)],
            30 + seconds,
        )  # fmt: skip
        end = json.loads(text)["end"]
        there = end["sum_received"]["bits_per_second"]
        back = end["sum_received_bidir_reverse"]["bits_per_second"]
        return float(min(there, back)) / 8
    except (KeyError, ValueError) as error:
        raise Failed(f"iperf3: {error}") from None
    finally:
        server.close(2)
