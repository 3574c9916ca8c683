"""Chaos: some minutes of DiLoCo with peers that are killed, stopped, that leave and join, and a master that restarts.

    diloco_chaos.py --minutes 5 [--shards N] [--kind KIND] [--seed N] [--mode MODE]

With --shards, up to four replicas of that many processes take part, each with a sharded model, and a fault hits one
process of a replica or all of them. Otherwise two to five peers of one process take part.

Holds if all peers have the same bytes after each outer step (of each part of the model), each outer step has the same
peers in all parts, nobody hangs, and no peer ends with an error of its own. The seed chooses the faults and their
order; the run itself depends on the machine, so a failing run may pass with the same seed. Without --mode and --kind,
each start draws them. Exit status: 0 held, 1 failed.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import conftest  # noqa: F401 (the environment of the tests)
from diloco_run import Peer, Replica, Run
from test_diloco_churn import MODES
from test_diloco_replica_churn import KINDS

LEAST = 2  # peers
MOST, MOST_REPLICAS = 5, 4
TIMEOUT_MS = 2000
ROUNDS = 1_000_000  # more than any run makes


class Chaos:
    def __init__(self, run: Run, chance: random.Random) -> None:
        self._run = run
        self._chance = chance
        self._seeds = MOST_REPLICAS
        self.done: collections.Counter[str] = collections.Counter()

    def act(self) -> None:
        most = MOST_REPLICAS if self._run.shards else MOST
        many, few = len(self._run.alive) > LEAST, len(self._run.alive) < most
        choices: list[Callable[[], None]] = [self.train, self.train, self.pause, self.restart_master]
        choices += [self.kill, self.die, self.leave, self.remove] if many else []
        choices += [self.join, self.join] if few else []
        action = self._chance.choice(choices)
        self.done[action.__name__] += 1
        action()

    def train(self) -> None:
        """Some rounds without a fault."""
        self._run.train(self._run.allowed + self._chance.randint(1, 3))

    def kill(self) -> None:
        """At any moment of a round."""
        peer = self._one()
        self._run.allow_round()
        time.sleep(self._chance.random() * 0.2)  # the fault comes at some moment of the round
        self._part_of(peer).signal(signal.SIGKILL)
        self._run.gone(peer)
        self._run.train(self._run.allowed)

    def die(self) -> None:
        """In the middle of a transfer."""
        peer = self._one()
        part = peer if isinstance(peer, Peer) else self._chance.choice([peer, peer.sender])
        part.order("die")
        peer.order(f"to {self._run.allowed + 2}")
        self._run.alive.remove(peer)
        self._run.train(self._run.allowed + 2)
        self._run.wait(lambda: peer.returned() is not None, f"{peer.name} has died")

    def leave(self) -> None:
        peer = self._one()
        peer.signal(signal.SIGTERM)
        self._run.allow_round()
        self._run.gone(peer)
        self._run.train(self._run.allowed)

    def pause(self) -> None:
        """For less than the time-out: the others wait."""
        part = self._part_of(self._one())
        self._run.allow_round()
        part.signal(signal.SIGSTOP)
        time.sleep(0.4 * TIMEOUT_MS / 1000)
        part.signal(signal.SIGCONT)
        self._run.train(self._run.allowed)

    def remove(self) -> None:
        """Stopped for longer than the time-out: it is removed, and joins again."""
        peer = self._one()
        part = self._part_of(peer, in_run=True)
        part.signal(signal.SIGSTOP)
        others = [one for one in self._run.alive if one is not peer]
        self._run.alive.remove(peer)
        self._run.train_until(
            lambda: all(one.members == len(others) for one in others), f"{peer.name} is removed while it is stopped"
        )
        part.signal(signal.SIGCONT)
        self._run.alive.append(peer)
        joined = peer.count("joined")
        self._run.train_until(lambda: peer.count("joined") > joined, f"{peer.name} has joined again")

    def join(self) -> None:
        self._seeds += 1
        self._run.join(self._run.start(seed=self._seeds))

    def restart_master(self) -> None:
        self._run.allow_round()
        time.sleep(self._chance.random() * 0.2)
        self._run.restart_master()
        self._run.train(self._run.allowed)

    def _one(self) -> Peer | Replica:
        return self._chance.choice(self._run.alive)

    def _part_of(self, peer: Peer | Replica, in_run: bool = False) -> Peer | Replica:
        """What a fault hits: a peer; one process of a replica, or all of them. ``in_run``: not one of a node that is not
        itself in the run."""
        if isinstance(peer, Peer):
            return peer
        return self._chance.choice([peer, *(peer.members_of_run if in_run else peer.processes)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--shards", type=int, default=0, help="processes of each replica; 0: peers of one process")
    parser.add_argument("--kind", choices=KINDS, help="how the model of a replica is sharded")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    mode = options.mode or chance.choice(list(MODES))
    kind = options.kind or chance.choice(list(KINDS))
    what = f"replicas of {options.shards} processes ({kind})" if options.shards else "peers"
    print(f"chaos: seed {options.seed}, mode {mode}, {what}, {options.minutes:g} minutes", flush=True)
    end = time.monotonic() + 60 * options.minutes
    with (
        tempfile.TemporaryDirectory() as folder,
        Run(Path(folder), ROUNDS, MODES[mode], TIMEOUT_MS, shards=options.shards, kind=kind) as run,
    ):
        chaos = Chaos(run, chance)
        try:
            run.start_first(MOST_REPLICAS if options.shards else LEAST)
            while time.monotonic() < end:
                chaos.act()
            run.train(run.allowed + 2)
        except AssertionError as error:
            print(f"chaos: FAILED after {dict(chaos.done)}: {error}", flush=True)
            return 1
        steps = len({step for _, step in run.hashes})
        several = sum(len(names) > 1 for holders in run.hashes.values() for names in holders.values())
    parts = f" of {options.shards} parts each" if options.shards else ""
    print(
        f"chaos: held: {steps} outer steps{parts}, {several} parts on several peers and with equal bytes; "
        f"{len(run.peers)} {'replicas' if options.shards else 'peers'} came; {dict(chaos.done)}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
