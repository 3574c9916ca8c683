"""all_gather, broadcast, reduce_scatter, reduce and barrier of arrays and tensors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import PATIENCE_S, Script, admit, in_one_run
from pccl import CollectiveInfo, Gathered, Member, ReduceOp

RunPeers = Callable[..., list[Any]]
MakeScript = Callable[..., Script]

SIZES = (0, 1, 1000, 1 << 18)  # the last one is 1 MiB of float32


def own(index: int, count: int, make: Any = numpy) -> Any:
    return make.arange(count, dtype=make.float32) * 3 + index


@pytest.fixture(params=["numpy", "torch"])
def make(request: pytest.FixtureRequest) -> Any:
    return numpy if request.param == "numpy" else pytest.importorskip("torch")


def equal(one: Any, other: Any) -> bool:
    return bool(numpy.array_equal(numpy.asarray(one), numpy.asarray(other)))


def outcome(communicator: pccl.Communicator, name: str, launched: bool, *arguments: Any, **options: Any) -> Any:
    """Calls the collective, or launches it and waits."""
    if not launched:
        return getattr(communicator, name)(*arguments, **options)
    handle = getattr(communicator, f"{name}_async")(*arguments, **options)
    ok, status, info = handle.wait(PATIENCE_S)
    assert (ok, status) == (True, pccl.Result.SUCCESS) and handle.done() and handle.result() is info
    return info


def introduced(communicator: pccl.Communicator, index: int) -> list[int]:
    """Returns the number in this test of each member, by its index in the group."""
    gathered = communicator.all_gather(numpy.array([index]))
    assert gathered.members[gathered.index].peer_id == communicator.peer_id
    return [int(piece[0]) for piece in gathered]


def check_info(info: CollectiveInfo, communicator: pccl.Communicator, order: list[int], index: int) -> None:
    assert info.local_world_size == info.world_size == len(info.members) == len(order)
    assert order[info.index] == index
    assert info.members[info.index].peer_id == communicator.peer_id
    assert communicator.members == [Member(member.peer_id) for member in info.members]
    assert communicator.index == info.index


# ---- what they do


@pytest.mark.parametrize("launched", [False, True])
def test_all_gather(run_peers: RunPeers, make: Any, launched: bool) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        for size in SIZES:
            counts = [size, 0, size // 2 + 3]
            send = own(index, counts[index], make)
            recv = make.full((sum(counts) + 2,), -1, dtype=make.float32)
            gathered = outcome(communicator, "all_gather", launched, send, recv, tag=size)
            assert isinstance(gathered, Gathered) and len(gathered) == gathered.local_world_size == 3
            for piece, member, whose in zip(gathered, gathered.members, order, strict=True):
                assert member.count == counts[whose] and equal(piece, own(whose, counts[whose]))
            assert equal(gathered[gathered.index], send) and equal(send, own(index, counts[index]))
            check_info(gathered.info, communicator, order, index)
            # The pieces lie in recv; what is behind them was not written.
            assert equal(recv, numpy.concatenate([*map(numpy.asarray, gathered), [-1, -1]]))

    run_peers(3, body)


def test_all_gather_finds_the_lengths(run_peers: RunPeers, make: Any) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        for counts in ([5, 0, 7], [0, 0, 0], [1 << 18, 3, 100_000]):
            send = own(index, counts[index], make)
            gathered = communicator.all_gather(send)
            assert all(type(piece) is type(send) and piece.dtype == send.dtype for piece in gathered)
            assert [member.count for member in gathered.members] == [counts[whose] for whose in order]
            for piece, whose in zip(gathered, order, strict=True):
                assert equal(piece, own(whose, counts[whose]))
        assert repr(gathered).startswith("<pccl.Gathered of 3 pieces of ")

    run_peers(3, body)


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_broadcast(run_peers: RunPeers, make: Any, launched: bool, in_place: bool) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        members = communicator.members
        for size in SIZES:
            for at, whose in enumerate(order):
                recv = make.zeros(size, dtype=make.float32)
                send = own(index, size, make) if index == whose else None
                if in_place:
                    recv = own(index, size, make)
                    send = recv
                root = members[at] if size else members[at].peer_id
                info = outcome(communicator, "broadcast", launched, send, recv, root=root)
                check_info(info, communicator, order, index)
                assert equal(recv, own(whose, size))

    run_peers(3, body)


@pytest.mark.parametrize("launched", [False, True])
def test_reduce_scatter(run_peers: RunPeers, make: Any, launched: bool) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        at = communicator.index
        for size in SIZES:
            # The first member gets nothing, the second a third, the last one the rest.
            begins = [0, 0, size // 3, size]
            expected = (own(0, size) + own(1, size) + own(2, size))[begins[at] : begins[at + 1]]
            recv = make.zeros(begins[at + 1] - begins[at], dtype=make.float32)
            send = own(index, size, make)
            info = outcome(communicator, "reduce_scatter", launched, send, recv, op=ReduceOp.SUM, tag=7)
            check_info(info, communicator, order, index)
            assert [member.count for member in info.members] == [0, size // 3, size - size // 3]
            assert equal(recv, expected) and equal(send, own(index, size))
            piece = send[: len(recv)]
            outcome(communicator, "reduce_scatter", launched, send, piece, op=ReduceOp.SUM)
            assert equal(piece, expected)
            assert equal(send[len(recv) :], own(index, size)[len(recv) :])

    run_peers(3, body)


@pytest.mark.parametrize("launched", [False, True])
def test_reduce(run_peers: RunPeers, make: Any, launched: bool) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        for size in SIZES:
            for root in communicator.members:
                is_root = root.peer_id == communicator.peer_id
                send = own(index, size, make)
                recv = make.zeros(size, dtype=make.float32) if is_root else None
                for target in (recv, send):  # in place last
                    info = outcome(communicator, "reduce", launched, send, target, op=ReduceOp.AVG, root=root)
                    check_info(info, communicator, order, index)
                    assert equal(target if is_root else send, own(1, size) if is_root else own(index, size))

    run_peers(3, body)


def test_barrier_lists_the_members(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> list[bytes]:
        assert communicator.members == []
        with pytest.raises(pccl.PCCLUsageError, match=r"call barrier\(\) first"):
            _ = communicator.index
        for launched in (False, True):
            info = outcome(communicator, "barrier", launched, tag=3)
            assert info == CollectiveInfo(3, 0, 0, communicator.index, communicator.members)
        return [member.peer_id for member in communicator.members]

    first, second, third = run_peers(3, body)
    assert first == second == third and len(set(first)) == 3


def test_several_kinds_in_flight_and_asyncio(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        members = communicator.barrier().members

        async def collect() -> None:
            send, everything, copied = own(index, 50_000), numpy.empty(150_000, numpy.float32), own(index, 50_000)
            launches = [
                lambda: communicator.all_gather_async(send, everything, tag=1),
                lambda: communicator.broadcast_async(copied, copied, root=members[2], tag=2),
                lambda: communicator.barrier_async(tag=3),
            ]
            # Each member has another order.
            handles = {at: launches[at]() for at in [(at + index) % 3 for at in range(3)]}
            assert (await handles[3 - 1]).local_world_size == 3
            gathered = await handles[0]
            await handles[1]
            assert equal(copied, gathered[2])

        asyncio.run(collect())

    run_peers(3, body)


def test_bytes_that_are_sent(run_peers: RunPeers) -> None:
    """Each array crosses each link at most once."""
    size = 300_000  # bytes

    def body(communicator: pccl.Communicator, index: int) -> tuple[int, ...]:
        members = communicator.barrier().members
        send, whole = numpy.ones(size, numpy.uint8), numpy.ones(3 * size, numpy.uint8)
        return (
            communicator.all_gather(send, whole).info.tx_bytes,
            communicator.broadcast(send, send, root=members[0]).tx_bytes,
            communicator.reduce_scatter(whole, numpy.empty_like(send), op=ReduceOp.MAX).tx_bytes,
            communicator.reduce(send, send, op=ReduceOp.MAX, root=members[0]).tx_bytes,
        )

    def check(each_sent: list[tuple[int, ...]]) -> None:
        gathered, broadcast, scattered, reduced = zip(*each_sent, strict=True)
        assert all(2 * size <= sent <= 2.02 * size for sent in gathered + scattered)
        for each in (broadcast, reduced):
            assert 2 * size <= sum(each) <= 2.02 * size and max(each) <= 1.01 * size

    in_one_run(lambda: run_peers(3, body), check)


# ---- errors


def test_arguments_that_can_never_work(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        root: Any = communicator.barrier().members[0]
        nobody: Any = 3
        text: Any = "SUM"
        array, integers, columns = numpy.ones(6), numpy.ones(6, int), numpy.ones((3, 2)).T
        for cause, call in (
            ("send has type DOUBLE and recv INT64", lambda: communicator.all_gather(array, integers)),
            ("Unsupported numpy dtype: bool", lambda: communicator.all_gather(array.astype(bool))),
            ("not contiguous", lambda: communicator.all_gather_async(columns, array)),
            ("sendbuf overlaps recvbuf", lambda: communicator.all_gather(array[2:4], array)),
            ("send has 6 elements and recv 5", lambda: communicator.broadcast(array, array[:5], root=root)),
            ("use a torch tensor or a numpy array", lambda: communicator.broadcast(None, [1.0], root=root)),
            ("root is 3; use one of members", lambda: communicator.broadcast(array, array, root=nobody)),
            ("root is b''; use one of members", lambda: communicator.broadcast_async(array, array, root=b"")),
            ("a piece is no larger", lambda: communicator.reduce_scatter(array[:2], array, op=ReduceOp.SUM)),
            ("op is 'SUM'; use a pccl.ReduceOp", lambda: communicator.reduce(array, array, op=text, root=root)),
            ("tag is -1", lambda: communicator.barrier(tag=-1)),
            ("tag is -1", lambda: communicator.all_gather(array, tag=-1)),
        ):
            with pytest.raises(pccl.PCCLArgumentError) as raised:
                call()
            assert cause in str(raised.value)
        array.flags.writeable = False
        with pytest.raises(pccl.PCCLArgumentError, match="read-only"):
            communicator.broadcast(array, array, root=root)
        communicator.barrier()

    run_peers(2, body)


def test_calls_that_cannot_be_fail_on_all_members(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> list[str]:
        members = communicator.barrier().members
        stranger = Member(bytes(range(16)))
        send = numpy.ones(4 + index)
        texts = []
        for call in (
            lambda: communicator.all_gather(send, numpy.empty(8 + index)),
            lambda: communicator.all_gather(send.astype(numpy.float32 if index else numpy.float64)),
            lambda: communicator.broadcast(send[:4], send[:4], root=stranger),
            lambda: communicator.broadcast(send, send, root=members[0]),
            lambda: communicator.reduce_scatter(send[:4], numpy.empty(1), op=ReduceOp.SUM),
            lambda: communicator.barrier() if index else communicator.broadcast(send, send, root=members[0]),
        ):
            with pytest.raises(pccl.PCCLArgumentError) as raised:
                call()
            texts.append(raised.value.cause)
        handle = communicator.all_gather_async(send, numpy.empty(8))
        ok, status, gathered = handle.wait(PATIENCE_S)
        assert (ok, status, len(gathered), gathered.members) == (False, pccl.Result.INVALID_ARGUMENT, 0, [])
        with pytest.raises(pccl.PCCLArgumentError, match="pcclAwaitCollective"):
            handle.result()
        assert communicator.members == members  # as before
        communicator.barrier()
        return texts

    ours, theirs = run_peers(2, body)
    assert "room for, 8 (recv)" in ours[0] and "not a member of the group; barrier() lists" in ours[2]
    assert all(text for text in ours + theirs)


def test_no_memory_for_the_pieces_is_a_failure_on_all(run_peers: RunPeers, monkeypatch: pytest.MonkeyPatch) -> None:
    from pccl import _collectives

    makes = _collectives._empty_like

    def too_large(send: Any, source: Any, elements: int) -> Any:
        if len(send) == 1000 and elements:
            raise MemoryError("no")
        return makes(send, source, elements)

    monkeypatch.setattr(_collectives, "_empty_like", too_large)

    def body(communicator: pccl.Communicator, index: int) -> None:
        with pytest.raises(MemoryError if index else pccl.PCCLArgumentError) as raised:
            communicator.all_gather(numpy.ones(1000 if index else 10))
        assert index == 0 or "no memory for 1010 elements" in str(raised.value)
        assert len(communicator.all_gather(numpy.ones(2))) == 2

    run_peers(2, body)


def test_alone(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array = numpy.ones(4)
        root = communicator.peer_id
        for call in (
            lambda: communicator.all_gather(array),
            lambda: communicator.all_gather(array, numpy.ones(8)),
            lambda: communicator.all_gather_async(array, numpy.ones(8)),
            lambda: communicator.broadcast(array, array, root=root),
            lambda: communicator.reduce_scatter(array, array, op=ReduceOp.SUM),
            lambda: communicator.reduce_async(array, array, op=ReduceOp.SUM, root=root),
            communicator.barrier,
            communicator.barrier_async,
        ):
            with pytest.raises(pccl.PCCLTooFewPeersError):
                call()
        assert array.tolist() == [1.0] * 4

    run_peers(1, body)


def test_before_connect(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        assert communicator.members == []
        for use in (lambda: communicator.peer_id, communicator.barrier, lambda: communicator.index):
            with pytest.raises(pccl.PCCLUsageError):
                use()


# ---- members that leave


DYING = """
import sys, numpy, pccl
communicator = pccl.Communicator(sys.argv[1])
communicator.connect()
while communicator.world_size < 3:
    if communicator.are_peers_pending():
        communicator.update_topology()
