"""send and recv of arrays and tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import in_one_run
from pccl import Member
from test_collectives import SIZES, equal, introduced, make, outcome, own  # noqa: F401

RunPeers = Callable[..., list[Any]]


@pytest.mark.parametrize("launched", [False, True])
def test_each_pair(run_peers: RunPeers, make: Any, launched: bool) -> None:  # noqa: F811
    def body(communicator: pccl.Communicator, index: int) -> int:
        introduced(communicator, index)
        members, at = communicator.members, communicator.index
        excess = 0  # bytes that were sent twice
        for size in SIZES:
            for sender in range(3):
                for receiver in range(3):
                    if sender == receiver or at not in (sender, receiver):
                        continue
                    if at == sender:
                        array = own(sender, size, make)
                        info = outcome(communicator, "send", launched, array, to=members[receiver], tag=9)
                        assert equal(array, own(sender, size))
                        excess += info.tx_bytes - size * 4
                    else:
                        array = make.full((size + 2,), -1, dtype=make.float32)
                        info = outcome(communicator, "recv", launched, array, source=members[sender], tag=9)
                        assert equal(array[:size], own(sender, size)) and equal(array[size:], [-1, -1])
                    ends = [Member(members[end].peer_id, size) for end in (sender, receiver)]
                    assert (info.members, info.index, info.world_size) == (ends, int(at == receiver), 2)
        # They are no list of the group's members.
        assert communicator.members == members and communicator.index == at
        return excess

    def check(excesses: list[int]) -> None:
        assert excesses == [0, 0, 0]

    in_one_run(lambda: run_peers(3, body), check)


def test_both_directions_at_once(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        other = communicator.barrier().members[1 - communicator.index].peer_id
        for size in (10, 100_000):
            out, back = numpy.full(size, communicator.index), numpy.empty(size, int)

            async def exchange(out: Any = out, back: Any = back) -> None:
                sent = communicator.send_async(out, to=other, tag=1)
                received = communicator.recv_async(back, source=other, tag=1)
                await received
                await sent

            asyncio.run(exchange())
            assert back.tolist() == [1 - communicator.index] * size

    run_peers(2, body)


def test_calls_that_cannot_be(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        members = communicator.barrier().members
        other, first = members[1 - communicator.index], communicator.index == 0
        array, nobody = numpy.ones(4), bytes(range(16))
        wrong: Any = 3
        for cause, call in (
            ("to is 3; use one of members", lambda: communicator.send(array, to=wrong)),
            ("source is 3; use one of members", lambda: communicator.recv_async(array, source=wrong)),
            ("cannot send to itself", lambda: communicator.send(array, to=communicator.peer_id)),
            ("tag is -1", lambda: communicator.send_async(array, to=other, tag=-1)),
        ):
            with pytest.raises(pccl.PCCLArgumentError, match=cause):
                call()
        for lost in (lambda: communicator.send(array, to=nobody), lambda: communicator.recv(array, source=nobody)):
            with pytest.raises(pccl.PCCLConnectionLostError, match="is not a member of the group"):
                lost()
        for mine in (numpy.ones(3), numpy.ones(4, int)):
            with pytest.raises(pccl.PCCLArgumentError, match=r"has room for 3 elements.*\(recv\)|differ in data type"):
                if first:
                    communicator.send(array, to=other)
                else:
                    communicator.recv(mine, source=other)
            assert mine.tolist() == [1] * len(mine)
        communicator.barrier()

    run_peers(2, body)


def test_alone(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        for call in (communicator.send_async, communicator.send):
            with pytest.raises(pccl.PCCLTooFewPeersError):
                call(numpy.ones(4), to=bytes(range(16)))

    run_peers(1, body)
