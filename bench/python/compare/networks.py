"""The networks of the comparison, and the processes in them.

Each peer is a network namespace without a name: a process holds it, and the namespace ends with the last process in it.
So nothing is left behind, even if this program is killed. `PCCL_BENCH_NO_NAMESPACES=1`, or a user who may not make
namespaces, leaves loopback of this machine as the only network.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)
# Tools of the administrator are not in every user's PATH.
PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


class Failed(Exception):
    """A measurement or a network did not work; the text is for the table."""


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Processes whose parent is gone become children of this one, for reap_orphans()."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans() -> None:
    """After the last close(): nobody waits for a child of its own any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


class Child:
    """A process that is told and read in lines. It dies with this program, and close() reaps it."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.name = Path(arguments[0]).name
        self.process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": PATH, **(environment or {})},
            preexec_fn=_die_with_parent,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        os.set_blocking(self.process.stderr.fileno(), False)
        self._received, self._errors = b"", b""

    def write_line(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} has ended: {self.errors()}") from None

    def errors(self) -> str:
        assert self.process.stderr is not None
        self._errors += self.process.stderr.read() or b""
        lines = self._errors.decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])[-300:]

    def read_line(self, timeout_s: float) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        end = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            left = end - time.monotonic()
            if left <= 0:
                raise Failed(f"no answer from {self.name} within {timeout_s:.0f} s {self.errors()}".rstrip())
            # Standard error is read too, or a process that writes much would block.
            ready, _, _ = select.select([self.process.stdout, self.process.stderr], [], [], left)
            if self.process.stderr in ready:
                self._errors = (self._errors + (self.process.stderr.read() or b""))[-65536:]
            if self.process.stdout in ready:
                got = self.process.stdout.read()
                if got == b"":
                    self.process.wait()
                    raise Failed(f"{self.name} ended with {self.process.returncode}: {self.errors()}")
                self._received += got or b""
            elif self.process.poll() is not None and b"\n" not in self._received:
                self._received += self.process.stdout.read() or b""
                if b"\n" not in self._received:
                    raise Failed(f"{self.name} ended with {self.process.returncode}: {self.errors()}")
        line, self._received = self._received.split(b"\n", 1)
        return line.decode(errors="replace")

    def expect(self, word: str, timeout_s: float) -> list[str]:
        """The words behind `word` of the next line."""
        line = self.read_line(timeout_s)
        words = line.split()
        if not words or words[0] != word:
            raise Failed(f"{self.name}: '{line[:200]}' instead of '{word}'")
        return words[1:]

    def close(self, patience_s: float = 5) -> None:
        """Ends its input, waits for it, and ends or kills it if it does not end."""
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
        except OSError:
            pass
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            self.process.send_signal(number)
            try:
                self.process.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                pass
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def run(arguments: Sequence[str], timeout_s: float = 30) -> str:
    """A short command; its output."""
    try:
        done = subprocess.run(
            list(arguments), capture_output=True, text=True, timeout=timeout_s, env={**os.environ, "PATH": PATH}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{arguments[0]}: {error}") from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a network is like. Rates in Mbit/s, times in ms, one way; 0: no limit."""

    kind: str  # loopback, lan, wan
    connections: int = 1
    interface_mbit: float = 0
    flow_mbit: float = 0
    latency_ms: float = 0
    queue_ms: float = 50
    loss_percent: float = 0
    stall_ms: float = 0  # one flow at a time is held for so long
    seed: int = 1
    shared_memory: bool = False  # between peers of one host, for who can

    def text(self) -> str:
        parts = [self.kind]
        if self.shared_memory:
            parts.append("shared memory")
        if self.interface_mbit:
            parts.append(f"{self.interface_mbit:g} Mbit/s per interface")
        if self.flow_mbit:
            parts.append(f"{self.flow_mbit:g} Mbit/s per flow")
        if self.latency_ms:
            parts.append(f"{2 * self.latency_ms:g} ms round trip")
        if self.loss_percent:
            parts.append(f"{self.loss_percent:g} % loss")
        if self.stall_ms:
            parts.append(f"one flow stalled for {self.stall_ms:g} ms at a time")
        if self.kind != "loopback":
            parts.append(f"{self.connections} connection{'s' if self.connections > 1 else ''}")
        return ", ".join(parts)


