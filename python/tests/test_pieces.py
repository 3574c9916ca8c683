"""gather, scatter and all_to_all of arrays and tensors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, in_one_run, run_threads, wait_until
from pccl import Gathered, Member
from test_collectives import SIZES, check_info, equal, introduced, make, outcome, own  # noqa: F401

RunPeers = Callable[..., list[Any]]


@pytest.mark.parametrize("launched", [False, True])
def test_gather(run_peers: RunPeers, make: Any, launched: bool) -> None:  # noqa: F811
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        for size in SIZES:
            counts = [size, 0, size // 2 + 3]
            for root in communicator.members:
                is_root = root.peer_id == communicator.peer_id
                send = own(index, counts[index], make)
                recv = make.full((sum(counts) + 2,), -1, dtype=make.float32) if is_root else None
                gathered = outcome(communicator, "gather", launched, send, recv, root=root, tag=size)
                assert isinstance(gathered, Gathered) and len(gathered) == (3 if is_root else 0)
                assert [member.count for member in gathered.members] == [counts[whose] for whose in order]
                for piece, whose in zip(gathered, order, strict=False):
                    assert equal(piece, own(whose, counts[whose]))
                check_info(gathered.info, communicator, order, index)
                if is_root:
                    assert equal(recv, numpy.concatenate([*map(numpy.asarray, gathered), [-1, -1]]))
                assert equal(send, own(index, counts[index]))

    run_peers(3, body)


def test_gathered_pieces_are_read_after_the_end(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        communicator.barrier()  # names the members
        root = communicator.members[0]
        is_root = root.peer_id == communicator.peer_id
        handle = communicator.gather_async(numpy.ones(2), numpy.empty(4) if is_root else None, root=root, tag=1)
        wait_until(handle.done, "the gather is done")
        communicator.barrier(tag=2)
        communicator.close()
        assert len(handle.result()) == (2 if is_root else 0)

    run_peers(2, body)


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_scatter(run_peers: RunPeers, make: Any, launched: bool, in_place: bool) -> None:  # noqa: F811
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        at = communicator.index
        for size in SIZES:
            for counts in (None, [size, 0, 2 * size]):
                lengths = counts or [size] * 3
                begin, whole = sum(lengths[:at]), 3 * size
                for root in communicator.members:
                    is_root = root.peer_id == communicator.peer_id
                    send = own(5, whole, make) if is_root else None
                    recv = make.full((2 * size + 1,), -1, dtype=make.float32)
                    if in_place and is_root and size:
                        assert send is not None
                        recv = send
                    options = {"counts": counts} if is_root else {}
                    info = outcome(communicator, "scatter", launched, send, recv, root=root, tag=size, **options)
                    check_info(info, communicator, order, index)
                    assert [member.count for member in info.members] == lengths
                    end = begin + lengths[at]
                    assert equal(recv[: lengths[at]], own(5, whole)[begin:end])
                    behind = own(5, whole)[lengths[at] :] if recv is send else [-1] * (len(recv) - lengths[at])
                    assert equal(recv[lengths[at] :], behind)
                    if is_root and recv is not send:
                        assert equal(send, own(5, whole))

    run_peers(3, body)


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("uneven", [False, True])
def test_all_to_all(run_peers: RunPeers, make: Any, launched: bool, uneven: bool) -> None:  # noqa: F811
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        at = communicator.index
        for size in SIZES:
            table = [[size] * 3 for _ in range(3)]
            if uneven:
                table = [[0, size, 1], [size // 2, 3, 0], [7, 0, size]]
            send = own(index, sum(table[at]), make)
            recv = make.full((sum(row[at] for row in table) + 2,), -1, dtype=make.float32)
            counts = table[at] if uneven else None
            gathered = outcome(communicator, "all_to_all", launched, send, recv, counts=counts, tag=size)
            assert len(gathered) == 3
            assert [member.count for member in gathered.members] == [row[at] for row in table]
            for piece, whose, row in zip(gathered, order, table, strict=True):
                begin = sum(row[:at])
                assert equal(piece, own(whose, sum(row))[begin : begin + row[at]])
            check_info(gathered.info, communicator, order, index)
            assert equal(recv, numpy.concatenate([*map(numpy.asarray, gathered), [-1, -1]]))
            assert equal(send, own(index, sum(table[at])))

    run_peers(3, body)


@pytest.mark.parametrize("size", SIZES)
def test_orders_of_pieces(run_peers: RunPeers, size: int) -> None:
    """Each member has the pieces in another order, and gets the same ones from the others."""

    def joined(pieces: list[Any], order: list[int]) -> Any:
        return numpy.concatenate([pieces[index] for index in order])

    def body(communicator: pccl.Communicator, index: int) -> None:
        members, at = communicator.barrier().members, communicator.index
        order = [[1, 2, 0], [0, 2, 1], [2, 1, 0]][at]
        communicator.set_piece_order(order)
        gathered = [own(whose, size + whose) for whose in range(3)]
        recv = numpy.empty(3 * size + 3, numpy.float32)
        for whose, piece in enumerate(communicator.all_gather(gathered[at], recv)):
            assert equal(piece, gathered[whose])
        assert equal(recv, joined(gathered, order))
        recv.fill(-1)
        at_root = outcome(communicator, "gather", True, gathered[at], recv, root=members[1])
        for whose, piece in enumerate(at_root):
            assert equal(piece, gathered[whose])
        assert equal(recv, joined(gathered, order) if at == 1 else [-1] * len(recv))
        rows = [[own(10 * sender + whose, size + whose) for whose in range(3)] for sender in range(3)]
        counts, piece = [size, size + 1, size + 2], numpy.empty(size + at, numpy.float32)
        communicator.scatter(joined(rows[2], order), piece, root=members[2], counts=counts)
        assert equal(piece, rows[2][at])
        recv = numpy.empty(3 * (size + at), numpy.float32)
        for sender, came in enumerate(communicator.all_to_all(joined(rows[at], order), recv, counts=counts)):
            assert equal(came, rows[sender][at])
        assert equal(recv, joined([row[at] for row in rows], order))
        communicator.reduce_scatter(joined(rows[at], order), piece, op=pccl.ReduceOp.SUM)
        assert equal(piece, sum(row[at] for row in rows))
        for wrong in ([0, 1, 1], [0, 1, 3], [1], [-1, 0], ["0"]):
            with pytest.raises(pccl.PCCLArgumentError, match="each index below its length once"):
                communicator.set_piece_order(wrong)
        communicator.set_piece_order(None)
        recv = numpy.empty(3 * size + 3, numpy.float32)
        communicator.all_gather(gathered[at], recv)
        assert equal(recv, joined(gathered, [0, 1, 2]))

    run_peers(3, body)


def test_an_order_that_another_thread_sets(run_peers: RunPeers) -> None:
    ordered = threading.Event()

    def body(communicator: pccl.Communicator, _: int) -> None:
        at = communicator.barrier().index

        def gather() -> None:
            gathered = communicator.all_gather(own(at, 5))
            assert all(equal(piece, own(whose, 5)) for whose, piece in enumerate(gathered))

        def order() -> None:
            # The call of the other thread is in its first vote, which gathers the lengths.
            wait_until(lambda: communicator.stats()["all_reduce"]["launched"] > launched, "the first vote")
            communicator.set_piece_order([1, 0])
            ordered.set()

        if at == 0:
            launched = communicator.stats()["all_reduce"]["launched"]
            run_threads(2, lambda index: [gather, order][index]())
        else:
            assert ordered.wait(PATIENCE_S)
            gather()

    run_peers(2, body)


def test_pieces_in_flight_together_and_asyncio(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        members = communicator.barrier().members
        at = communicator.index

        async def collect() -> None:
            send, recv = own(at, 60_000), [numpy.empty(180_000, numpy.float32) for _ in range(3)]
            launches: list[Callable[[], Any]] = [
                lambda: communicator.gather_async(send, recv[0], root=members[1], tag=1),
                lambda: communicator.scatter_async(send, recv[1], root=members[2], tag=2),
                lambda: communicator.all_to_all_async(send, recv[2], tag=3),
            ]
            handles = {which: launches[which]() for which in [(which + at) % 3 for which in range(3)]}
            assert [len(piece) for piece in await handles[0]] == ([60_000] * 3 if at == 1 else [])
            assert (await handles[1]).members[at].count == 20_000
            assert equal(recv[1][:20_000], own(2, 60_000)[20_000 * at : 20_000 * (at + 1)])
            for sender, piece in enumerate(await handles[2]):
                assert equal(piece, own(sender, 60_000)[20_000 * at : 20_000 * (at + 1)])

        asyncio.run(collect())

    run_peers(3, body)


@pytest.mark.parametrize("world", range(2, 10))
def test_bytes_that_are_sent(run_peers: RunPeers, world: int) -> None:
    """Each piece crosses only the links between its two members, once. No ring can do with fewer bytes."""
    size = 30_000  # bytes

    def body(communicator: pccl.Communicator, index: int) -> tuple[int, ...]:
        root = communicator.barrier().members[0]
        send, whole = numpy.ones(size, numpy.uint8), numpy.ones(world * size, numpy.uint8)
        room = numpy.empty_like(whole)
        return (
            communicator.gather(send, room, root=root).tx_bytes,
            communicator.scatter(whole, room, root=root).tx_bytes,
            communicator.all_to_all(whole, room).tx_bytes,
        )

    def check(sent: list[tuple[int, ...]]) -> None:
        gathered, scattered, exchanged = zip(*sent, strict=True)
        # One piece over each number of links up to world - 1; in an all_to_all from each member, shared evenly by all.
        pieces = world * (world - 1) // 2
        assert sum(gathered) == sum(scattered) == pieces * size
        assert exchanged == (pieces * size,) * world

    in_one_run(lambda: run_peers(world, body), check)


def test_arguments_that_can_never_work(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        communicator.barrier()
        root = communicator.peer_id
        nobody: Any = 3
        halves: Any = [1.5, 4.5]
        array, other, integers = numpy.ones(6), numpy.ones(6), numpy.ones(6, int)
        for cause, call in (
            ("recv is None at the root", lambda: communicator.gather(array, None, root=root)),
            ("send is None at the root", lambda: communicator.scatter(None, array, root=root)),
            ("send has type DOUBLE and recv INT64", lambda: communicator.gather(array, integers, root=root)),
            ("sendbuf overlaps recvbuf", lambda: communicator.gather(array[2:4], array, root=root)),
            ("sendbuf overlaps recvbuf", lambda: communicator.all_to_all(array, array)),
            ("root is 3; use one of members", lambda: communicator.scatter(array, other, root=nobody)),
            ("5 elements, which 2 members cannot", lambda: communicator.all_to_all(array[:5], other)),
            ("the counts are 7 together", lambda: communicator.all_to_all_async(array, other, counts=[3, 4])),
            ("use numbers of elements", lambda: communicator.scatter(array, other, root=root, counts=[7, -1])),
            ("use numbers of elements", lambda: communicator.scatter_async(array, other, root=root, counts=halves)),
            ("tag is -1", lambda: communicator.gather_async(array, other, root=root, tag=-1)),
        ):
            with pytest.raises(pccl.PCCLArgumentError) as raised:
                call()
            assert cause in str(raised.value)
        communicator.barrier()

    run_peers(2, body)


def test_calls_that_cannot_be_fail_on_all_members(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> list[str]:
        members = communicator.barrier().members
        at = communicator.index
        send, recv = numpy.ones(6), numpy.full(8, -1.0)
        texts = []
        unlike = [3] * 2 if at else [2] * 3
        for error, call in (
            (pccl.PCCLArgumentError, lambda: communicator.gather(send[: 4 + at], recv, root=members[0])),
            (pccl.PCCLArgumentError, lambda: communicator.scatter(send, recv[:2], root=members[1], counts=[1, 5])),
            (pccl.PCCLArgumentError, lambda: communicator.all_to_all(send, recv[: 6 - at])),
            (pccl.PCCLArgumentError, lambda: communicator.gather(send, recv, root=Member(bytes(range(16))))),
            (pccl.PCCLConnectionLostError, lambda: communicator.all_to_all(send, recv, counts=unlike)),
        ):
            with pytest.raises(error) as raised:
                call()
            texts.append(raised.value.cause)
        assert recv.tolist() == [-1.0] * 8 and communicator.members == members
        return texts

    ours, theirs = run_peers(2, body)
    assert "room for, 8 (recv)" in ours[0] and "room for 2 elements, and the pieces for it have 5 (recv)" in ours[1]
    assert "room for 5 elements" in ours[2] and "for 3 members, and the group has 2" in ours[4]
    assert ours == theirs


def test_a_limit_of_scratch_memory(run_peers: RunPeers) -> None:
    """What only travels through a member lies in its scratch memory."""

    def body(communicator: pccl.Communicator, index: int) -> list[str]:
        order = introduced(communicator, index)
        members, texts = communicator.members, []
        send, recv = numpy.ones(200_000), numpy.empty(600_000)
        for root in members:
            try:
                gathered = communicator.gather(send, recv, root=root)
                assert len(gathered) == (3 if root.peer_id == communicator.peer_id else 0)
                texts.append("")
            except pccl.PCCLUsageError as error:
                texts.append(error.cause)
        assert len(order) == 3 and communicator.barrier().local_world_size == 3
        return texts

    first, *others = run_peers(3, body, max_scratch_bytes=1 << 20)
    assert all(texts == first for texts in others)
    # The piece of one member travels through another one, whoever the root is.
    assert all("it needs 1600000 bytes beside its buffers" in text for text in first)


def test_alone(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array, other = numpy.ones(4), numpy.zeros(4)
        root = communicator.peer_id
        for call in (
            lambda: communicator.gather(array, other, root=root),
            lambda: communicator.scatter_async(array, other, root=root),
            lambda: communicator.all_to_all(array, other),
        ):
            with pytest.raises(pccl.PCCLTooFewPeersError):
                call()
        assert other.tolist() == [0.0] * 4

    run_peers(1, body)
