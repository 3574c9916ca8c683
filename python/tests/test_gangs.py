"""Gangs of real processes: the master admits and removes them as a whole."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pccl
import pytest
from conftest import wait_until
from torch_peers import Channel, Peer, start  # noqa: F401

pytestmark = pytest.mark.torch_free

Start = Callable[..., Peer]


def train(channel: Channel, master: str, gang: tuple[str, int, int], settings: dict[str, Any]) -> str:
    """A loop that averages with the same place of the other gangs, and tells the number of gangs when it changes. When
    it is out of the run, it returns the reason, or joins again (``rejoins``)."""
    attempts, rejoins = settings.pop("attempts", 1), settings.pop("rejoins", False)
    with pccl.Communicator(master, peer_group=gang[2], gang=gang, **settings) as communicator:
        channel.send("comes")
        while True:
            told = 0
            try:
                communicator.connect(attempts)
                while True:
                    gangs, size = communicator.world_gangs, communicator.global_world_size
                    if gangs == communicator.world_gangs:  # else one was removed between the two questions
                        assert size == gangs * gang[1]
                    if gangs != told:
                        told = gangs
                        channel.send(told)
                    array = numpy.full(1000, 1.0)
                    try:
                        communicator.all_reduce(array, array, op=pccl.ReduceOp.SUM)
                    except pccl.PCCLTooFewPeersError:
                        pass
                    except pccl.PCCLConnectionLostError:
                        assert array[0] == 1.0
                    communicator.update_topology()
            except pccl.PCCLError as error:
                if not rejoins:
                    return str(error)


class Run:
    def __init__(self, start: Start, master: str) -> None:  # noqa: F811
        self._start, self._master = start, master

    def come(self, name: str, size: int, place: int, **settings: Any) -> Peer:
        peer = self._start(train, self._master, (name, size, place), settings)
        assert peer.hear() == "comes"
        return peer

    def gang(self, name: str, **settings: Any) -> list[Peer]:
        return [self.come(name, 2, place, **settings) for place in range(2)]


@pytest.fixture
def run(start: Start, master: str) -> Run:  # noqa: F811
    return Run(start, master)


def hear_until(peers: list[Peer], gangs: int) -> list[list[int]]:
    """Waits until they have told that number of gangs; returns what each has told."""
    told: list[list[int]] = []
    for peer in peers:
        told.append([peer.hear()])
        while told[-1][-1] != gangs:
            told[-1].append(peer.hear())
    return told


def test_a_gang_joins_and_goes_as_a_whole(run: Run) -> None:
    """It loses place 0 while another gang has only its place 0. Two halves are no whole: nobody waits for them."""
    a, b = run.gang("A"), run.gang("B")
    hear_until(a + b, 2)
    c0 = run.come("C", 2, 0)
    a[0].kill()
    assert "its gang 'A' lost place 0" in a[1].result()
    assert hear_until(b, 1) == [[1], [1]]
    c1 = run.come("C", 2, 1)
    assert hear_until([*b, c0, c1], 2) == [[2]] * 4


def test_a_process_dies_about_when_its_gang_is_admitted(run: Run) -> None:
    a = run.gang("A")
    hear_until(a, 1)
    c0, c1 = run.come("C", 2, 0, rejoins=True), run.come("C", 2, 1)
    c1.kill()  # before its hello, before the admission, or after it
    again = run.come("C", 2, 1)
    hear_until([again, c0, *a], 2)


def test_half_a_gang_waits_for_a_limited_time(run: Run) -> None:
    a = run.gang("A")
    hear_until(a, 1)
    c0 = run.come("C", 2, 0, gang_timeout_s=0.5)
    assert "gang 'C' was not complete within" in c0.result()
    hear_until(a + run.gang("C"), 2)


def test_two_halves_that_look_like_a_gang(run: Run) -> None:
    a = run.gang("A")
    hear_until(a, 1)
    run.come("C", 2, 0)
    run.come("D", 2, 1)
    b = run.gang("B")
    assert hear_until(a + b, 2) == [[2]] * 4


def test_a_process_is_started_again_at_its_place(run: Run) -> None:
    a, b = run.gang("A"), run.gang("B")
    hear_until(a + b, 2)
    a[1].kill()
    again = run.come("A", 2, 1)  # perhaps before the master knows that the former one is dead
    assert "its gang 'A' lost place 1" in a[0].result()
    back = run.come("A", 2, 0)
    hear_until([again, back], 2)


def test_a_second_process_at_a_place_is_refused(run: Run) -> None:
    a = run.gang("A")
    hear_until(a, 1)
    assert "lives and has place 1 of gang 'A'" in run.come("A", 2, 1).result()
    assert "has 2 places, and this peer declares 3" in _second_of_three(run)
    b = run.gang("B")
    hear_until(a + b, 2)


def _second_of_three(run: Run) -> str:
    run.come("W", 2, 0)
    return str(run.come("W", 3, 1).result())


def test_the_master_restarts_while_half_a_gang_waits(start: Start, port: int, tmp_path: Any) -> None:  # noqa: F811
    def master() -> subprocess.Popen[bytes]:
        program = Path(pccl.__file__).parent / "bin" / "pccl-master"
        return subprocess.Popen([program, "--listen", f"127.0.0.1:{port}", "--state-dir", tmp_path])

    node = master()
    try:
        run = Run(start, f"127.0.0.1:{port}")
        a = run.gang("A", attempts=10)
        hear_until(a, 1)
        c0 = run.come("C", 2, 0, attempts=10)
        node.kill()
        node.wait()
        node = master()
        c1 = run.come("C", 2, 1, attempts=10)
        hear_until([*a, c0, c1], 2)
    finally:
        node.kill()
        node.wait()


def test_declarations_that_cannot_be(master: str) -> None:
    for gang, words in (
        (("A", 0, 0), "a size above 0"),
        (("A", 2, 2), "a place from 0"),
        (("A", 2), "a tuple"),
        (("", 2, 0), "1 to 64 printable"),
        (("x" * 65, 2, 0), "1 to 64 printable"),
    ):
        with pytest.raises(pccl.PCCLArgumentError, match=words):
            pccl.Communicator(master, gang=gang)  # type: ignore[arg-type]
    with pytest.raises(pccl.PCCLArgumentError, match="gang is not"):
        pccl.Communicator(master, gang_timeout_s=1.0)
    with pytest.raises(pccl.PCCLArgumentError, match="gang_timeout_s is 0"):
        pccl.Communicator(master, gang=("A", 2, 0), gang_timeout_s=0)


def test_a_gang_of_one(master: str) -> None:
    with pccl.Communicator(master, gang=("A", 1, 0)) as communicator:
        assert communicator.world_gangs == 0
        communicator.connect()
        assert communicator.world_gangs == 1
        wait_until(lambda: communicator.get_attribute(pccl.Attribute.NUM_GANGS) == 1, "the attribute")
        communicator.abort()
        assert communicator.world_gangs == 0
