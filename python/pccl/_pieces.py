"""Collectives that move pieces between members: gather, scatter and all_to_all."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from pccl import _staging
from pccl._collectives import (
    Array,
    CollectiveInfo,
    Collectives,
    Gathered,
    Member,
    _Call,
    _landing_pieces,
    _pieces_of,
    _root,
    _source,
    _tag,
)
from pccl._errors import argument_error
from pccl._limits import Timeout, limit
from pccl._memory import memory_of
from pccl._operation import AsyncHandle
from pccl._staging import is_on_gpu

# Kinds of collectives in the native module, behind those of _collectives.
_GATHER, _SCATTER, _ALL_TO_ALL = range(5, 8)


class PieceCollectives(Collectives):
    """Part of :class:`Communicator`."""

    def gather(
        self, send: Array, recv: Array | None, *, root: bytes | Member, tag: int = 0, timeout: Timeout = None
    ) -> Gathered:
        """Gathers the arrays of all members at one of them; each may have another length, and 0 too. Blocks until the
        outcome is known, which is the same for all remaining members. All pass the same type, ``root`` and ``tag``.

        :param send: as for :meth:`all_gather`.
        :param recv: at the root as for :meth:`all_gather`, but always given. Not written at the others, where it may be
            None.
        :param root: the member that receives: one of :attr:`members`, or its peer id.
        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :returns: at the root the pieces, and whose they are. At the others no pieces, and the members.
        :raises PCCLConnectionLostError: a member was lost, and the call failed for all.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place. On all members: ``recv`` of the root is too small,
            the root is no member of the group, also because it has left, or the members disagree.
        :raises PCCLUsageError: on all members: arrays that travel through a member need more memory than its limit
            (``max_scratch_bytes``).
        """
        function = "Communicator.gather"
        with limit(timeout, function):
            order, room = self._order, self._room_at(recv, root, function)
            info = self._run(self._gathering_at(send, recv, root, tag, function))
            return _gathered(room, info, order)

    def gather_async(
        self, send: Array, recv: Array | None, *, root: bytes | Member, tag: int = 0
    ) -> AsyncHandle[Gathered]:
        """Launches a gather and returns at once. The arrays belong to it until its handle is done.

        :param send: as for :meth:`gather`.
        :param recv: as for :meth:`gather`.
        :param root: as for :meth:`gather`.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        function = "Communicator.gather_async"
        order, room = self._order, self._room_at(recv, root, function)
        call = self._gathering_at(send, recv, root, tag, function)
        return self._launch(call, lambda info: _gathered(room, info, order))

    def scatter(
        self,
        send: Array | None,
        recv: Array,
        *,
        root: bytes | Member,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
    ) -> CollectiveInfo:
        """Cuts the array of one member into pieces, and sends each member its own. Blocks until the outcome is known,
        which is the same for all remaining members. All pass the same type, ``root`` and ``tag``.

        :param send: the array at the root, with the pieces in the order of indices; not read at the others, where it
            may be None.
        :param recv: gets the own piece, and has room for it. What lies behind the piece is not written. ``count`` of
            ``info.members[info.index]`` is its length. After a failure it is undefined. At the root it may be ``send``,
            which then holds its input again after a failure.
        :param root: the member that sends: one of :attr:`members`, or its peer id.
        :param counts: elements of each piece, by index; read at the root only. None: :attr:`world_size` pieces of one
            size. After update_topology() indices may have moved; barrier() lists the members anew.
        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :raises PCCLConnectionLostError: a member was lost, or the group has another size than there are pieces. Cut the
            array anew.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the pieces are not all of it. On all members:
            some ``recv`` is smaller than its piece, the root is no member of the group, or the members disagree.
        :raises PCCLUsageError: as for :meth:`gather`.
        """
        with limit(timeout, "Communicator.scatter"):
            return self._run(self._cutting(send, recv, root, counts, tag, "Communicator.scatter"))

    def scatter_async(
        self,
        send: Array | None,
        recv: Array,
        *,
        root: bytes | Member,
        counts: Sequence[int] | None = None,
        tag: int = 0,
    ) -> AsyncHandle[CollectiveInfo]:
        """Launches a scatter and returns at once. The arrays belong to it until its handle is done.

        :param send: as for :meth:`scatter`.
        :param recv: as for :meth:`scatter`.
        :param root: as for :meth:`scatter`.
        :param counts: as for :meth:`scatter`.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        return self._launch(self._cutting(send, recv, root, counts, tag, "Communicator.scatter_async"))

    def all_to_all(
        self, send: Array, recv: Array, *, counts: Sequence[int] | None = None, tag: int = 0, timeout: Timeout = None
    ) -> Gathered:
        """Sends a piece of the array of each member to each member. Blocks until the outcome is known, which is the
        same for all remaining members. All pass the same type and ``tag``.

        :param send: the pieces for all members, in the order of indices. It is not changed.
        :param recv: gets the pieces from all members, one behind the other, in the order of indices: a contiguous array
            of the same kind and type outside of ``send``, with room for all of them. After a failure it is undefined.
        :param counts: elements of each piece of ``send``, by index. None: :attr:`world_size` pieces of one size.
        :param tag: as for :meth:`all_reduce`.
        :param timeout: as for the class :class:`Communicator`.
        :returns: the pieces that came, and from whom.
        :raises PCCLConnectionLostError: a member was lost, or the group has another size than a member has pieces. Cut
            the array anew.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the pieces are not all of it. On all members:
            some ``recv`` is too small, or the members disagree.
        :raises PCCLUsageError: as for :meth:`gather`.
        """
        function = "Communicator.all_to_all"
        with limit(timeout, function):
            order = self._order
            info = self._run(self._exchanging(send, recv, counts, tag, function))
            return _pieces_of(recv, info, order)

    def all_to_all_async(
        self, send: Array, recv: Array, *, counts: Sequence[int] | None = None, tag: int = 0
    ) -> AsyncHandle[Gathered]:
        """Launches an all_to_all and returns at once. Both arrays belong to it until its handle is done.

        :param send: as for :meth:`all_to_all`.
        :param recv: as for :meth:`all_to_all`.
        :param counts: as for :meth:`all_to_all`.
        :param tag: as for :meth:`all_reduce_async`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, or the tag is launched already.
        """
        call = self._exchanging(send, recv, counts, tag, "Communicator.all_to_all_async")
        order = self._order
        return self._launch(call, lambda info: _pieces_of(recv, info, order))

    # ---- the calls

    # Asked before the launch, because this peer may have another id when the result is read.
    def _room_at(self, recv: Array | None, root: bytes | Member, function: str) -> Array | None:
        return recv if _root(root, function) == self.peer_id else None

    def _gathering_at(
        self, send: Array, recv: Array | None, root: bytes | Member, tag: int, function: str
    ) -> _Call:
        peer = _root(root, function)
        if peer != self.peer_id:
            recv = None
        elif recv is None:
            raise argument_error(function, "recv is None at the root; give an array with room for all pieces")
        target = None if recv is None else memory_of(recv, "recv", function, written=True)
        source = memory_of(send, "send", function, written=False) if target is None else _source(send, target, function)
        pointers, room, land = (source.pointer, target.pointer if target is not None else 0), 0, None
        owners = source.owners if target is None else source.owners + target.owners
        if target is not None:
            room = target.elements
        if is_on_gpu(source.device_type):
            host = _staging.Fetch(send).wait()
            pointers, owners = (host.data_ptr(), 0), (host,)
            if recv is not None:
                result = _staging.room(room, recv.dtype)
                pointers, owners = (host.data_ptr(), result.data_ptr()), (host, result)
                land = _landing_pieces(result, recv)
        native = (*pointers, source.elements, room, peer, 0, _tag(tag, function), source.data_type)
        return _Call(_GATHER, native, owners, land)

    def _cutting(
        self,
        send: Array | None,
        recv: Array,
        root: bytes | Member,
        counts: Sequence[int] | None,
        tag: int,
        function: str,
    ) -> _Call:
        peer = _root(root, function)
        target = memory_of(recv, "recv", function, written=True)
        pieces: tuple[int, Sequence[int]] = (0, ())
        pointer, each, owners, land = 0, 0, target.owners, None
        if peer == self.peer_id:
            if send is None:
                raise argument_error(function, "send is None at the root; give the array that is cut")
            source = target if send is recv else _source(send, target, function)
            each, pieces = self._cut(source.elements, counts, function)
            pointer, owners = source.pointer, source.owners + target.owners
        place = target.pointer
        if is_on_gpu(target.device_type):
            result = _staging.room(target.elements, recv.dtype)
            place, owners, land = result.data_ptr(), (result,), _landing_pieces(result, recv)
            if pointer:
                assert send is not None
                host = _staging.Fetch(send).wait()
                pointer, owners = host.data_ptr(), (host, result)
        native = (pointer, place, each, target.elements, peer, 0, _tag(tag, function), target.data_type)
        return _Call(_SCATTER, native, owners, land, _own, pieces)

    def _exchanging(
        self, send: Array, recv: Array, counts: Sequence[int] | None, tag: int, function: str
    ) -> _Call:
        target = memory_of(recv, "recv", function, written=True)
        source = _source(send, target, function)
        each, pieces = self._cut(source.elements, counts, function)
        pointers, owners, land = (source.pointer, target.pointer), source.owners + target.owners, None
        if is_on_gpu(source.device_type):
            host = _staging.Fetch(send).wait()
            result = _staging.room(target.elements, recv.dtype)
            pointers, owners = (host.data_ptr(), result.data_ptr()), (host, result)
            land = _landing_pieces(result, recv)
        native = (*pointers, each, target.elements, b"", 0, _tag(tag, function), source.data_type)
        return _Call(_ALL_TO_ALL, native, owners, land, pieces=pieces)

    def _cut(
        self, elements: int, counts: Sequence[int] | None, function: str
    ) -> tuple[int, tuple[int, Sequence[int]]]:
        """Elements of each piece if all have as many, and the pieces as the native module takes them."""
        if counts is None:
            members = self._group_size()
            if elements % members:
                raise argument_error(
                    function,
                    f"send has {elements} elements, which {members} members cannot share evenly; pass counts, or "
                    "another array",
                )
            return elements // members, (members, ())
        try:
            numbers = [operator.index(count) for count in counts]
        except TypeError:
            numbers = [-1]
        if min(numbers, default=0) < 0:
            raise argument_error(function, f"counts are {counts!r}; use numbers of elements")
        if sum(numbers) != elements:
            raise argument_error(
                function, f"send has {elements} elements, and the counts are {sum(numbers)} together"
            )
        return 0, (len(numbers), numbers)


def _gathered(recv: Array | None, info: CollectiveInfo, order: Sequence[int]) -> Gathered:
    return Gathered([], info) if recv is None else _pieces_of(recv, info, order)


def _own(index: int, counts: Sequence[int]) -> int:
    return counts[index]