communicator.barrier()

while True:
    communicator.all_gather(numpy.full(300_000, 7.0), numpy.empty(1_000_000), tag=1)
"""


def test_a_member_that_dies_in_a_gather(master: str, script: MakeScript) -> None:
    """The survivors see the same sequence of failures and pieces."""
    from conftest import run_threads

    dying = script(DYING, master)

    def survivor(index: int) -> list[Any]:
        with pccl.Communicator(master) as communicator:
            communicator.connect()
            admit(communicator, 3)
            communicator.barrier()
            send, recv, seen = own(index, 100_000 + index), numpy.empty(1_000_000), []
            send = send.astype(float)
            while True:
                if index == 0 and len(seen) == 3:
                    dying.kill()
                try:
                    gathered = communicator.all_gather(send, recv, tag=1)
                except pccl.PCCLConnectionLostError as error:
                    seen.append(error.result)
                    continue
                assert equal(gathered[gathered.index], send)
                pieces = [piece.tobytes() for piece in gathered]
                seen.append(list(zip(gathered.members, pieces, strict=True)))
                if len(gathered) == 2:
                    return seen

    ours, theirs = run_threads(2, survivor)
    assert len(ours) == len(theirs) >= 4
    assert ours == theirs
    assert [len(each) for each in ours[:3]] == [3, 3, 3]
    last = ours[-1]
    assert [len(piece) // 8 for _, piece in last] == [member.count for member, _ in last]
    assert sorted(member.count for member, _ in last) == [100_000, 100_001]


def test_a_member_that_leaves_between_the_lengths_and_the_pieces(
    run_peers: RunPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gather succeeds without it."""
    from pccl import _collectives

    makes = _collectives._empty_like

    def leave(send: Any, source: Any, elements: int) -> Any:
        if len(send) == 1002:
            raise KeyboardInterrupt
        return makes(send, source, elements)

    monkeypatch.setattr(_collectives, "_empty_like", leave)

    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        if index == 2:
            with pytest.raises(KeyboardInterrupt):
                communicator.all_gather(own(index, 1002))
            communicator.close()
            return
        gathered = communicator.all_gather(own(index, 1000 + index))
        others = [whose for whose in order if whose != 2]
        assert [member.count for member in gathered.members] == [1000 + whose for whose in others]
        for piece, whose in zip(gathered, others, strict=True):
            assert equal(piece, own(whose, 1000 + whose))

    run_peers(3, body)


def test_a_root_that_has_left(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        order = introduced(communicator, index)
        members = communicator.members
        if order[communicator.index] == 2:
            communicator.close()
            return
        array = own(index, 10)
        gone = members[order.index(2)]
        with contextlib.suppress(pccl.PCCLConnectionLostError):  # it leaves while the collective begins
            with pytest.raises(pccl.PCCLArgumentError, match="not a member of the group"):
                communicator.broadcast(array, array, root=gone)
        assert equal(array, own(index, 10))
        assert gone not in communicator.barrier().members
        communicator.broadcast(array, array, root=communicator.members[0])

    run_peers(3, body)
