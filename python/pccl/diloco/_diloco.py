"""The DiLoCo helper: what it does after each inner step. The docstring of the package gives the overview."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, cast

import torch
from torch import Tensor

import pccl
from pccl._errors import argument_error
from pccl._membership import Lost, Membership
from pccl.diloco._encoding import WEIGHT_LIMIT, Exchange, make_encoding
from pccl.diloco._event import Event
from pccl.diloco._node import Node, Outcome
from pccl.diloco._norm import norm
from pccl.diloco._outer import OuterSGD
from pccl.diloco._parameters import Parameters, clean_moments
from pccl.diloco._schedule import Schedule
from pccl.diloco._transfer import Transfer

# Before the first step, peers that wait for others check at this interval whether a peer has come.
LINE_UP_POLL_S = 0.02

# The sum of the pseudo-gradients has an element that is not finite.
NOT_FINITE = -1


class DiLoCo:
    """Trains ``model`` together with the other peers of a run. ::

        diloco = DiLoCo(model, optimizer, Communicator("10.0.0.1:48148", 0), H=100)
        with diloco:                                    # joins the run; at the end applies what is still in flight
            while diloco.inner_step < 10_000:
                loss(model, next_batch()).backward()
                diloco.step()                           # instead of optimizer.step()
                optimizer.zero_grad()

    Every ``H`` inner steps the peers average their pseudo-gradients (outer parameters minus own parameters). Each peer
    applies the outer optimizer to the same average (arXiv 2311.08105). With ``overlap`` the inner steps go on during a
    transfer: with one fragment the average is applied one round later (arXiv 2505.14065). ``fragments`` sends the
    parameters in equal parts, one after the other; each is applied ``delay`` inner steps later (arXiv 2501.18512).

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

    With ``overlap``, a thread of the helper encodes, sends and decodes while the training goes on. Other work of the
    helper (pseudo-gradient, outer step) is done in ``step()``, on up to 16 cores.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        comm: pccl.Communicator | None,
        *,
        H: int = 100,  # noqa: N803 (the name in the papers)
        outer: Mapping[str, Any] | None = None,
        fragments: int = 1,
        overlap: bool = False,
        delay: int | None = None,
        mix: float | None = None,
        quantize: str | pccl.QuantizationOptions | None = None,
        min_peers: int = 1,
        check_every: int = 1,
        max_norm: float | None = None,
        weighted: bool = False,
        process_group: torch.distributed.ProcessGroup | None = None,
        tag: int = 0,
        rejoin_timeout_s: float = 600.0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """Does not touch the network. ValueError for options that cannot work.

        All peers of a group need the same ``H``, ``outer``, ``fragments``, ``delay``, ``mix``, ``quantize`` and
        ``weighted``, and models whose trainable parameters have the same names, shapes and types. A peer that differs is
        removed while it joins, with a message that shows both sides.

        :param model: has its initial parameters; when this peer joins a run, those of the run replace them.
        :param inner_optimizer: any optimizer of torch over parameters of ``model``; its state stays on this peer.
        :param comm: connected or not; the helper connects it when needed and never closes it. While the helper is in
            use, no other code may vote on it (topology, shared state). None on ranks of ``process_group`` above 0.
        :param H: inner steps per round.
        :param outer: ``lr`` (0.7), ``momentum`` (0.9), ``nesterov`` (True). ``lr`` is a number, or a function that
            returns the learning rate behind a number of finished rounds. The function must be the same on all peers,
            which the helper cannot check.
        :param fragments: number of equal parts of the parameters, 1 to H; they are sent at different times of a round.
        :param overlap: whether inner steps go on during a transfer; False: ``step()`` waits for it.
        :param delay: inner steps between the launch of a transfer and the use of its average, up to ``H // fragments``,
            which is the default with ``overlap``.
        :param mix: share of its own parameters that a peer keeps when an average arrives (alpha of arXiv 2501.18512).
            Default: 0.5 if it has trained on meanwhile for a part of a round (0 < delay < H), else 0.
        :param quantize: None (float32), ``"int8"`` (whole numbers on a common scale with error feedback, a quarter of
            the bytes), or options for the library's quantized ring (without error feedback).
        :param min_peers: ``join()`` returns when the run has begun, or when it has this many members in all groups
            together. The first peer's value counts. A run that has begun goes on with fewer.
        :param check_every: at the end of every ``check_every``-th round, all members compare their whole state, and
            those that differ are repaired; 0: only when a peer joins.
        :param max_norm: a pseudo-gradient of a fragment is not averaged if its Euclidean norm exceeds this; None: every
            finite one is averaged. Peers may use different values.
        :param weighted: whether a peer weighs as much in an average as the number of ``samples`` that it gave to
            ``step()`` since its last one. False: all peers weigh the same.
        :param process_group: the processes of this node, whose parameters DistributedDataParallel keeps equal. Rank 0
            takes part in the run for all of them, and the others receive the parameters from it. All ranks make the
            same calls; ``outer``, ``momentum``, checkpoints and ``samples`` (of the whole node) are those of rank 0.
        :param tag: the helper uses this tag of the communicator and the next one.
        :param rejoin_timeout_s: how long the helper retries a master that does not answer, before ``PCCLError``.
        :param on_event: called with an :class:`Event` during calls of the helper; must not call the helper.
        """
        if process_group is not None and process_group.rank() > 0:
            from pccl.diloco._follower import Follower

            self.__class__ = Follower
            cast(Follower, self).follow(
                model, inner_optimizer, comm, process_group, Schedule.of(H, fragments, overlap, delay)
            )
            return
        self._schedule = Schedule.of(H, fragments, overlap, delay)
        delay = self._schedule.delay
        self._mix = (0.5 if 0 < delay < H else 0.0) if mix is None else float(mix)
        if not 0 <= self._mix < 1:
            raise ValueError(f"mix is {self._mix}; use 0 (take the average's result) to below 1")
        if min_peers < 1 or check_every < 0:
            raise ValueError(f"min_peers is {min_peers} (at least 1), check_every is {check_every} (at least 0)")
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm is {max_norm}; use a number above 0, or None")
        if comm is None:
            raise argument_error("DiLoCo", "comm is None; only ranks of process_group above 0 have no communicator")
        self._max_norm = max_norm
        self._weighted = weighted
        # Weight that this peer's training since the last launch of each fragment will have.
        self._unsent = [0] * fragments
        self._inner_optimizer = inner_optimizer
        self._parameters = Parameters(model)
        size = self._parameters.size
        if size < fragments:
            raise ValueError(f"{fragments} fragments of {size} parameters; use at most one per parameter")
        self._optimizer = OuterSGD(outer)
        pinned = self._parameters.are_on_gpu()
        self._encoding = make_encoding(quantize, self._schedule.largest(size), size, pinned)
        self._outer = torch.empty(size, dtype=torch.float32, device="cpu", pin_memory=pinned)
        self._momentum = (
            torch.zeros(size, dtype=torch.float32, device="cpu") if self._optimizer.momentum > 0 else None
        )
        self._parameters.read(self._outer)

        # What else a newcomer needs. It is part of the shared state: written before a synchronization, read after it.
        self._counters = torch.zeros(4, dtype=torch.int64, device="cpu")
        self._waiting_for = min_peers  # 0 once the run has begun
        self._inner_step = 0
        self._outer_step = 0
        self._batches = 0

        options = (
            f"H={H},fragments={fragments},delay={delay},mix={self._mix!r},outer={self._optimizer},"
            f"quantize={_name(quantize)}{',weighted' if weighted else ''}"
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
        self._membership = Membership(comm, pccl.SharedState(entries), rejoin_timeout_s, "DiLoCo.join")
        self._check_every = check_every
        self._tag = tag
        self._on_event = on_event
        self._transfer: Transfer | None = None
        self._in_flight: int | None = None
        self._own_weight = 0
        self._restored: tuple[Tensor, int] | None = None  # a pseudo-gradient and its weight
        self._joined = False
        self._has_cleaned = False
        self._node: Node | None = None
        if process_group is not None and process_group.size() > 1:
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
    def world(self) -> int:
        """Members of this peer's group; 1 if it is alone or out of the run."""
        return self._membership.comm.world_size

    @property
    def outer(self) -> Tensor:
        """Outer parameters: float32, one vector in the order of ``model.named_parameters()``. Read only, not a copy."""
        return self._outer

    @property
    def momentum(self) -> Tensor | None:
        """Momentum of the outer optimizer, like ``outer``; None without momentum."""
        return self._momentum

    # ---- joining and training ----------------------------------------------------------------------------------------

    def join(self) -> None:
        """Joins the run and takes over its state. Call it before the first inner step.

        Blocks until the members admit this peer, which they do at the end of a round, and until ``min_peers`` are
        there. PCCLError if the master cannot be reached or the run refuses this peer. PCCLArgumentError if the model's
        parameters are not finite, or for a model as described at :meth:`advance`. After an error this peer is not a
        member. Does nothing if this peer has joined already.
        """
        if not self._joined:
            with self._telling_the_node():
                # All ranks begin with what rank 0 has: its initial parameters, those of the run, or a checkpoint.
                self._parameters.was_written = True
                self._join()

    def _join(self) -> None:
        while not self._joined:
            try:
                self._enter()
            except Lost as lost:
                self._joined = False
                self._emit("lost", detail=str(lost))
            except Exception:
                self._leave()
                raise

    def step(self, closure: Callable[[], float] | None = None, *, samples: int | None = None) -> Any:
        """Calls ``inner_optimizer.step(closure)``, then :meth:`advance`, which describes blocking and errors.

        :param closure: as for the optimizer.
        :param samples: as for :meth:`advance`.
        :returns: what the optimizer returned.
        """
        self._check_samples(samples)
        result = self._inner_optimizer.step(closure) if closure is not None else self._inner_optimizer.step()
        self.advance(samples=samples)
        return result

    def advance(self, *, samples: int | None = None) -> None:
        """Call it after each inner step if other code steps the inner optimizer (a gradient scaler).

        Between launches and landings it returns at once. At a launch it computes the pseudo-gradient. At a landing (the
        launch itself without ``overlap``) it blocks until the average has arrived, and applies it. At the end of a round
        it blocks until all members have reached it (a vote). If members die meanwhile, the transfer is repeated. If this
        peer is removed from the run, it joins again and blocks as :meth:`join` does. RuntimeError before ``join``.

        PCCLError for failures that a retry does not cure. PCCLArgumentError if the model no longer trains what the
        peers average: a parameter was replaced, converted, frozen or unfrozen since this helper was made. This peer has
        then left the run, so that the others do not wait for it, and the helper cannot be used again.

        :param samples: number of samples (or tokens) of this inner step, with ``weighted=True``, and only then; 0 or
            more. ValueError otherwise.
        """
        if not self._joined:
            raise RuntimeError("DiLoCo.join() comes before the first step")
        self._check_samples(samples)
        for fragment, before in enumerate(self._unsent):
            self._unsent[fragment] = 1 if samples is None else min(before + samples, WEIGHT_LIMIT - 1)
        self._inner_step += 1
        if self._node is None:
            self._advance()
        elif self._schedule.does_anything(self._inner_step):
            with self._telling_the_node():
                self._advance()

    def _advance(self) -> None:
        try:
            self._after_inner_step()
        except Lost as lost:
            self._emit("lost", detail=str(lost))
            self._joined = False
            self._join()
        except Exception:
            self._leave()
            raise

    def _telling_the_node(self) -> contextlib.AbstractContextManager[None]:
        if self._node is None:
            return contextlib.nullcontext()
        self._parameters.was_written = self._has_cleaned = False
        return self._node.telling(self._outcome, self._leave)

    def _outcome(self) -> Outcome:
        return Outcome(
            inner_step=self._inner_step,
            outer_step=self._outer_step,
            batches=self._batches,
            world=self.world,
            has_written=int(self._parameters.was_written),
            has_cleaned=int(self._has_cleaned),
        )

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
        """
        with self._telling_the_node():
            if self._transfer is not None and self._in_flight is not None:
                fragment = self._in_flight
                try:
                    self._apply(fragment, self._collect())
                except Lost as lost:
                    self._emit("lost", detail=str(lost))
            self._parameters.write(self._outer, 0)

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

        A state that was taken at the end of a round (``inner_step % H == 0``) is complete: if every peer resumes from
        its own, the run goes on as if nothing had happened. From a state that was taken elsewhere, the resumed run
        begins that round again with the parameters as they are, and drops what was in flight.
        """
        with contextlib.nullcontext() if self._transfer is None else self._transfer.paused():
            return self._copy_state()

    def _copy_state(self) -> dict[str, Any]:
        local = torch.empty_like(self._outer)
        self._parameters.read(local)
        residual = self._encoding.residual()
        in_flight = None
        if residual is not None:
            residual = residual.clone()
        if self._in_flight is not None and self._own_weight > 0 and self._schedule.ends_round(self._inner_step):
            begin, end = self._schedule.bounds(self._in_flight, self._outer.numel())
            in_flight = self._encoding.pseudo_gradient(end - begin).clone()
            if residual is not None:
                residual[begin:end] = 0  # is already in what is in flight
        return {
            "signature": self._signature,
            "outer": self._outer.clone(),
            "momentum": None if self._momentum is None else self._momentum.clone(),
            "local": local,
            "residual": residual,
            "in_flight": in_flight,
            "in_flight_weight": self._own_weight,
            "unsent": list(self._unsent),
            "inner_step": self._inner_step,
            "outer_step": self._outer_step,
            "batches": self._batches,
            "revision": self._membership.revision,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Call it before ``join``. It also sets the model. If the run is ahead of this state, ``join`` replaces it by
        the run's.

        :param state: what :meth:`state_dict` returned, on this or another peer.

        RuntimeError after ``join``; ValueError if the state is of another configuration or model.
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
        residual = self._encoding.residual()
        if residual is not None:
            residual.copy_(state["residual"])
        # States of earlier versions have no weights: each pseudo-gradient weighed 1.
        if state["in_flight"] is not None:
            self._restored = state["in_flight"].clone(), int(state.get("in_flight_weight", 1))
        self._unsent = list(state.get("unsent", self._unsent))
        self._inner_step = int(state["inner_step"])
        self._outer_step = int(state["outer_step"])
        self._batches = int(state["batches"])
        self._membership.revision = int(state["revision"])

    # ---- what happens after an inner step ----------------------------------------------------------------------------

    def _after_inner_step(self) -> None:
        step = self._inner_step
        landing, launching = self._schedule.landing(step), self._schedule.launching(step)
        if self._schedule.delay == 0:
            if landing is not None:
                own_weight = self._capture(landing)
                self._launch(landing, own_weight)
                self._apply(landing, self._collect())
            if self._schedule.ends_round(step):
                self._end_round()
            return
        weight: int | None = None
        own_weight = 0
        if self._transfer is not None and landing is not None:
            weight = self._collect()
        elif self._transfer is not None:
            self._transfer.poll()
        # Capture before the average is applied: what was learned is relative to what the round began with.
        if launching is not None:
            own_weight = self._capture(launching)
        if landing is not None and weight is not None:
            self._apply(landing, weight)
        elif launching is not None and self._schedule.delay == self._schedule.period:
            # The first round of a run: nothing lands yet. What was learned is launched now and must not count twice.
            self._adopt_outer(launching, 0.0)
        if self._schedule.ends_round(step):
            self._end_round()
        if launching is not None:
            self._launch(launching, own_weight)

    def _capture(self, fragment: int) -> int:
        """Captures what this peer learned. Returns its weight in the average: 0 if it would do harm."""
        self._parameters.check("DiLoCo.step")
        weight, self._unsent[fragment] = self._unsent[fragment], 0
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        gradient = self._encoding.pseudo_gradient(end - begin)
        self._parameters.subtract_from(self._outer[begin:end], begin, gradient)
        length = norm(gradient)
        if not math.isfinite(length):
            detail = "the pseudo-gradient is not finite"
        elif self._max_norm is not None and length > self._max_norm:
            detail = f"the norm of the pseudo-gradient is {length:.6g}, max_norm is {self._max_norm:g}"
        else:
            return weight
        gradient.zero_()
        self._begin_again(math.isfinite(length))
        logging.getLogger("pccl").warning(
            "DiLoCo: %s at inner step %d; this peer contributes nothing to this average and goes on from the outer "
            "parameters. Look at its data and learning rate",
            detail,
            self._inner_step,
        )
        self._emit("rejected", fragment, detail=detail)
        return 0

    def _begin_again(self, finite: bool) -> None:
        """Goes back to the outer parameters in all fragments: the other fragments would bring the bad numbers back with
        the next inner step. So would the moments of the inner optimizer, which are cleaned unless ``finite``."""
        self._parameters.write(self._outer, 0)
        self._unsent = [0] * len(self._unsent)
        if not finite:
            clean_moments(self._inner_optimizer)
            self._has_cleaned = True

    def _launch(self, fragment: int, weight: int, restored: bool = False) -> None:
        """A ``restored`` pseudo-gradient has its weight in it already."""
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        self._emit("launch", fragment, self._encoding.pseudo_gradient(end - begin))
        exchange = self._exchange(begin, end - begin, weight, 1 if restored else weight)
        self._own_weight = weight
        self._transfer = Transfer(
            self._membership,
            exchange,
            self._tag,
            on_retry=lambda: self._emit("retry", fragment),
            in_background=self._schedule.delay > 0,
        )
        self._in_flight = fragment

    def _exchange(self, begin: int, elements: int, weight: int, factor: int) -> Exchange:
        """With ``overlap`` the thread of the transfer runs this. Returns the sum of the weights, or NOT_FINITE."""
        weights = yield from self._encoding.exchange(begin, elements, weight, factor)
        return weights if math.isfinite(norm(self._encoding.total(elements))) else NOT_FINITE

    def _collect(self) -> int:
        """Waits for what is in flight. Returns the sum of the weights in the average."""
        transfer, fragment = self._transfer, self._in_flight
        assert transfer is not None and fragment is not None
        try:
            weight = transfer.finish()
        except Exception:
            self._transfer = self._in_flight = None
            raise
        self._transfer = self._in_flight = None
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        if weight is None:
            self._encoding.keep_own(begin, end - begin)
            return self._own_weight
        if weight == NOT_FINITE:
            # Finite numbers whose sum is not finite. All members have the same bytes here, so all of them skip it.
            logging.getLogger("pccl").warning(
                "DiLoCo: the sum of the pseudo-gradients at inner step %d is not finite; no member applies it. "
                "DiLoCo(max_norm=...) keeps a peer that diverges out of the sum",
                self._inner_step,
            )
            return 0
        return weight

    def _apply(self, fragment: int, weight: int) -> None:
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        average = self._encoding.total(end - begin)  # a sum, which the optimizer turns into the average
        if weight > 0:
            self._optimizer.step(
                self._outer.numpy()[begin:end],
                None if self._momentum is None else self._momentum.numpy()[begin:end],
                average.numpy(),
                weight,
                self._outer_step // self._schedule.fragments,
            )
            self._outer_step += 1
            if fragment + 1 == self._schedule.fragments:
                self._batches += weight * (1 if self._weighted else self._schedule.period)
        self._adopt_outer(fragment, self._mix)
        self._emit("outer_step" if weight > 0 else "skipped", fragment, average)

    def _adopt_outer(self, fragment: int, keep: float) -> None:
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        self._parameters.write(self._outer[begin:end], begin, keep)

    def _end_round(self) -> None:
        admitted = self._membership.admit()
        if admitted:
            self._emit("members")
        rounds = self._inner_step // self._schedule.period
        if admitted or (self._check_every > 0 and rounds % self._check_every == 0):
            self._write_counters()
            if self._membership.synchronize():
                self._read_counters()
                self._emit("repaired")

    def _leave(self) -> None:
        """Leaves the run when the helper cannot go on. As a member it would make all others wait."""
        self._joined = False
        with contextlib.suppress(pccl.PCCLError):
            self._membership.comm.abort()
        self._forget_transfer()

    def _forget_transfer(self) -> None:
        """What was in flight is lost. Its thread ends first, because it uses the buffers of the encoding."""
        if self._transfer is not None:
            self._transfer.abort()
        self._transfer = self._in_flight = None

    def _enter(self) -> None:
        self._parameters.check("DiLoCo.join")
        if not math.isfinite(norm(self._outer)):
            raise argument_error(
                "DiLoCo.join",
                "the model has parameters that are not finite, and a run may begin with them; initialize it",
            )
        self._forget_transfer()

        def position() -> None:
            begin = self._schedule.round_begin(self._inner_step)
            if begin != self._inner_step:
                self._inner_step = begin
                self._restored = None
            self._write_counters()

        received = self._membership.enter(position)
        while True:
            self._read_counters()
            if received:
                self._forget_own()
            if self._waiting_for <= self._membership.comm.global_world_size:
                break
            # All peers that wait see the same two numbers after the same synchronization, so they go on together.
            time.sleep(LINE_UP_POLL_S)
            self._membership.update_topology()
            self._write_counters()
            received = self._membership.synchronize()
        self._waiting_for = 0
        self._joined = True
        self._emit("joined", detail="received the state of the run" if received else "")
        launching = self._schedule.launching(self._inner_step)
        if self._schedule.delay > 0 and self._schedule.ends_round(self._inner_step) and launching is not None:
            self._contribute_to_earlier_round(launching)

    def _contribute_to_earlier_round(self, fragment: int) -> None:
        """The members launch what they learned before this peer came, and need it for the reduction."""
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        gradient = self._encoding.pseudo_gradient(end - begin)
        weight = 0
        if self._restored is not None and self._restored[0].numel() == gradient.numel():
            gradient.copy_(self._restored[0])
            weight = self._restored[1]
        else:
            gradient.zero_()
        self._restored = None
        self._launch(fragment, weight, restored=True)

    def _forget_own(self) -> None:
        self._parameters.write(self._outer, 0)
        self._restored = None
        self._unsent = [0] * len(self._unsent)
        residual = self._encoding.residual()
        if residual is not None:
            residual.zero_()

    def _write_counters(self) -> None:
        counters = (self._waiting_for, self._inner_step, self._outer_step, self._batches)
        self._counters.copy_(torch.tensor(counters, dtype=torch.int64, device="cpu"))

    def _read_counters(self) -> None:
        self._waiting_for, self._inner_step, self._outer_step, self._batches = self._counters.tolist()

    def _emit(self, kind: str, fragment: int | None = None, tensor: Tensor | None = None, detail: str = "") -> None:
        if self._on_event is not None:
            event = Event(kind, self._inner_step, self._outer_step, self.world, fragment, tensor, detail)
            self._on_event(event)


def _name(quantize: str | pccl.QuantizationOptions | None) -> str:
    if isinstance(quantize, pccl.QuantizationOptions):
        return f"{int(quantize.quantized_datatype)}/{int(quantize.algorithm)}"
    return str(quantize)