class Network:
    """The peers' places: a prefix for commands and an address for each."""

    def __init__(self, setting: Setting, peers: int) -> None:
        self.setting = setting
        self.peers = peers
        self.interface = "lo"
        self.addresses = ["127.0.0.1"] * peers
        self.namespaces: list[str] = []  # one for each peer; empty: this machine's own
        self.remarks: list[str] = []
        self._children: list[Child] = []
        self._delay_line: Child | None = None

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prefix(self, peer: int) -> list[str]:
        return ["nsenter", "--net=" + self.namespaces[peer]] if self.namespaces else []

    def master(self) -> tuple[list[str], str]:
        """Where a master runs, and its address."""
        return self.prefix(0), self.addresses[0]

    def inside(self, peer: int, *command: str) -> str:
        return run([*self.prefix(peer), *command])

    def hold_namespace(self) -> str:
        """A new namespace; its path."""
        child = Child(["unshare", "--net", "sh", "-c", "echo held; exec cat"])
        self._children.append(child)
        child.expect("held", 10)
        namespace = f"/proc/{child.process.pid}/ns/net"
        if os.readlink(namespace) == os.readlink("/proc/self/ns/net"):
            raise Failed("a namespace could not be made")
        run(["nsenter", "--net=" + namespace, "ip", "link", "set", "lo", "up"])
        return namespace

    def allow_large_windows(self) -> None:
        """The buffers of TCP must not be the limit. These settings belong to the namespace."""
        for namespace in dict.fromkeys(self.namespaces):
            script = (
                "echo '4096 131072 67108864' >/proc/sys/net/ipv4/tcp_rmem;"
                "echo '4096 16384 67108864' >/proc/sys/net/ipv4/tcp_wmem;"
                "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true"
            )
            run(["nsenter", "--net=" + namespace, "sh", "-c", script])

    def never_pace(self) -> None:
        """TCP as most systems have it. Where a machine's own choice is bbr, it would pace those who leave the choice to
        the system, and packets that nothing delays."""
        for namespace in dict.fromkeys(self.namespaces):
            script = "echo cubic >/proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || true"
            run(["nsenter", "--net=" + namespace, "sh", "-c", script])

    def end_delay_line(self) -> dict[str, float]:
        """What the delay line counted. The network is dead afterwards."""
        if self._delay_line is None:
            return {}
        assert self._delay_line.process.stdin is not None
        self._delay_line.process.stdin.close()
        try:
            counted: dict[str, float] = json.loads(self._delay_line.read_line(10))
        except (Failed, ValueError):
            counted = {}
        self._delay_line = None
        return counted

    def close(self) -> None:
        for child in reversed(self._children):
            child.close()
        self._children.clear()


def may_make_namespaces() -> bool:
    if os.environ.get("PCCL_BENCH_NO_NAMESPACES"):
        return False
    try:
        run(["unshare", "--net", "ip", "link", "set", "lo", "up"])
    except Failed:
        return False
    return True


def loopback(setting: Setting, peers: int) -> Network:
    network = Network(setting, peers)
    if may_make_namespaces():
        network.namespaces = [network.hold_namespace()] * peers
        network.never_pace()
    return network


def lan(setting: Setting, peers: int) -> Network:
    """A veth pair for each peer, a bridge in the middle, and a token bucket (tc tbf) in both directions."""
    network = Network(setting, peers)
    try:
        inside_middle = _join_by_bridge(network)
        shape = ["root", "tbf", "rate", f"{setting.interface_mbit:g}mbit", "burst", "256kb", "latency",
                 f"{setting.queue_ms:g}ms"]  # fmt: skip
        for i in range(peers):
            network.inside(i, "tc", "qdisc", "add", "dev", "eth0", *shape)
            run([*inside_middle, "tc", "qdisc", "add", "dev", f"port{i}", *shape])
        network.allow_large_windows()
        network.never_pace()
    except BaseException:
        network.close()
        raise
    return network


