"""Chaos: some minutes of DiLoCo with peers that are killed, stopped, that leave and join, and a master that restarts.

    diloco_chaos.py --minutes 5 [--seed N] [--mode MODE]

Holds if all peers have the same bytes after each outer step, nobody hangs, and no peer ends with an error. The seed
chooses the faults and their order; the run itself depends on the machine, so a failing run may pass with the same seed.
Without --mode, each start draws one. Exit status: 0 held, 1 failed.
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
from diloco_run import Peer, Run
from test_diloco_churn import MODES

LEAST, MOST = 2, 5  # peers
TIMEOUT_MS = 2000
ROUNDS = 1_000_000  # more than any run makes


class Chaos:
    def __init__(self, run: Run, chance: random.Random) -> None:
        self._run = run
        self._chance = chance
        self._seeds = LEAST
        self.done: collections.Counter[str] = collections.Counter()

    def act(self) -> None:
        many, few = len(self._run.alive) > LEAST, len(self._run.alive) < MOST
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
        peer.signal(signal.SIGKILL)
        self._run.gone(peer)
        self._run.train(self._run.allowed)

    def die(self) -> None:
        """In the middle of a transfer."""
        peer = self._one()
        peer.order("die")
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
        peer = self._one()
        self._run.allow_round()
        peer.signal(signal.SIGSTOP)
        time.sleep(0.4 * TIMEOUT_MS / 1000)
        peer.signal(signal.SIGCONT)
        self._run.train(self._run.allowed)

    def remove(self) -> None:
        """Stopped for longer than the time-out: it is removed, and joins again."""
        peer = self._one()
        peer.signal(signal.SIGSTOP)
        others = [one for one in self._run.alive if one is not peer]
        self._run.alive.remove(peer)
        self._run.train_until(
            lambda: all(one.members == len(others) for one in others), f"{peer.name} is removed while it is stopped"
        )
        peer.signal(signal.SIGCONT)
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

    def _one(self) -> Peer:
        return self._chance.choice(self._run.alive)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--mode", choices=MODES)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    mode = options.mode or chance.choice(list(MODES))
    print(f"chaos: seed {options.seed}, mode {mode}, {options.minutes:g} minutes", flush=True)
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder, Run(Path(folder), ROUNDS, MODES[mode], TIMEOUT_MS) as run:
        chaos = Chaos(run, chance)
        try:
            run.start_first(LEAST)
            while time.monotonic() < end:
                chaos.act()
            run.train(run.allowed + 2)
        except AssertionError as error:
            print(f"chaos: FAILED after {dict(chaos.done)}: {error}", flush=True)
            return 1
        steps = len(run.hashes)
        several = sum(len(names) > 1 for holders in run.hashes.values() for names in holders.values())
    print(
        f"chaos: held: {steps} outer steps, {several} of them on several peers and with equal bytes; "
        f"{len(run.peers)} peers came; {dict(chaos.done)}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
