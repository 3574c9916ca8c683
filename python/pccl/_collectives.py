"""Collectives other than an all-reduce: what their calls take, launch and return."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pccl import _native, _staging
from pccl._enums import DataType, ReduceOp, Result
from pccl._errors import PCCLError, PCCLUsageError, argument_error
from pccl._limits import Timeout, limit
from pccl._memory import Memory, memory_of, same_kind
from pccl._operation import AsyncHandle
from pccl._staging import is_on_gpu

Array = Any  # torch.Tensor or numpy.ndarray; neither is imported here

# Kinds of collectives in the native module.
_ALL_GATHER, _BROADCAST, _REDUCE_SCATTER, _REDUCE, _BARRIER = range(5)
# The fields of a native call: addresses of send and recv, elements of send, elements of recv, root, operation, tag,
# type.
_Native = tuple[int, int, int, int, bytes, int, int, int]
# No run has more members.
_MEMBERS_MAX = 4096


@dataclass(frozen=True)
class Member:
    """A member that took part in a collective.

    :param peer_id: 16 bytes that name the peer for as long as it is in the run. A peer that connects again gets others.
    :param count: elements that it sent (all_gather, gather) or received (reduce_scatter, scatter), or that this peer
        received from it (all_to_all), or that were sent (send, recv); otherwise 0.
    """

    peer_id: bytes
    count: int = 0

    def __repr__(self) -> str:
        return f"Member({self.peer_id.hex()}, count={self.count})"


@dataclass
class CollectiveInfo:
    """Facts about a collective that succeeded.

    :param local_world_size: number of members of the group that took part.
    :param tx_bytes: bytes of payload that this peer sent.
    :param rx_bytes: bytes of payload that this peer received.
    :param index: position of this peer in ``members``.
    :param members: those that took part, in the order in which they were admitted. A member that leaves moves the later
        ones up; otherwise the index of a member does not change.
    """

    local_world_size: int
    tx_bytes: int
    rx_bytes: int
    index: int = 0
    members: list[Member] = field(default_factory=list)

    @property
    def world_size(self) -> int:
        """Another name of ``local_world_size``."""
        return self.local_world_size


class Gathered:
    """The outcome of an all_gather, a gather or an all_to_all: ``gathered[i]`` is what came from the member with index
    ``i``, as a vector. The pieces are views of one array; they keep it alive. A gather has pieces at its root only."""

    pieces: list[Array]
    """What came from each member, in the order of indices."""
    info: CollectiveInfo
    """Who took part, and the bytes that were moved."""

    def __init__(self, pieces: list[Array], info: CollectiveInfo) -> None:
        self.pieces = pieces
        self.info = info

    @property
    def members(self) -> list[Member]:
        """``members[i]`` sent ``gathered[i]``."""
        return self.info.members

    @property
    def index(self) -> int:
        """Index of this peer: ``gathered[index]`` is what it sent."""
        return self.info.index

    @property
    def local_world_size(self) -> int:
        """Number of pieces."""
        return self.info.local_world_size

    @property
    def tx_bytes(self) -> int:
        """Bytes of payload that this peer sent."""
        return self.info.tx_bytes

    @property
    def rx_bytes(self) -> int:
        """Bytes of payload that this peer received."""
        return self.info.rx_bytes

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> Array:
        return self.pieces[index]

    def __iter__(self) -> Iterator[Array]:
        return iter(self.pieces)

    def __repr__(self) -> str:
        counts = ", ".join(str(member.count) for member in self.members)
        return f"<pccl.Gathered of {len(self)} pieces of {counts or 'no'} elements, own index {self.index}>"


class _Seen:
    """What the last collective of a communicator told about the members of the group."""

    def __init__(self) -> None:
        self.info: CollectiveInfo | None = None

    def keep(
        self, all_: bool, world: int, tx_bytes: int, rx_bytes: int, index: int, members: list[tuple[bytes, int]]
    ) -> CollectiveInfo:
        """``all_``: these are all members of the group."""
        info = CollectiveInfo(world, tx_bytes, rx_bytes, index, [Member(*member) for member in members])
        if members and all_:
            self.info = info
        return info


class _Call(NamedTuple):
    """A collective that is ready to be launched."""

    kind: int
    native: _Native
    owners: tuple[Any, ...]  # of the memory
    # Puts a result on a GPU into place; its argument is the number of elements that arrived.
    land: Callable[[int], None] | None = None
    # Elements that arrived, from the own index and the counts of all members. It matters only with ``land``.
    landed: Callable[[int, Sequence[int]], int] = lambda _, counts: sum(counts)
    # The pieces of send: for how many members, and how many elements each has. (0, ()): it has none.
    pieces: tuple[int, Sequence[int]] = (0, ())
    # It tells of all members of the group.
    names_all: bool = True


class Collectives:
    """Part of :class:`Communicator`."""

    _seen: _Seen
    _order: tuple[int, ...]

    def _live(self) -> _native.Comm:
        raise NotImplementedError

    def _group_size(self) -> int:
        raise NotImplementedError

    def _start(
        self, owners: tuple[Any, ...], launch: Callable[[_native.Operation], None]
    ) -> tuple[_native.Operation, Callable[[], object]]:
        raise NotImplementedError

    # ---- members

    @property
    def peer_id(self) -> bytes:
        """The 16 bytes that name this peer in the run, for ``root``. Another connect() changes them. Never blocks.

        :raises PCCLUsageError: the first connect() has not succeeded yet.
        """
        return self._live().peer_id()

    @property
    def members(self) -> list[Member]:
        """The members of this peer's group, by index, as of the last collective that returned here and reports members:
        every one but an all-reduce, a send and a recv. Their ``count`` is 0. Empty before the first one. After
        update_topology(), call barrier() for the present ones. Never blocks."""
        info = self._seen.info
        return [Member(member.peer_id) for member in info.members] if info is not None else []

    @property
    def index(self) -> int:
        """Position of this peer in :attr:`members`. Never blocks.

        :raises PCCLUsageError: no collective that reports members has succeeded yet.
        """
        info = self._seen.info
        if info is None:
            raise PCCLUsageError(
                Result.INVALID_USAGE, "Communicator.index", "no collective has told it yet; call barrier() first"
            )
        return info.index

    def set_piece_order(self, order: Sequence[int] | None) -> None:
        """Sets in which order the pieces of the members lie in the arrays of this peer, for every all_gather,
        reduce_scatter, gather, scatter and all_to_all that is launched afterwards. Members may use different orders.
        Nothing is copied for it, and no other peer learns of it. Use it if a program numbers its processes in another
        way than the run, as ranks do. Call it between the collectives of other threads: if one is launched at the same
        moment, it may use either order, and its pieces may be told wrongly. Never blocks.

        Everything else stays in the order of indices: ``counts``, :attr:`CollectiveInfo.members`, and the pieces of
        :class:`Gathered`. If the group has more members than ``order``, the pieces of the others come last; if it has
        fewer, the missing ones are skipped. Indices move when members leave: set the order anew then.

        :param order: the piece of the member with index ``order[k]`` is the k-th one: each index below ``len(order)``
            once. None: the order of indices again.
        :raises PCCLArgumentError: an index is missing, is there twice, or is no index. The order stays as it was.
        """
        try:
            indices = tuple(operator.index(index) for index in order or ())
        except TypeError:
            indices = (-1,)
        if sorted(indices) != list(range(len(indices))):
            raise argument_error(
                "Communicator.set_piece_order", f"order is {order!r}; name each index below its length once"
            )
        self._live().set_piece_order(indices)
        self._order = indices

    # ---- collectives

    def all_gather(self, send: Array, recv: Array | None = None, *, tag: int = 0, timeout: Timeout = None) -> Gathered:
        """Gathers the arrays of all members at all members; each may have another length, and 0 too. Blocks until the
        outcome is known: it succeeds for all remaining members or fails for all, as an all-reduce does. All members
        pass the same type and ``tag``.

        :param send: a contiguous torch tensor or numpy array, of any shape. It is not changed.
        :param recv: gets the arrays one behind the other, in the order of indices: a contiguous array of the same kind
            and type outside of ``send``, with room for all elements. What lies behind them is not written. After a
            failure it is undefined. None: the members gather their lengths first, in one more vote, and an array of
            that size is made. Either all members give an array, or none does.
        :param tag: as for :meth:`all_reduce`; all collectives of a group share the tags.
        :param timeout: as for the class :class:`Communicator`.
        :returns: the pieces, and whose they are.
        :raises PCCLConnectionLostError: a member was lost, and the call failed for all. Call again or skip it, the same
            way on all members. If a member leaves between the two votes, the call succeeds without it.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place. On all members: some ``recv`` is too small, or the
            members disagree.
        :raises MemoryError: there is no memory for the result here. The call fails on the other members, too, with a
            PCCLArgumentError.
        """
        function = "Communicator.all_gather"
        with limit(timeout, function):
            return self._all_gather(send, recv, tag, function)

    def _all_gather(self, send: Array, recv: Array | None, tag: int, function: str) -> Gathered:
        short: Exception | None = None
        if recv is None:
            source = memory_of(send, "send", function, written=False)
            total = self._lengths(source.elements, tag, function)
            try:
                recv = _empty_like(send, source, total)
            except (MemoryError, RuntimeError) as error:  # torch has a RuntimeError for it
                # The others are at the same call. It must fail for them, so there is no room here.
                short, recv = error, _empty_like(send, source, 0)
        order = self._order  # after the first vote, during which another thread may have set it
        try:
            info = self._run(_gathering(send, recv, tag, function))
        except PCCLError as error:
            if short is not None:
                raise MemoryError(f"{function}: there is no memory for {total} elements: {short}") from error
            raise
        return _pieces_of(recv, info, order)

    def all_gather_async(self, send: Array, recv: Array, *, tag: int = 0) -> AsyncHandle[Gathered]:
        """Launches an all_gather and returns at once. Both arrays belong to it until its handle is done.

        :param send: as for :meth:`all_gather`.
        :param recv: as for :meth:`all_gather`, but always given.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        call = _gathering(send, recv, tag, "Communicator.all_gather_async")
        order = self._order
        return self._launch(call, lambda info: _pieces_of(recv, info, order))

    def broadcast(
        self, send: Array | None, recv: Array, *, root: bytes | Member, tag: int = 0, timeout: Timeout = None
    ) -> CollectiveInfo:
        """Sends the array of one member to all. Blocks until the outcome is known, which is the same for all remaining
        members. All pass the same number of elements, type, ``root`` and ``tag``.

        :param send: the array at the root; not read at the others, where it may be None.
        :param recv: filled at all members. It may be ``send``; it then holds its input again after a failure. Otherwise
            it is undefined then.
        :param root: the member that sends: one of :attr:`members`, or its peer id.
        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :raises PCCLConnectionLostError: a member was lost, and the call failed for all.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place. On all members: the root is no member of the group,
            also because it has left, or the members disagree. If the root has left, take another one.
        """
        with limit(timeout, "Communicator.broadcast"):
            return self._run(self._broadcasting(send, recv, root, tag, "Communicator.broadcast"))

    def broadcast_async(
        self, send: Array | None, recv: Array, *, root: bytes | Member, tag: int = 0
    ) -> AsyncHandle[CollectiveInfo]:
        """Launches a broadcast and returns at once. The arrays belong to it until its handle is done.

        :param send: as for :meth:`broadcast`.
        :param recv: as for :meth:`broadcast`.
        :param root: as for :meth:`broadcast`.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        return self._launch(self._broadcasting(send, recv, root, tag, "Communicator.broadcast_async"))

    def reduce_scatter(
        self, send: Array, recv: Array, *, op: ReduceOp, tag: int = 0, timeout: Timeout = None
    ) -> CollectiveInfo:
        """Reduces an array over the group; each member receives one piece of the result. The pieces lie in the array in
        the order of indices, and together they are all of it. Blocks until the outcome is known, which is the same for
        all remaining members. All pass the same number of elements, type, ``op`` and ``tag``.

        :param send: the whole array. It is not changed, unless ``recv`` is a view of its beginning.
        :param recv: gets the own piece; its size chooses the size of the piece, also 0. After a failure it is
            undefined; a view of the beginning of ``send`` then holds its input again.
        :param op: as for :meth:`all_reduce`; AVG divides by the number of members that took part.
        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :raises PCCLConnectionLostError: a member was lost, or the group has another size than :attr:`world_size` had
            at the call. Choose the pieces anew.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place. On all members: the pieces are not all of the array
            together, or the members disagree.
        """
        with limit(timeout, "Communicator.reduce_scatter"):
            return self._run(_scattering(send, recv, op, tag, "Communicator.reduce_scatter"))

    def reduce_scatter_async(
        self, send: Array, recv: Array, *, op: ReduceOp, tag: int = 0
    ) -> AsyncHandle[CollectiveInfo]:
        """Launches a reduce_scatter and returns at once. Both arrays belong to it until its handle is done.

        :param send: as for :meth:`reduce_scatter`.
        :param recv: as for :meth:`reduce_scatter`.
        :param op: as for :meth:`all_reduce`.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        return self._launch(_scattering(send, recv, op, tag, "Communicator.reduce_scatter_async"))

    def reduce(
        self,
        send: Array,
        recv: Array | None,
        *,
        op: ReduceOp,
        root: bytes | Member,
        tag: int = 0,
        timeout: Timeout = None,
    ) -> CollectiveInfo:
        """Reduces an array over the group; only one member receives the result. Blocks until the outcome is known,
        which is the same for all remaining members. All pass the same number of elements, type, ``op``, ``root`` and
        ``tag``.

        :param send: the array of this member. It is not changed, unless it is ``recv`` and this is the root.
        :param recv: gets the result at the root; not written at the others, where it may be None. At the root it may be
            ``send``; it then holds its input again after a failure.
        :param op: as for :meth:`all_reduce`.
        :param root: as for :meth:`broadcast`.
        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :raises PCCLConnectionLostError: a member was lost, and the call failed for all.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: as for :meth:`broadcast`.
        """
        with limit(timeout, "Communicator.reduce"):
            return self._run(self._reducing(send, recv, op, root, tag, "Communicator.reduce"))

    def reduce_async(
        self, send: Array, recv: Array | None, *, op: ReduceOp, root: bytes | Member, tag: int = 0
    ) -> AsyncHandle[CollectiveInfo]:
        """Launches a reduce and returns at once. The arrays belong to it until its handle is done.

        :param send: as for :meth:`reduce`.
        :param recv: as for :meth:`reduce`.
        :param op: as for :meth:`all_reduce`.
        :param root: as for :meth:`broadcast`.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        return self._launch(self._reducing(send, recv, op, root, tag, "Communicator.reduce_async"))

    def barrier(self, *, tag: int = 0, timeout: Timeout = None) -> CollectiveInfo:
        """Blocks until all members of the group have called it with this tag.

        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :returns: the members of the group.
        :raises PCCLConnectionLostError: a member was lost, and the call failed for all.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: on all members: another one launched another collective under this tag.
        """
        with limit(timeout, "Communicator.barrier"):
            return self._run(_meeting(tag, "Communicator.barrier"))

    def barrier_async(self, *, tag: int = 0) -> AsyncHandle[CollectiveInfo]:
        """Launches a barrier and returns at once.

        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: the tag is launched already.
        """
        return self._launch(_meeting(tag, "Communicator.barrier_async"))

    # ---- what they have in common

    def _run(self, call: _Call) -> CollectiveInfo:
        info = self._seen.keep(call.names_all, *self._live().collect(call.kind, call.native, *call.pieces))
        if call.land is not None:
            call.land(call.landed(info.index, [member.count for member in info.members]))
        return info

    def _launch(self, call: _Call, make: Callable[[CollectiveInfo], Any] = lambda info: info) -> AsyncHandle[Any]:
        seen, comm = self._seen, self._live()
        operation, release = self._start(
            call.owners, lambda operation: comm.collect_async(operation, call.kind, call.native, *call.pieces)
        )

        def read(world: int, tx_bytes: int, rx_bytes: int) -> Any:
            return make(seen.keep(call.names_all, world, tx_bytes, rx_bytes, *operation.members()))

        land = None if call.land is None else partial(_land, call.land, call.landed, operation)
        return AsyncHandle(operation, release, read, "pcclAwaitCollective", land)

    def _lengths(self, own: int, tag: int, function: str) -> int:
        """Elements of all members together."""
        sent, received = array("Q", [own]), array("Q", bytes(8 * _MEMBERS_MAX))
        pointers = sent.buffer_info()[0], received.buffer_info()[0]
        native = (*pointers, 1, _MEMBERS_MAX, b"", 0, _tag(tag, function), DataType.UINT64)
        world = self._run(_Call(_ALL_GATHER, native, ())).local_world_size
        return sum(received[:world])

    def _broadcasting(
        self, send: Array | None, recv: Array, root: bytes | Member, tag: int, function: str
    ) -> _Call:
        target = memory_of(recv, "recv", function, written=True)
        source = target if send is recv else None if send is None else _source(send, target, function)
        if source is not None and source.elements != target.elements:
            raise argument_error(
                function, f"send has {source.elements} elements and recv {target.elements}; use arrays of one size"
            )
        peer = _root(root, function)
        pointers, land = (source.pointer if source is not None else 0, target.pointer), None
        owners = target.owners if source is None else source.owners + target.owners
        if is_on_gpu(target.device_type):
            if send is not None and peer == self.peer_id:
                host = _staging.Fetch(send).wait()
                pointers = host.data_ptr(), host.data_ptr()
                land = None if send is recv else _landing(host, recv)
            else:
                host = _staging.room(target.elements, recv.dtype)
                pointers, land = (0, host.data_ptr()), _landing(host, recv)
            owners = (host,)
        count, data_type = target.elements, target.data_type
        return _Call(_BROADCAST, (*pointers, count, 0, peer, 0, _tag(tag, function), data_type), owners, land)

    def _reducing(
        self, send: Array, recv: Array | None, op: ReduceOp, root: bytes | Member, tag: int, function: str
    ) -> _Call:
        if recv is None:
            source, target = memory_of(send, "send", function, written=False), None
        else:
            target = memory_of(recv, "recv", function, written=True)
            source = target if send is recv else _source(send, target, function)
            if source.elements != target.elements:
                raise argument_error(
                    function, f"send has {source.elements} elements and recv {target.elements}; use arrays of one size"
                )
        peer = _root(root, function)
        pointers, land = (source.pointer, target.pointer if target is not None else 0), None
        owners = source.owners if target is None else source.owners + target.owners
        if is_on_gpu(source.device_type):
            host = _staging.Fetch(send).wait()
            pointers, owners = (host.data_ptr(), 0), (host,)
            if recv is not None and peer == self.peer_id:
                result = _staging.room_for_result(host)
                pointers, owners, land = (host.data_ptr(), result.data_ptr()), (host, result), _landing(result, recv)
        number, operation = _tag(tag, function), _op(op, function)
        native = (*pointers, source.elements, 0, peer, operation, number, source.data_type)
        return _Call(_REDUCE, native, owners, land)


def _gathering(send: Array, recv: Array, tag: int, function: str) -> _Call:
    target = memory_of(recv, "recv", function, written=True)
    source = _source(send, target, function)
    return _with_room(_ALL_GATHER, source, target, send, recv, 0, _tag(tag, function))


def _scattering(send: Array, recv: Array, op: ReduceOp, tag: int, function: str) -> _Call:
    target = memory_of(recv, "recv", function, written=True)
    source = target if send is recv else _source(send, target, function)
    if target.elements > source.elements:
        raise argument_error(
            function, f"recv has {target.elements} elements and send {source.elements}; a piece is no larger than all"
        )
    return _with_room(_REDUCE_SCATTER, source, target, send, recv, _op(op, function), _tag(tag, function))


def _with_room(kind: int, source: Memory, target: Memory, send: Array, recv: Array, op: int, tag: int) -> _Call:
    pointers, owners, land = (source.pointer, target.pointer), source.owners + target.owners, None
    if is_on_gpu(source.device_type):
        host = _staging.Fetch(send).wait()
        result = _staging.room(target.elements, recv.dtype)
        pointers, owners = (host.data_ptr(), result.data_ptr()), (host, result)
        land = (_landing_pieces if kind == _ALL_GATHER else _landing)(result, recv)
    return _Call(kind, (*pointers, source.elements, target.elements, b"", op, tag, source.data_type), owners, land)


def _meeting(tag: int, function: str) -> _Call:
    return _Call(_BARRIER, (0, 0, 0, 0, b"", 0, _tag(tag, function), DataType.UINT8), ())


def _source(send: Array, target: Memory, function: str) -> Memory:
    source = memory_of(send, "send", function, written=False)
    same_kind(source, target, function)
    return source


def _landing(host: Any, recv: Array) -> Callable[[int], None]:
    """Copies a result in page-locked memory to a tensor on a GPU."""
    return lambda _: _staging.store(host, recv)


def _landing_pieces(host: Any, recv: Array) -> Callable[[int], None]:
    """Copies as many elements as were gathered; those behind them must stay as they are."""
    return lambda elements: _staging.store(host[:elements], recv.detach().view(-1)[:elements])


def _land(
    land: Callable[[int], None], landed: Callable[[int, Sequence[int]], int], operation: _native.Operation
) -> None:
    index, members = operation.members()
    land(landed(index, [count for _, count in members]))


def _pieces_of(recv: Array, info: CollectiveInfo, order: Sequence[int]) -> Gathered:
    # A tensor may require grad; autograd records nothing of a collective.
    flat, begin, members = (recv.detach() if hasattr(recv, "detach") else recv).reshape(-1), 0, info.members
    pieces: list[Array] = [None] * len(members)
    for index in (*(index for index in order if index < len(members)), *range(len(order), len(members))):
        pieces[index] = flat[begin : begin + members[index].count]
        begin += members[index].count
    return Gathered(pieces, info)


def _empty_like(send: Array, source: Memory, elements: int) -> Array:
    if source.kind == "torch":
        return send.detach().new_empty(elements)
    import numpy

    return numpy.empty(elements, dtype=send.dtype)


def _root(root: bytes | Member, function: str, name: str = "root") -> bytes:
    peer = root.peer_id if isinstance(root, Member) else root
    if not isinstance(peer, bytes) or len(peer) != 16 or not any(peer):
        raise argument_error(
            function,
            f"{name} is {root!r}; use one of members (barrier() finds them), or the peer_id of its communicator",
        )
    return peer


def _op(op: ReduceOp, function: str) -> int:
    if not isinstance(op, int):
        raise argument_error(function, f"op is {op!r}; use a pccl.ReduceOp")
    return op


def _tag(tag: int, function: str) -> int:
    if not 0 <= tag < 1 << 64:
        raise argument_error(function, f"tag is {tag}; use a number from 0 to 2**64 - 1")
    return tag
