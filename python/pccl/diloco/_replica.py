"""Replicas of several processes that all take part in the run, each for its own part of the model.

The processes of a replica are a gang: one decision of the master admits or removes all of them. But a process may see
that decision one call later than another, and a reduction of one part may have failed for all its members while that of
another part has succeeded. So after each such call the processes tell each other how it went, and go on alike.

That suffices for all replicas to go on alike: the members of a part's group see the same outcomes, and each replica has
a process in each group. So all replicas compare the same outcomes.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Generator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from pccl._communicator import Communicator
from pccl._errors import PCCLError
from pccl._membership import Lost
from pccl.diloco._node import broadcast_together
from pccl.diloco._parameters import Parameters, Parts, pieces_of, tensors_of
from pccl.diloco._pieces import Holders, Key, Piece, deal, local_part, owned_by

# How a call has ended. The worst (largest) of a replica counts.
_FINE, _LOST, _FAILED = 0, 1, 2
# Numbers of a message: how a call has ended, the number of replicas, and those of the caller. All messages are equally
# long, because a process that has failed does not know which message the others expect.
_HEAD = 2
_NUMBERS = 8


class Replica:
    """What the processes of a replica tell each other. All make the same calls in the same order. Not thread-safe."""

    def __init__(self, group: dist.ProcessGroup, messages: dist.ProcessGroup, comm: Communicator) -> None:
        """A collective of ``group``. ``messages``: a group of the same processes that has CPU tensors."""
        self.rank = dist.get_rank(messages)
        self.size = dist.get_world_size(messages)
        self.replicas = 1
        """At the last message; the same in all processes of this replica."""
        self._group = group
        self._messages = messages
        self._comm = comm
        self._is_over = False
        # By holders: their process group, and what each owner among them sends.
        self._shared: list[tuple[dist.ProcessGroup, int, list[Tensor]]] = []

    # ---- outcomes

    def settle(self, error: Exception | None = None, *numbers: int) -> list[list[int]]:
        """Blocks until all processes of the replica have called it, for the time-out of the process group at most.

        :param error: how the last call has ended here; None: it succeeded.
        :param numbers: signed, of 64 bits; up to 8.
        :returns: the numbers of each process, by rank, if the call succeeded in all of them.
        :raises Lost: a process is out of the run, and now this one is, too.
        :raises DistBackendError: a process is gone, or does not answer within the time-out of the group.
        :raises Exception: ``error``, or one that says that another process has failed.
        """
        if self._is_over:
            raise error or RuntimeError("pccl: this replica has failed before; end its processes and start it again")
        how = _FINE if error is None else _LOST if isinstance(error, Lost) else _FAILED
        rows = self._tell(how, numbers)
        worst = max(row[0] for row in rows)
        self._is_over = worst == _FAILED
        if how == worst and error is not None:
            raise error
        if worst == _FAILED:
            raise RuntimeError("pccl: another process of this replica could not go on; see its error")
        if worst == _LOST:
            with contextlib.suppress(PCCLError):
                self._comm.abort()
            raise Lost("another process of this replica is out of the run")
        # They may have read it before and after a death.
        self.replicas = max(1, min(row[1] for row in rows))
        return [row[_HEAD : _HEAD + len(numbers)] for row in rows]

    def tell_failure(self) -> None:
        """For a process that cannot go on. The others learn it from their next message."""
        if not self._is_over:
            self._is_over = True
            with contextlib.suppress(Exception):  # the failure that is raised is the first one
                self._tell(_FAILED, ())

    @contextlib.contextmanager
    def together(self, has_written: Callable[[], bool], on_broken: Callable[[], None]) -> Generator[None]:
        """At its end the processes learn whether one has failed. Then those that hold the same parameters receive them
        from their owner. ``on_broken`` is called if another process has failed or is gone."""
        try:
            yield
        except Exception:
            self.tell_failure()
            raise
        try:
            if any(written for (written,) in self.settle(None, int(has_written()))):
                self._share()
        except Exception:
            on_broken()
            raise

    def agree_on(self, weight: int, length: float) -> tuple[int, float]:
        """Returns the weight of rank 0, and the length of the vector whose parts have the lengths given."""
        rows = self.settle(None, weight, _bits(length))
        lengths = [_number(row[1]) for row in rows]
        return rows[0][0], math.hypot(*lengths) if all(map(math.isfinite, lengths)) else math.inf

    def _tell(self, how: int, numbers: tuple[int, ...]) -> list[list[int]]:
        own = torch.zeros(_HEAD + _NUMBERS, dtype=torch.int64, device="cpu")
        own[: _HEAD + len(numbers)] = torch.tensor([how, self._comm.world_gangs, *numbers], device="cpu")
        rows = [torch.empty_like(own) for _ in range(self.size)]
        try:
            dist.all_gather(rows, own, group=self._messages)
        except RuntimeError as error:
            raise self._broken(error) from error
        return [row.tolist() for row in rows]

    def _broken(self, error: RuntimeError) -> dist.DistBackendError:
        self._is_over = True
        with contextlib.suppress(PCCLError):
            self._comm.abort()
        return dist.DistBackendError(
            "pccl: another process of this replica is gone or does not answer; this one has left the run. A replica is "
            f"whole or not there: end this process, too, and start the replica again ({error})"
        )

    # ---- parameters that several processes hold

    def survey(self, pieces: list[Piece], peer_group: int, error: str) -> list[list[Piece]]:
        """Returns the pieces of all processes, by rank.

        :param error: why this process cannot take part; "" if it can.
        :raises ValueError: a process cannot take part, or two are in the same peer group.
        """
        told: list[tuple[str, int, list[Piece]]] = [("", 0, []) for _ in range(self.size)]
        try:
            dist.all_gather_object(told, (error, peer_group, pieces), group=self._messages)
        except RuntimeError as failure:
            raise self._broken(failure) from failure
        for rank, (cause, _, _) in enumerate(told):
            if cause:
                raise ValueError(cause if cause == error else f"process {rank} of this replica: {cause}")
        groups = [group for _, group, _ in told]
        if len(set(groups)) < self.size:
            raise ValueError(
                f"the processes of this replica are in the peer groups {groups}; give each another one, as "
                "pccl.torch.replica_communicator does"
            )
        return [theirs for _, _, theirs in told]

    def share_among(self, parameters: Mapping[Key, Tensor], dealt: dict[Key, Holders]) -> None:
        """Prepares to keep parameters equal in the processes that hold them. ``parameters``: those of this process."""
        several = {key: holders for key, holders in dealt.items() if len(holders.ranks) > 1}
        groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        # Sorted, so that no two processes wait for each other with different groups.
        for ranks in sorted({holders.ranks for holders in several.values()}):
            if self.rank not in ranks:
                continue
            if len(ranks) == self.size:
                groups[ranks] = self._group
                continue
            made = dist.new_group(
                [dist.get_global_rank(self._group, rank) for rank in ranks],
                backend=str(dist.get_backend_config(self._group)),
                use_local_synchronization=True,
            )
            assert isinstance(made, dist.ProcessGroup)
            groups[ranks] = made
        parts: dict[tuple[tuple[int, ...], int], list[Tensor]] = {}
        for key, holders in sorted(several.items()):
            if key in parameters:
                parts.setdefault((holders.ranks, holders.owner), []).append(parameters[key])
        self._shared = [
            (groups[ranks], dist.get_global_rank(self._group, owner), tensors)
            for (ranks, owner), tensors in sorted(parts.items(), key=lambda one: one[0])
        ]

    def _share(self) -> None:
        try:
            for group, owner, tensors in self._shared:
                broadcast_together([local_part(tensor) for tensor in tensors], owner, group)
        except RuntimeError as error:
            raise self._broken(error) from error


def replica_of(
    process_group: dist.ProcessGroup, comm: Communicator, model: torch.nn.Module, parts: Parts | None, fragments: int
) -> tuple[Replica, Parameters]:
    """Returns the replica of this process, and the parameters for which it takes part in the run. A collective of the
    process group.

    :raises ValueError: in all processes of the replica, if one of them cannot take part.
    """
    from pccl.torch._replica import group_for_messages

    replica = Replica(process_group, group_for_messages(process_group), comm)
    pieces: list[Piece] = []
    error = ""
    gang = comm._gang
    if gang is None or gang[1:] != (replica.size, replica.rank):
        error = (
            f"the communicator is at place {gang[2]} of a gang of {gang[1]}, and this process has rank "
            f"{replica.rank} of {replica.size} in process_group; use pccl.torch.replica_communicator()"
            if gang is not None
            else "the communicator has no gang"
        )
    elif not comm._settings["gang_timeout_ms"]:
        error = "the communicator has no gang_timeout_s, so it would wait without limit for a process that is gone"
    else:
        try:
            pieces = pieces_of(model, parts)
        except ValueError as failure:
            error = str(failure)
    everyone = replica.survey(pieces, comm._group, error)
    dealt = deal(everyone)
    for rank, theirs in enumerate(everyone):
        owned = owned_by(rank, theirs, dealt)
        elements = sum(piece.elements for piece in owned)
        missing = set() if parts is None else set(range(fragments)) - {piece.part for piece in owned if piece.elements}
        if elements < fragments or missing:
            which = f"no parameters of fragment {min(missing)}" if missing else f"{elements} parameters"
            raise ValueError(
                f"process {rank} of this replica would take part with {which}, and there are {fragments} fragments; "
                "use fewer or larger fragments, or fewer processes for each replica"
            )
    own = {piece.name: piece.label for piece in owned_by(replica.rank, everyone[replica.rank], dealt)}
    parameters = Parameters(model, parts, own)
    tensors = tensors_of(model)
    held = {piece.key: tensors[piece.name] for piece in everyone[replica.rank]}
    replica.share_among(held, dealt)
    return replica, parameters


def _bits(number: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits


def _number(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return number
