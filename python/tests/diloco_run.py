"""A run of DiLoCo workers and a master as processes, and the actions of a test on it.

Nothing here waits for time to pass. A step of the test waits until workers have reported something. After a deadline it
fails and shows the last reports of all workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diloco_worker
import torch.distributed as dist
from conftest import PATIENCE_S, reserved_port
from torch_peers import context

from pccl.diloco import TopK

DEADLINE_S = PATIENCE_S  # a test that hangs fails after this time; none takes a tenth of it


class Peer:
    """A process that trains: a peer of the run, or one of the processes of a replica, which is one."""

    def __init__(self, run: Run, seed: int, name: str, replica: dict[str, Any] | None = None) -> None:
        self.name = name
        self.seed = seed
        self.part = 0 if replica is None else replica["rank"]
        self.replica: Replica | None = None
        self.round = 0
        self.members = 0
        self.elements = 0  # for which it takes part
        self.ended: dict[str, Any] | None = None
        self.said: list[dict[str, Any]] = []
        given = {
            "address": run.address,
            "seed": seed,
            "rounds": run.rounds,
            "options": run.options,
            "timeout_ms": run.timeout_ms,
            "replica": replica,
        }
        self.log = run.folder / f"{name}.log"
        self._link, theirs = context.Pipe()
        self.process = context.Process(
            target=diloco_worker.main, args=(theirs, given, run.environment, str(self.log)), daemon=True
        )
        self.process.start()
        theirs.close()
        threading.Thread(target=self._listen, args=(run.heard,), daemon=True).start()

    def _listen(self, heard: queue.Queue[tuple[Peer, dict[str, Any] | None]]) -> None:
        try:
            while True:
                heard.put((self, self._link.recv()))
        except (EOFError, OSError):
            heard.put((self, None))

    def order(self, text: str) -> None:
        try:
            self._link.send(text)
        except BrokenPipeError:
            pass

    def returned(self) -> int | None:
        """The exit code of its process; None while it runs."""
        return self.process.exitcode

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def count(self, kind: str) -> int:
        return sum(one["said"] == kind for one in self.said)


class Replica:
    """Processes that share one sharded model. It has what a peer has: it has done what all of them have done."""

    def __init__(self, run: Run, seed: int, name: str) -> None:
        self.name = name
        self.seed = seed
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.processes = [
            Peer(
                run, seed, f"{name}.{rank}",
                {"rank": rank, "size": run.shards, "port": self._store.port, "name": name, "kind": run.kind},
            )
            for rank in range(run.shards)
        ]  # fmt: skip
        for process in self.processes:
            process.replica = self
        # Those that are in the run.
        self.members_of_run = self.processes[:1] if run.kind == "node" else self.processes

    @property
    def round(self) -> int:
        return min(process.round for process in self.processes)

    @property
    def members(self) -> int:
        return self.processes[0].members

    @property
    def sender(self) -> Peer:
        """A process whose part is large enough for it to die in a transfer. Known when the replica is ready."""
        return max(self.processes, key=lambda one: (one.elements, one.part))

    @property
    def ended(self) -> dict[str, Any] | None:
        return self.processes[0].ended if all(process.ended for process in self.processes) else None

    def order(self, text: str) -> None:
        for process in self.processes:
            process.order(text)

    def returned(self) -> int | None:
        """The exit code of the process that failed, if one did, when all have ended."""
        codes = [process.returned() for process in self.processes]
        return None if None in codes else next((code for code in codes if code), 0)

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.signal(number)

    def count(self, kind: str) -> int:
        return min(process.count(kind) for process in self.members_of_run)


class Run:
    """Context manager; it ends every process that it started. With ``shards``, its peers are replicas of that many
    processes."""

    def __init__(
        self,
        folder: Path,
        rounds: int,
        options: dict[str, Any],
        timeout_ms: int = 60_000,
        *,
        shards: int = 0,
        kind: str = "fsdp",
        shared_memory: bool = True,
    ) -> None:
        self.shards = shards
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.rounds = rounds
        self.options = options
        self.timeout_ms = timeout_ms
        self.heard: queue.Queue[tuple[Peer, dict[str, Any] | None]] = queue.Queue()
        self.peers: list[Peer | Replica] = []
        self.alive: list[Peer | Replica] = []
        self.hashes: dict[tuple[int, int], dict[str, list[str]]] = {}  # by shard and outer step
        self.batches: dict[int, int] = {}  # by outer step
        self.allowed = 0
        self.environment = {
            "PCCL_PORT_RANGE": "0",
            "PCCL_PEER_TIMEOUT_MS": str(timeout_ms),
            "PCCL_MASTER_TIMEOUT_MS": str(int(1000 * DEADLINE_S)),
            # Many small slices make a reduction take a while, so that a peer can die in the middle of it.
            "PCCL_MULTIPLEX_CHUNK_SIZE": "4096",
            "PCCL_STATE_DIR": str(folder / "master"),
        }
        if not shared_memory or isinstance(options.get("quantize"), TopK):
            # What is small, or a peer that runs late, may have sent all before it dies; sockets can be slowed down.
            self.environment["PCCL_SHARED_MEMORY"] = "0"
        self._held = contextlib.ExitStack()
        self.address = f"127.0.0.1:{self._held.enter_context(reserved_port())}"
        self._start_master()

    # ---- the master

    def _start_master(self) -> None:
        with (self.folder / "master.log").open("a") as log:
            self.master = subprocess.Popen(
                [sys.executable, "-m", "pccl.master", "--listen-address", self.address],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={
                    **os.environ,
                    **self.environment,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
            )
        assert self.master.stdout is not None
        line = self.master.stdout.readline()
        assert line == f"listening on {self.address}\n", f"the master said {line!r}"

    def restart_master(self) -> None:
        self._end_master()
        self._start_master()

    def _end_master(self) -> None:
        self.master.kill()
        self.master.wait(DEADLINE_S)
        if self.master.stdout is not None:
            self.master.stdout.close()

    # ---- peers

    def start(self, seed: int) -> Any:
        """Returns a peer, or a replica."""
        peer = (Replica if self.shards else Peer)(self, seed, f"peer{len(self.peers)}")
        self.peers.append(peer)
        self.alive.append(peer)
        return peer

    def start_first(self, count: int) -> None:
        """Starts the peers that the run begins with."""
        self.options = {**self.options, "min_peers": count}
        for seed in range(1, count + 1):
            self.start(seed)
        self.wait(lambda: all(peer.count("ready") for peer in self.alive), "all workers are ready")
        for peer in self.alive:
            peer.order("go")
        self.wait(lambda: all(peer.count("joined") for peer in self.alive), "all have joined")
        # A peer that comes later does not wait for that many.
        self.options = {**self.options, "min_peers": 1}

    def join(self, peer: Peer | Replica) -> None:
        """Lets a worker join. The others train on, one round at a time, until it has joined."""
        self.wait(lambda: peer.count("ready") > 0, f"{peer.name} is ready")
        peer.order("go")
        self.train_until(lambda: peer.count("joined") > 0, f"{peer.name} has joined")

    def train(self, last_round: int) -> None:
        """Trains until all have reached the end of that round. A peer that was removed meanwhile comes back when the
        others train on."""
        self.allowed = max(self.allowed, last_round)
        self._tell()

        def all_have() -> bool:
            return all(peer.round >= last_round for peer in self.alive)

        while not all_have():
            self.wait(
                lambda: all_have() or (len(self._members()) < len(self.alive) and self._have_done(self.allowed)),
                f"all have done round {last_round}",
            )
            if not all_have():
                self.allow_round()

    def train_until(self, reached: Callable[[], bool], what: str) -> None:
        while not reached():
            before = self.allowed
            self.allow_round()
            self.wait(lambda: reached() or self._have_done(before + 1), what)
        self._tell()

    def _members(self) -> list[Peer | Replica]:
        """Those that are in the run, as far as they have said."""
        return [peer for peer in self.alive if peer.count("joined") > peer.count("lost")]

    def _have_done(self, last_round: int) -> bool:
        return all(peer.round >= last_round for peer in self._members())

    def allow_round(self) -> None:
        self.allowed += 1
        assert self.allowed < self.rounds, "the rounds are used up"
        self._tell()

    def _tell(self) -> None:
        for peer in self.alive:
            peer.order(f"to {self.allowed}")

    def gone(self, peer: Peer | Replica) -> None:
        """Waits until the process of a peer has ended. Later waits leave that peer out."""
        self.alive.remove(peer)
        self.wait(lambda: peer.returned() is not None, f"{peer.name} has ended")

    # ---- what they report

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            try:
                peer, said = self.heard.get(timeout=max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                raise AssertionError(f"not within {DEADLINE_S} s: {what}\n{self.story()}") from None
            if said is not None:
                self._take(peer, said)
                continue
            peer.process.join(DEADLINE_S)
            if peer.returned() != 0 and (peer.replica or peer) in self.alive:
                raise AssertionError(f"{peer.name} ended with {peer.returned()}; waited for: {what}\n{self.story()}")

    def _take(self, peer: Peer, said: dict[str, Any]) -> None:
        peer.said.append(said)
        peer.members = said.get("world", peer.members)
        peer.elements = said.get("elements", peer.elements)
        if said["said"] == "round":
            peer.round = said["round"]
        elif said["said"] == "joined":
            peer.round = said["step"] // self.options["H"]
        elif said["said"] == "end":
            peer.ended = said
        elif said["said"] == "outer_step":
            holders = self.hashes.setdefault((peer.part, said["outer"]), {})
            holders.setdefault(said["hash"], []).append(peer.name)
            where = f"outer step {said['outer']} of part {peer.part}"
            assert len(holders) == 1, f"{where} differs: {holders}\n{self.story()}"
            batches = self.batches.setdefault(said["outer"], said["batches"])
            assert batches == said["batches"], f"{where}: other peers are in it\n{self.story()}"

    def finish(self) -> float:
        """Trains to the end. Returns the loss of the model that all agree on."""
        self.allowed = self.rounds
        self._tell()
        self.wait(lambda: all(peer.ended for peer in self.alive), "all have ended")
        ends = [(one.part, one.ended) for one in self.processes() if one.ended and (one.replica or one) in self.alive]
        assert len({(part, end["hash"]) for part, end in ends}) == max(1, self.shards), ends
        return float(ends[0][1]["loss"])

    def processes(self) -> list[Peer]:
        return [one for peer in self.peers for one in (peer.processes if isinstance(peer, Replica) else [peer])]

    def story(self) -> str:
        lines = []
        for peer in self.processes():
            last = "; ".join(json.dumps(one) for one in peer.said[-6:])
            lines.append(f"{peer.name} (returned {peer.returned()}, log ...{peer.log.read_text()[-800:]}): {last}")
        lines.append("master: " + (self.folder / "master.log").read_text()[-800:])
        return "\n".join(lines)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.processes():
            peer.process.kill()
            peer.process.join(DEADLINE_S)
        self._end_master()
        self._held.close()
