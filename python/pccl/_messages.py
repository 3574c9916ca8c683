"""Messages between two members: send and recv."""

from __future__ import annotations

from pccl import _staging
from pccl._collectives import Array, CollectiveInfo, Member, _Call, _landing_pieces, _root, _tag
from pccl._limits import Timeout, limit
from pccl._memory import memory_of
from pccl._operation import AsyncHandle
from pccl._pieces import PieceCollectives
from pccl._staging import is_on_gpu

# Kinds of collectives in the native module, behind those of _pieces.
_SEND, _RECV = range(8, 10)


class MessageCollectives(PieceCollectives):
    """Part of :class:`Communicator`."""

    def send(self, send: Array, *, to: bytes | Member, tag: int = 0, timeout: Timeout = None) -> CollectiveInfo:
        """Sends an array to another member of the group, which calls recv() with this peer and the same ``tag``. Blocks
        until the outcome is known: the receiver has all of it, or it failed for both. Two members that send() to each
        other at once wait for ever; use send_async(), or let one of them receive first.

        Small arrays (16 KiB) travel with the votes through the master, larger ones along the ring. The members between
        the two forward them, whatever their programs do.

        :param send: as for :meth:`all_gather`.
        :param to: the member that receives: one of :attr:`members`, or its peer id.
        :param tag: the same at both. Other pairs, the other direction and other collectives may use it at the same
            time; a send of this pair may not.
        :param timeout: as for the class :class:`Communicator`.
        :returns: its ``members`` are the sender and the receiver; their ``count`` are the elements that were sent.
        :raises PCCLConnectionLostError: the other member is lost, or is no member of the group; or one that forwards
            the array was lost. Nothing was received.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array cannot be used in place, ``to`` is this peer, or a send of this pair with
            this tag is launched already. On both members: the types differ, or ``recv`` is too small.
        :raises PCCLUsageError: on both members: the receiver, or a member that forwards the array, needs more memory
            than its limit (``max_scratch_bytes``).
        """
        with limit(timeout, "Communicator.send"):
            return self._run(_sending(send, to, tag, "Communicator.send"))

    def send_async(self, send: Array, *, to: bytes | Member, tag: int = 0) -> AsyncHandle[CollectiveInfo]:
        """Launches a send and returns at once. The array belongs to it until its handle is done.

        :param send: as for :meth:`send`.
        :param to: as for :meth:`send`.
        :param tag: as for :meth:`send`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: as for :meth:`send`, on this member.
        """
        return self._launch(_sending(send, to, tag, "Communicator.send_async"))

    def recv(self, recv: Array, *, source: bytes | Member, tag: int = 0, timeout: Timeout = None) -> CollectiveInfo:
        """Receives an array of another member of the group, which calls send() with this peer and the same ``tag``.
        Blocks until the outcome is known, which is the same for both.

        :param recv: gets the array, and has room for it. What lies behind it is not written. After a failure it is as
            before.
        :param source: the member that sends: one of :attr:`members`, or its peer id.
        :param tag: as for :meth:`send`.
        :param timeout: as for the class :class:`Communicator`.
        :returns: as for :meth:`send`: ``info.members[0].count`` elements came.
        :raises PCCLConnectionLostError: as for :meth:`send`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: as for :meth:`send`.
        :raises PCCLUsageError: as for :meth:`send`.
        """
        with limit(timeout, "Communicator.recv"):
            return self._run(_receiving(recv, source, tag, "Communicator.recv"))

    def recv_async(self, recv: Array, *, source: bytes | Member, tag: int = 0) -> AsyncHandle[CollectiveInfo]:
        """Launches a recv and returns at once. The array belongs to it until its handle is done.

        :param recv: as for :meth:`recv`.
        :param source: as for :meth:`recv`.
        :param tag: as for :meth:`send`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: as for :meth:`send`, on this member.
        """
        return self._launch(_receiving(recv, source, tag, "Communicator.recv_async"))


def _sending(send: Array, to: bytes | Member, tag: int, function: str) -> _Call:
    peer = _root(to, function, "to")
    source = memory_of(send, "send", function, written=False)
    pointer, owners = source.pointer, source.owners
    if is_on_gpu(source.device_type):
        host = _staging.Fetch(send).wait()
        pointer, owners = host.data_ptr(), (host,)
    native = (pointer, 0, source.elements, 0, peer, 0, _tag(tag, function), source.data_type)
    return _Call(_SEND, native, owners, names_all=False)


def _receiving(recv: Array, source: bytes | Member, tag: int, function: str) -> _Call:
    peer = _root(source, function, "source")
    target = memory_of(recv, "recv", function, written=True)
    pointer, owners, land = target.pointer, target.owners, None
    if is_on_gpu(target.device_type):
        result = _staging.room(target.elements, recv.dtype)
        pointer, owners, land = result.data_ptr(), (result,), _landing_pieces(result, recv)
    native = (0, pointer, target.elements, 0, peer, 0, _tag(tag, function), target.data_type)
    return _Call(_RECV, native, owners, land, lambda _, counts: counts[0], names_all=False)
