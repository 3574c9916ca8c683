"""The DiLoCo helper: its options, calls and checkpoints. The docstring of the package gives the overview."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, cast

import torch
from torch import Tensor

import pccl
from pccl._errors import argument_error
from pccl._membership import Lost, Membership
from pccl.diloco._choice import Quantize, make_encoding, name_of
from pccl.diloco._encoding import WEIGHT_LIMIT, zeros
from pccl.diloco._event import Event
from pccl.diloco._node import Node
from pccl.diloco._outer import OuterSGD
from pccl.diloco._parameters import Parameters, Parts
from pccl.diloco._replica import replica_of
from pccl.diloco._replica_membership import ReplicaMembership
from pccl.diloco._schedule import Schedule
from pccl.diloco._training import Training


class DiLoCo(Training):
    """Trains ``model`` together with the other peers of a run. ::

        diloco = DiLoCo(model, optimizer, Communicator("10.0.0.1:48148", 0), H=100)
        with diloco:                                    # joins the run; at the end applies what is still in flight
            while diloco.inner_step < 10_000:
                loss(model, next_batch()).backward()
                diloco.step()                           # instead of optimizer.step()
                optimizer.zero_grad()

    Every ``H`` inner steps the peers average their pseudo-gradients (outer parameters minus own parameters). Each peer
    applies the outer optimizer to the same average (arXiv 2311.08105). With ``overlap`` the inner steps go on during a
    transfer, and its average is applied ``delay`` inner steps later: with ``delay=H`` one round later (arXiv
    2505.14065). ``fragments`` sends the parameters in parts, one after the other (arXiv 2501.18512).

    Peers may join, die, stop and return at any time, and the master may restart. A peer that is alone trains on alone.
    A peer whose parameters are no longer finite takes part with weight 0 and starts again from the outer parameters.
    After the same ``outer_step``, all members hold the same bytes of outer parameters and momentum. A newcomer is
    admitted at the end of a round, when nothing is in flight. It receives outer parameters, momentum and the position
    in the schedule, and starts from the outer parameters. In an average of what the others learned before it came, it
    takes part with weight 0.

    Not thread-safe: one thread makes all calls, and no other thread trains the model meanwhile. Parameters may be of
    any real floating-point type, on the CPU or on a CUDA device. Outer parameters, momentum and buffers are on the CPU:
    16 bytes per parameter; with ``"int8"`` 22; fewer with fragments. If the model is on a GPU when the helper is made,
    outer parameters and pseudo-gradient are in page-locked memory, whose size torch may round up. Frozen parameters and
    buffers of the model are left alone. The helper keeps the parameter objects: they may get other memory
    (``parameter.data = ...``, another device), but must stay the same objects, of the same shape and type.

    With ``overlap``, a thread of the helper encodes, sends and decodes while the training goes on. If ``delay`` is below
    ``H``, and this peer is not a replica of several processes, that thread also computes the pseudo-gradient. If
    ``delay`` is below ``H // fragments`` too, it makes the outer step. Otherwise ``step()`` does so, on up to 16 cores. ``on_event`` makes ``step()`` wait for the
    pseudo-gradient.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        comm: pccl.Communicator | None,
        *,
        H: int = 100,  # noqa: N803 (the name in the papers)
        outer: Mapping[str, Any] | None = None,
        fragments: int | Parts = 1,
        overlap: bool = False,
        delay: int | None = None,
        eager: bool = False,
        mix: float | None = None,
        quantize: Quantize = None,
        min_peers: int = 1,
        check_every: int = 1,
        max_norm: float | None = None,
        weighted: bool = False,
        process_group: torch.distributed.ProcessGroup | None = None,
        tag: int = 0,
        rejoin_timeout_s: float = 600.0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """Does not touch the network, but for a replica of several processes. ValueError for options that cannot work.

        All peers of a group need the same ``H``, ``outer``, ``fragments``, ``delay``, ``eager``, ``mix``, ``quantize``
        and ``weighted``, and models whose trainable parameters have the same names, shapes and types. A peer that
        differs is removed while it joins, with a message that shows both sides.

        :param model: has its initial parameters; when this peer joins a run, those of the run replace them.
        :param inner_optimizer: any optimizer of torch over parameters of ``model``; its state stays on this peer.
        :param comm: connected or not; the helper connects it when needed and never closes it. While the helper is in
            use, no other code may vote on it (topology, shared state). With ``process_group``: that of rank 0, and None
            on its other ranks; for a sharded model one on each rank, of a gang, as
            :func:`pccl.torch.replica_communicator` makes it.
        :param H: inner steps per round.
        :param outer: ``lr`` (0.7), ``momentum`` (0.9), ``nesterov`` (True). ``lr`` is a number, or a function that
            returns the learning rate behind a number of finished rounds. The function must be the same on all peers,
            which the helper cannot check. With ``overlap``, another thread may call it.
        :param fragments: number of equal parts of the parameters, 1 to H; they are sent at different times of a round.
            Or a list of the modules of each part, as objects or by name (:func:`strided` makes one of a model's
            blocks); parameters of none of them go with the first part.
        :param overlap: whether inner steps go on during a transfer; False: ``step()`` waits for it.
        :param delay: inner steps between the launch of a transfer and the use of its average, up to ``H // fragments``.
            Default with ``overlap``: 5, or ``H // fragments`` if that is less; ``H`` with ``eager``.
        :param eager: one step behind (``overlap=True``, one fragment, ``delay=H``), a round does not begin at the outer
            parameters, but where they will be if the other peers have learned nothing: this peer's share of the average
            in flight is applied at once (arXiv 2502.12996). Takes 4 bytes more per parameter.
        :param mix: share of its own parameters that a peer keeps when an average arrives (alpha of arXiv 2501.18512).
            Default: 0.5 if it has trained on meanwhile for a part of a round (0 < delay < H), else 0.
        :param quantize: None (float32), ``"int8"`` (whole numbers on a common scale with error feedback, a quarter of
            the bytes), :class:`TopK` (only the largest elements, with error feedback; see :class:`SparseLoCo`), or
            options for the library's quantized ring (without error feedback).
        :param min_peers: ``join()`` returns when the run has begun, or when it has this many members in all groups
            together. The first peer's value counts. A run that has begun goes on with fewer. A replica of several
            processes counts as one.
        :param check_every: at the end of every ``check_every``-th round, all members compare their whole state, and
            those that differ are repaired; 0: only when a peer joins.
        :param max_norm: a pseudo-gradient of a fragment is not averaged if its Euclidean norm exceeds this; None: every
            finite one is averaged. Peers may use different values, but not the processes of a replica.
        :param weighted: whether a peer weighs as much in an average as the number of ``samples`` that it gave to
            ``step()`` since its last one. False: all peers weigh the same.
        :param process_group: the processes of this peer; all make the same calls. If only rank 0 has a communicator
            (a node), DistributedDataParallel keeps their parameters equal. Rank 0 takes part in the run for all of them,
            and the others receive the parameters from it; ``outer``, ``momentum`` and checkpoints are those of rank 0.
            If all of them have one (a replica, whose parameters may be DTensors), each takes part for its own part of
            the parameters, and has its own ``outer``, ``momentum`` and checkpoint. The constructor is then a collective
            of the group. In both, ``samples`` (of all ranks together) are those of rank 0.
        :param tag: the helper uses this tag of the communicator and the next one.
        :param rejoin_timeout_s: how long the helper retries a master that does not answer, before ``PCCLError``.
        :param on_event: called with an :class:`Event` during calls of the helper; must not call the helper.
        """
        parts = None if isinstance(fragments, int) else fragments
        count = fragments if isinstance(fragments, int) else len(fragments)
        if process_group is not None and process_group.rank() > 0 and (comm is None or comm._gang is None):
            from pccl.diloco._follower import Follower

            self.__class__ = Follower
            cast(Follower, self).follow(
                model, inner_optimizer, comm, process_group, Schedule.of(H, count, overlap, delay, eager), parts
            )
            return
        self._schedule = Schedule.of(H, count, overlap, delay, eager)
        delay = self._schedule.delay
        self._mix = (0.5 if 0 < delay < H else 0.0) if mix is None else float(mix)
        if not 0 <= self._mix < 1:
            raise ValueError(f"mix is {self._mix}; use 0 (take the average's result) to below 1")
        if eager and (self._mix > 0 or not overlap or count != 1 or delay != H):
            raise ValueError(
                "eager goes with overlap=True, one fragment, delay=H and no mix: otherwise a round does not begin at "
                "the outer parameters"
            )
        if min_peers < 1 or check_every < 0:
            raise ValueError(f"min_peers is {min_peers} (at least 1), check_every is {check_every} (at least 0)")
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm is {max_norm}; use a number above 0, or None")
        self._max_norm = max_norm
        self._weighted = weighted
        self._unsent = [0] * count
        self._inner_optimizer = inner_optimizer
        self._replica = None
        self._origin = 0
        if process_group is not None and comm is not None and comm._gang is not None:
            self._replica, self._parameters = replica_of(process_group, comm, model, parts, count)
        else:
            self._parameters = Parameters(model, parts)
        if comm is None:
            raise argument_error("DiLoCo", "comm is None; only ranks of process_group above 0 have no communicator")
        size = self._parameters.size
        if size < count:
            raise ValueError(f"{count} fragments of {size} parameters; use at most one per parameter")
        self._bounds = (
            [self._schedule.bounds(fragment, size) for fragment in range(count)]
            if parts is None
            else self._parameters.bounds
        )
        largest = max(end - begin for begin, end in self._bounds)
        self._optimizer = OuterSGD(outer)
        pinned = self._parameters.are_on_gpu()
        self._encoding = make_encoding(quantize, largest, size, pinned)
        self._outer = zeros(size, pinned)
        self._momentum = (
            torch.zeros(size, dtype=torch.float32, device="cpu") if self._optimizer.momentum > 0 else None
        )
        self._parameters.read(self._outer)
        self._began = self._outer.clone() if eager else None
        self._counters = torch.zeros(5, dtype=torch.int64, device="cpu")
        self._waiting_for = min_peers
        self._inner_step = 0
        self._outer_step = 0
        self._batches = 0

        options = (
            f"H={H},fragments={count},delay={delay},mix={self._mix!r},outer={self._optimizer},"
            f"quantize={name_of(quantize)}"
            f"{',weighted' if weighted else ''}{',eager' if eager else ''}"
        )
        self._signature = f"{options},parameters={self._parameters}"
        # Options and parameters are part of names of entries, so that peers with other ones cannot take part. There are
        # two such names, because the library shows only the beginning of a long one.
        entries = [
            pccl.TensorInfo.from_torch(self._counters, f"diloco.counters({options})"),
            pccl.TensorInfo.from_torch(self._outer, f"diloco.outer({self._parameters})"),
        ]
        if self._momentum is not None:
            entries.append(pccl.TensorInfo.from_torch(self._momentum, "diloco.momentum"))
        state = pccl.SharedState(entries)
        self._membership = (
            Membership(comm, state, rejoin_timeout_s, "DiLoCo.join")
            if self._replica is None
            else ReplicaMembership(
                comm, state, rejoin_timeout_s, "DiLoCo.join", self._replica, lambda: self._counters[1:].tolist()
            )
        )
        self._check_every = check_every
        self._tag = tag
        self._on_event = on_event
        self._transfer = None
        self._in_flight = None
        self._own_weight = 0
        self._is_finite = True
        self._captured = self._stepped = None
        self._restored = None
        self._joined = False
        self._has_cleaned = False
        self._node = None
        if process_group is not None and process_group.size() > 1 and self._replica is None:
            self._node = Node(process_group, self._parameters.all)

    # ---- where the training stands -----------------------------------------------------------------------------------

    @property
    def inner_step(self) -> int:
        """Inner steps since the beginning of the run. Equal on all peers at the end of a round; jumps when this peer
        joins."""
        return self._inner_step

    @property
    def outer_step(self) -> int:
        """Averages applied since the beginning of the run; one per fragment and round."""
        return self._outer_step

    @property
    def batches(self) -> int:
        """The data cursor of the run: number of inner steps of all peers together that are in the outer parameters;
        with ``weighted`` the number of samples."""
        return self._batches

    @property
    def outer(self) -> Tensor:
        """Outer parameters: float32, one vector in the order of ``model.named_parameters()``; if ``fragments`` lists
        modules, one fragment after the other. In a replica of several processes, those for which this process takes
        part. Read only, not a copy. With ``overlap`` they may change between a launch and a landing, in another thread;
        :meth:`state_dict` returns a copy of one moment."""
        return self._outer

    @property
    def momentum(self) -> Tensor | None:
        """Momentum of the outer optimizer, like ``outer``; None without momentum."""
        return self._momentum

    # ---- joining and training ----------------------------------------------------------------------------------------

    def join(self) -> None:
        """Joins the run and takes over its state. Call it before the first inner step.

        Blocks until the members admit this peer, which they do at the end of a round, and until ``min_peers`` are
        there. After an error this peer is not a member. Does nothing if this peer has joined already.

        :raises PCCLError: the master cannot be reached, the run refuses this peer, or other peers have begun the run
            anew and are behind this peer, which then keeps its state.
        :raises PCCLArgumentError: the model's parameters are not finite, or a model as described at :meth:`advance`.
        """
        if not self._joined:
            with self._together():
                # All ranks begin with what rank 0 has: its initial parameters, those of the run, or a checkpoint.
                self._parameters.was_written = True
                self._join()

    def step(self, closure: Callable[[], float] | None = None, *, samples: int | None = None) -> Any:
        """Calls ``inner_optimizer.step(closure)``, then :meth:`advance`, and blocks as that does.

        :param closure: as for the optimizer.
        :param samples: as for :meth:`advance`.
        :returns: what the optimizer returned.
        :raises PCCLError: and others, as :meth:`advance`.
        """
        self._check_samples(samples)
        result = self._inner_optimizer.step(closure) if closure is not None else self._inner_optimizer.step()
        self.advance(samples=samples)
        return result

    def advance(self, *, samples: int | None = None) -> None:
        """Call it after each inner step if other code steps the inner optimizer (a gradient scaler).

        Between launches and landings it returns at once. At a launch it copies the parameters, or computes the
        pseudo-gradient. A pseudo-gradient that is rejected resets the model in the call that notices it, at the landing
        at the latest. At a landing (the launch itself without ``overlap``) it blocks until the average has arrived, and
        applies it. At the end of a round it blocks until all members have reached it (a vote). If members die meanwhile,
        the transfer is repeated. If this peer is removed from the run, it joins again and blocks as :meth:`join` does.

        If a signal handler raises (Ctrl-C), this peer leaves the run, and what was in flight is lost. :meth:`join` joins
        again.

        :param samples: number of samples (or tokens) of this inner step, with ``weighted=True``, and only then; 0 or
            more.
        :raises PCCLError: a failure that a retry does not cure.
        :raises PCCLArgumentError: the model no longer trains what the peers average: a parameter was replaced,
            converted, frozen or unfrozen since this helper was made. This peer has then left the run, so that the
            others do not wait for it, and the helper cannot be used again.
        :raises RuntimeError: before ``join``. In a node or replica of several processes: another one of them failed.
        :raises torch.distributed.DistBackendError: another process of this node or replica is gone; after the time-out
            of ``process_group`` at the latest.
        :raises ValueError: ``samples`` does not fit ``weighted``.
        """
        if not self._joined:
            raise RuntimeError("DiLoCo.join() comes before the first step")
        self._check_samples(samples)
        for fragment, before in enumerate(self._unsent):
            self._unsent[fragment] = 1 if samples is None else min(before + samples, WEIGHT_LIMIT - 1)
        self._inner_step += 1
        if self._node is None and self._replica is None:
            self._advance()
        elif self._schedule.does_anything(self._inner_step):
            with self._together():
                self._advance()

    def _check_samples(self, samples: int | None) -> None:
        if (samples is not None) != self._weighted:
            raise ValueError(
                "samples goes with DiLoCo(weighted=True)"
                if samples is not None
                else "DiLoCo(weighted=True) needs the samples of each inner step: step(samples=...)"
            )
        if samples is not None and not 0 <= samples < WEIGHT_LIMIT:
            raise ValueError(f"samples is {samples}; use 0 to {WEIGHT_LIMIT - 1}")

    def finish(self) -> None:
        """Applies what is in flight and sets the model to the outer parameters, which are the result of the training.

        Blocks until the average has arrived; makes no vote. All members should end at the same step; otherwise those
        that stay go on without this peer.

        :raises PCCLError: and others, as :meth:`advance`.
        """
        with self._together():
            if self._transfer is not None and self._in_flight is not None:
                fragment = self._in_flight
                try:
                    self._apply(fragment, self._collect())
                except Lost as lost:
                    self._emit("lost", detail=str(lost))
            self._write_all_outer()
            # The model no longer has what it learned since the last launches.
            self._unsent = [0] * len(self._unsent)

    def __enter__(self) -> DiLoCo:
        self.join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the inner optimizer's state, as copies. The model's trainable parameters are in it.
        Waits for no other peer.

        A state that was taken at the end of a round (``inner_step % H == 0``) is complete: if every peer resumes from
        its own, the run goes on as if nothing had happened. From a state that was taken elsewhere, the resumed run
        begins that round again with the parameters as they are, and drops what was in flight.
        """
        with contextlib.nullcontext() if self._transfer is None else self._transfer.paused():
            return self._copy_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Call it before ``join``. It also sets the model. If the run is ahead of this state, ``join`` replaces it by
        the run's. If the run is another one and is behind this state, ``join`` raises. Waits for no other peer.

        :param state: what :meth:`state_dict` returned, on this or another peer.
        :raises RuntimeError: after ``join``.
        :raises ValueError: the state is of another configuration or model.
        """
        if self._joined:
            raise RuntimeError("load_state_dict comes before DiLoCo.join(): the run decides what its members hold")
        if state["signature"] != self._signature:
            raise ValueError(f"the state is of {state['signature']}, this helper of {self._signature}")
        if state["outer"].numel() != self._outer.numel():
            raise ValueError(f"the state has {state['outer'].numel()} parameters, the model {self._outer.numel()}")
        self._outer.copy_(state["outer"])
        if self._momentum is not None:
            self._momentum.copy_(state["momentum"])
        self._parameters.write(state["local"], 0)
        if self._began is not None:
            self._began.copy_(state["began"])
        residual = self._encoding.residual()
        if residual is not None:
            residual.copy_(state["residual"])
        # States of earlier versions have no weights: each pseudo-gradient weighed 1.
        in_flight = state["in_flight"]
        self._restored = (
            None if in_flight is None else (in_flight.clone(), int(state.get("in_flight_weight", 1)))
        )
        self._unsent = list(state.get("unsent", self._unsent))
        self._inner_step = int(state["inner_step"])
        self._outer_step = int(state["outer_step"])
        self._batches = int(state["batches"])
        self._membership.revision = int(state["revision"])
        self._origin = int(state.get("origin", 0))