def _join_by_bridge(network: Network, mtu: int = 1500) -> list[str]:
    """A namespace for each peer, and one in the middle: its port{i} is the other end of eth0 of peer i. Returns the
    prefix for commands in the middle."""
    network.interface = "eth0"
    network.addresses = [f"10.98.0.{i + 1}" for i in range(network.peers)]
    network.namespaces = [network.hold_namespace() for _ in range(network.peers)]
    inside_middle = ["nsenter", "--net=" + network.hold_namespace()]
    run([*inside_middle, "ip", "link", "add", "bridge0", "type", "bridge"])
    run([*inside_middle, "ip", "link", "set", "bridge0", "up"])
    for i, namespace in enumerate(network.namespaces):
        pid = namespace.split("/")[2]
        run([*inside_middle, "ip", "link", "add", f"port{i}", "mtu", str(mtu), "type", "veth",
             "peer", "name", "eth0", "mtu", str(mtu), "netns", pid])  # fmt: skip
        run([*inside_middle, "ip", "link", "set", f"port{i}", "master", "bridge0", "up"])
        network.inside(i, "ip", "address", "add", f"{network.addresses[i]}/24", "dev", "eth0")
        network.inside(i, "ip", "link", "set", "eth0", "up")
    return inside_middle


class CountedNetwork(Network):
    """A namespace for each peer, joined by a bridge, whose ports count every frame. A master is beside the bridge, so
    no peer's counters have its bytes."""

    MASTER = "10.98.0.254"

    def __enter__(self) -> CountedNetwork:
        return self

    def __init__(self, peers: int, mtu: int) -> None:
        super().__init__(Setting("counted"), peers)
        try:
            self._inside_middle = _join_by_bridge(self, mtu)
            run([*self._inside_middle, "ip", "address", "add", f"{self.MASTER}/24", "dev", "bridge0"])
            for i in range(peers):
                # One frame for each segment. With segmentation offload the counters would count one header for many.
                self.inside(i, "ip", "link", "set", "dev", "eth0", "gso_max_segs", "1")
            self.allow_large_windows()
        except BaseException:
            self.close()
            raise

    def master(self) -> tuple[list[str], str]:
        return self._inside_middle, self.MASTER

    def counters(self) -> list[tuple[int, int]]:
        """For each peer: bytes that left it and bytes that entered it, with all headers, since it was made."""
        ports = {}
        for line in run([*self._inside_middle, "cat", "/proc/net/dev"]).splitlines():
            name, _, numbers = line.partition(":")
            words = numbers.split()
            if name.strip().startswith("port"):
                ports[int(name.strip()[4:])] = int(words[0]), int(words[8])
        return [ports[i] for i in range(self.peers)]


def wan(setting: Setting, peers: int, programs: Path) -> Network:
    """A TUN device for each peer, and the delay line (bench/delay_line.cpp) between them."""
    network = Network(setting, peers)
    try:
        network.interface = "tun0"
        network.addresses = [f"10.99.0.{i + 1}" for i in range(peers)]
        network.namespaces = [network.hold_namespace() for _ in range(peers)]
        line = Child([str(programs / "delay_line"), *path_options(setting),
                      "--stall-ms", f"{setting.stall_ms:g}", "--seed", str(setting.seed),
                      *(word for namespace in network.namespaces for word in ("--net", namespace))])  # fmt: skip
        network._children.append(line)
        line.expect("ready", 10)
        network._delay_line = line
        for i in range(peers):
            network.inside(i, "ip", "address", "add", f"{network.addresses[i]}/24", "dev", "tun0")
            network.inside(i, "ip", "link", "set", "tun0", "up", "mtu", "1500",
                           # What a burst of all peers needs while the delay line waits for a processor.
                           "txqueuelen", "10000")  # fmt: skip
        network.allow_large_windows()
    except BaseException:
        network.close()
        raise
    return network


def path_options(setting: Setting) -> list[str]:
    """What the delay line and the simulator are told about the paths."""
    return [
        "--latency-ms", f"{setting.latency_ms:g}", "--flow-mbit", f"{setting.flow_mbit:g}",
        "--interface-mbit", f"{setting.interface_mbit:g}", "--queue-ms", f"{setting.queue_ms:g}",
        "--loss-percent", f"{setting.loss_percent:g}",
    ]  # fmt: skip


def make(setting: Setting, peers: int, programs: Path) -> Network:
    if setting.kind == "loopback":
        return loopback(setting, peers)
    if not may_make_namespaces():
        raise Failed("network namespaces need root and iproute2")
    if setting.kind == "lan":
        return lan(setting, peers)
    return wan(setting, peers, programs)
