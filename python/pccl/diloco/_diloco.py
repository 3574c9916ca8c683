"""The helper itself: what happens after each inner step. See the package for the whole picture."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

import pccl
from pccl._errors import argument_error
from pccl.diloco._encoding import make_encoding
from pccl.diloco._membership import Lost, Membership
from pccl.diloco._outer import OuterSGD
from pccl.diloco._parameters import Parameters
from pccl.diloco._schedule import Schedule
from pccl.diloco._transfer import Transfer

# Elements of which one pass takes the norm: the pass makes a copy in 64 bits.
NORM_CHUNK = 1 << 20

# Pace at which peers that wait for others before the first step look whether somebody came.
LINE_UP_POLL_S = 0.02


@dataclass(frozen=True)
class Event:
    """Something that happened to the outer optimization, for logs and tests.

    :param kind: ``"joined"`` (entered the run, also after ``"lost"``), ``"members"`` (newcomers were admitted),
        ``"launch"`` (``tensor``: the pseudo-gradient), ``"rejected"`` (what this peer learned is not finite or longer
        than ``max_norm``: it is not averaged, and the model was set to the outer parameters), ``"retry"`` (a reduction
        failed and is repeated), ``"outer_step"`` (``tensor``: the average that was applied), ``"skipped"`` (no member
        had anything to average, or the sum is not finite),
        ``"repaired"`` (our state differed from the group's and was overwritten), ``"lost"`` (we were removed or the
        master went; joining again follows).
    :param inner_step: :attr:`DiLoCo.inner_step` at that time.
    :param outer_step: :attr:`DiLoCo.outer_step` at that time.
    :param world: members of the group at that time.
    :param fragment: which part of the parameters, from 0; None where it is not about one.
    :param tensor: float32, one vector; valid during the callback.
    :param detail: a cause, in words.
    """

    kind: str
    inner_step: int
    outer_step: int
    world: int
    fragment: int | None = None
    tensor: Tensor | None = None
    detail: str = ""


class DiLoCo:
    """Trains ``model`` together with the other peers of a run. ::

        diloco = DiLoCo(model, optimizer, Communicator("10.0.0.1:48148", 0), H=100)
        with diloco:                                    # joins the run; at the end applies what is still in flight
            while diloco.inner_step < 10_000:
                loss(model, next_batch()).backward()
                diloco.step()                           # instead of optimizer.step()
                optimizer.zero_grad()

    Every ``H`` inner steps the peers average their pseudo-gradients (outer parameters minus own parameters) and each
    applies the outer optimizer to the same average (arXiv 2311.08105). ``overlap`` lets the inner steps go on
    meanwhile: with one fragment the average is applied one round later (arXiv 2505.14065); ``fragments`` sends the
    parameters in equal parts one after the other and ``delay`` sets how many inner steps later each is applied (arXiv
    2501.18512).

    Peers may come, die, stop and return at any time, and the master may restart; a peer that is alone trains on alone.
    A peer whose parameters are no longer finite contributes with weight 0 and begins again from the outer parameters.
    All members hold the same bytes of outer parameters and momentum after the same ``outer_step``. Who comes enters at
    the end of a round, when nothing is in flight: it receives outer parameters, momentum and the position in the
    schedule, begins with the outer parameters as its own, and contributes with weight 0 to what the others had computed
    before it came.

    Not thread-safe: one thread makes all calls, and the model is not trained by another one meanwhile. Parameters may
    be of any real floating-point type. They may be on any device, but that is tested on the CPU only. Outer parameters,
    momentum and buffers are on the CPU: 16 bytes per parameter, with ``"int8"`` 22, and 26 while it encodes; fewer with
    fragments. Frozen parameters and buffers of the model are left alone. The helper keeps the parameters themselves:
    they may be given other memory (``parameter.data = ...``, another device), and must stay the same objects of one
    shape and type.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        comm: pccl.Communicator,
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
        tag: int = 0,
        rejoin_timeout_s: float = 600.0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """Touches no network; ValueError for options that cannot work.

        All peers of a group need the same ``H``, ``outer``, ``fragments``, ``delay``, ``mix`` and ``quantize``, and
        models whose trainable parameters have the same names, shapes and types: one that differs is removed while it
        joins, with a message that shows both.

        :param model: has its initial parameters; they are replaced by the run's when this peer joins one.
        :param inner_optimizer: any of torch over parameters of ``model``; its state stays on this peer.
        :param comm: connected or not; the helper connects it where needed and never closes it. While the helper is in
            use, no other code votes on it (topology, shared state).
        :param H: inner steps of a round.
        :param outer: ``lr`` (0.7), ``momentum`` (0.9), ``nesterov`` (True).
        :param fragments: equal parts of the parameters, 1 to H, sent at different times of a round.
        :param overlap: whether inner steps go on during a transfer; False: ``step()`` waits for it.
        :param delay: inner steps between the launch and the use of an average, up to ``H // fragments``, which is the
            default with ``overlap``.
        :param mix: how much of its own parameters a peer keeps when an average arrives (alpha of arXiv 2501.18512).
            Default: 0.5 where it has trained on meanwhile for a part of a round (0 < delay < H), else 0.
        :param quantize: None (float32), ``"int8"`` (whole numbers on a common scale with error feedback, a quarter of
            the bytes), or options for the library's quantized ring (without error feedback).
        :param min_peers: ``join()`` returns when the run has begun or has that many members, in all groups; the number
            of the first peer counts. A run that has begun goes on with fewer.
        :param check_every: at the end of every so many rounds all members compare their whole state and repair who
            differs; 0: only when somebody joins.
        :param max_norm: a pseudo-gradient of a fragment whose Euclidean norm exceeds this is not averaged; None: any
            that is finite is. Peers may differ in it.
        :param tag: this and the next tag of the communicator belong to the helper.
        :param rejoin_timeout_s: how long a master that does not answer is asked again before ``PCCLError``.
        :param on_event: called with an :class:`Event` from within ``join`` and ``step``; must not call the helper.
        """
        if delay is None:
            delay = H // max(fragments, 1) if overlap else 0
        elif delay > 0 and not overlap:
            raise ValueError("delay needs overlap=True: without it every average is applied at once")
        self._schedule = Schedule(H, fragments, delay)
        self._mix = (0.5 if 0 < delay < H else 0.0) if mix is None else float(mix)
        if not 0 <= self._mix < 1:
            raise ValueError(f"mix is {self._mix}; use 0 (take the average's result) to below 1")
        if min_peers < 1 or check_every < 0:
            raise ValueError(f"min_peers is {min_peers} (at least 1), check_every is {check_every} (at least 0)")
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm is {max_norm}; use a number above 0, or None")
        self._max_norm = max_norm
        self._inner_optimizer = inner_optimizer
        self._parameters = Parameters(model)
        size = self._parameters.size
        if size < fragments:
            raise ValueError(f"{fragments} fragments of {size} parameters; use at most one per parameter")
        self._optimizer = OuterSGD(outer)
        self._encoding = make_encoding(quantize, self._schedule.largest(size), size)
        self._outer = torch.empty(size)
        self._momentum = torch.zeros(size) if self._optimizer.momentum > 0 else None
        self._parameters.read(self._outer)

        # What a newcomer has to know besides: shared state, too, written and read around a synchronization.
        self._counters = torch.zeros(4, dtype=torch.int64)
        self._waiting_for = min_peers  # 0 once the run has begun
        self._inner_step = 0
        self._outer_step = 0
        self._batches = 0

        options = (
            f"H={H},fragments={fragments},delay={delay},mix={self._mix!r},outer={self._optimizer},"
            f"quantize={_name(quantize)}"
        )
        self._signature = f"{options},parameters={self._parameters}"
        # Options and parameters are part of names, so that peers with others cannot take part. Two names, because the
        # library shows only the beginning of a long one.
        entries = [
            pccl.TensorInfo.from_torch(self._counters, f"diloco.counters({options})"),
            pccl.TensorInfo.from_torch(self._outer, f"diloco.outer({self._parameters})"),
        ]
        if self._momentum is not None:
            entries.append(pccl.TensorInfo.from_torch(self._momentum, "diloco.momentum"))
        self._membership = Membership(comm, entries, rejoin_timeout_s)
        self._check_every = check_every
        self._tag = tag
        self._on_event = on_event
        self._transfer: Transfer | None = None
        self._in_flight: int | None = None
        self._own_weight = 0
        self._restored: Tensor | None = None
        self._joined = False

    # ---- where the training stands -----------------------------------------------------------------------------------

    @property
    def inner_step(self) -> int:
        """Inner steps since the beginning of the run, equal on all peers at the end of a round; jumps when we join."""
        return self._inner_step

    @property
    def outer_step(self) -> int:
        """Averages applied since the beginning of the run, one per fragment and round."""
        return self._outer_step

    @property
    def batches(self) -> int:
        """The data cursor of the run: inner steps of all peers together that went into the outer parameters."""
        return self._batches

    @property
    def world(self) -> int:
        """Members of our group, 1 if we are alone or out of the run."""
        return self._membership.world()

    @property
    def outer(self) -> Tensor:
        """Outer parameters: float32, one vector in the order of ``model.named_parameters()``; read only, not a copy."""
        return self._outer

    @property
    def momentum(self) -> Tensor | None:
        """Momentum of the outer optimizer, like ``outer``; None without momentum."""
        return self._momentum

    # ---- joining and training ----------------------------------------------------------------------------------------

    def join(self) -> None:
        """Joins the run and takes over its state; call it before the first inner step.

        Blocks until the members admit us, which they do at the end of a round, and until ``min_peers`` are there.
        PCCLError if the master cannot be reached or the run refuses us, PCCLArgumentError for a model as of
        :meth:`advance`; this peer is then no member. Nothing happens if we are in it.
        """
        while not self._joined:
            try:
                self._enter()
            except Lost as lost:
                self._joined = False
                self._emit("lost", detail=str(lost))
            except Exception:
                self._leave()
                raise

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """``inner_optimizer.step(closure)``, then :meth:`advance`, which says when it blocks and what it raises.

        :param closure: as of the optimizer.
        :returns: what the optimizer returned.
        """
        result = self._inner_optimizer.step(closure) if closure is not None else self._inner_optimizer.step()
        self.advance()
        return result

    def advance(self) -> None:
        """To be called after each inner step, where the inner optimizer is stepped otherwise (a gradient scaler).

        Between launches and landings it returns at once. At a landing it blocks until the average is there, at the end
        of a round until all members have come there (a vote). Members that die meanwhile cost a repetition; if we are
        thrown out, it joins the run again and blocks as :meth:`join` does. RuntimeError before ``join``.

        PCCLError for what repeating does not help, PCCLArgumentError when the model no longer trains what the peers
        average: a parameter that was replaced, converted, frozen or unfrozen since this helper was made. This peer has
        then left the run, so that the others do not wait for it, and the helper is of no more use.
        """
        if not self._joined:
            raise RuntimeError("DiLoCo.join() comes before the first step")
        self._inner_step += 1
        try:
            self._after_inner_step()
        except Lost as lost:
            self._emit("lost", detail=str(lost))
            self._joined = False
            self.join()
        except Exception:
            self._leave()
            raise

    def finish(self) -> None:
        """Applies what is in flight and sets the model to the outer parameters, the result of the training.

        Blocks until the average is there; no vote. All members end at the same step, or those who stay go on without
        us.
        """
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
        """Everything but the inner optimizer's state, as copies; the model's trainable parameters are in it.

        Taken at the end of a round (``inner_step % H == 0``) it is complete: a run in which every peer resumes from its
        own goes on as if nothing had happened. Taken elsewhere, the resumed run begins that round again with the
        parameters as they are, and what was in flight is dropped.
        """
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
                residual[begin:end] = 0  # is contained in what is in flight
        return {
            "signature": self._signature,
            "outer": self._outer.clone(),
            "momentum": None if self._momentum is None else self._momentum.clone(),
            "local": local,
            "residual": residual,
            "in_flight": in_flight,
            "inner_step": self._inner_step,
            "outer_step": self._outer_step,
            "batches": self._batches,
            "revision": self._membership.revision,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Before ``join``; sets the model, too. If the run is ahead of this state, ``join`` replaces it by the run's.

        :param state: what :meth:`state_dict` gave, on this or another peer.

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
        self._restored = None if state["in_flight"] is None else state["in_flight"].clone()
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
        # Before the average is applied: what was learned is relative to what we began the round with.
        if launching is not None:
            own_weight = self._capture(launching)
        if landing is not None and weight is not None:
            self._apply(landing, weight)
        elif launching is not None and self._schedule.delay == self._schedule.period:
            # The first round of a run: nothing lands yet, but what was learned is on its way and must not count twice.
            self._adopt_outer(launching, 0.0)
        if self._schedule.ends_round(step):
            self._end_round()
        if launching is not None:
            self._launch(launching, own_weight)

    def _capture(self, fragment: int) -> int:
        """What this peer learned; the weight it is to be averaged with, 0 if it would do harm."""
        self._parameters.check("DiLoCo.step")
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        gradient = self._encoding.pseudo_gradient(end - begin)
        self._parameters.subtract_from(self._outer[begin:end], begin, gradient)
        norm = _norm(gradient)
        if not math.isfinite(norm):
            detail = "the pseudo-gradient is not finite"
        elif self._max_norm is not None and norm > self._max_norm:
            detail = f"the norm of the pseudo-gradient is {norm:.6g}, max_norm is {self._max_norm:g}"
        else:
            return 1
        gradient.zero_()
        self._begin_again(math.isfinite(norm))
        logging.getLogger("pccl").warning(
            "DiLoCo: %s at inner step %d; this peer contributes nothing to this average and goes on from the outer "
            "parameters. Look at its data and learning rate",
            detail,
            self._inner_step,
        )
        self._emit("rejected", fragment, detail=detail)
        return 0

    def _begin_again(self, finite: bool) -> None:
        """All fragments: the others would bring the bad numbers back with the next inner step, and so would the moments
        of the inner optimizer."""
        self._parameters.write(self._outer, 0)
        if finite:
            return
        for state in self._inner_optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor) and value.is_floating_point():
                    value.nan_to_num_(0.0, 0.0, 0.0)

    def _launch(self, fragment: int, weight: int) -> None:
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        self._emit("launch", fragment, self._encoding.pseudo_gradient(end - begin))
        exchange = self._encoding.exchange(begin, end - begin, weight)
        self._own_weight = weight
        self._transfer = Transfer(self._membership, exchange, self._tag, lambda: self._emit("retry", fragment))
        self._in_flight = fragment

    def _collect(self) -> int:
        """Waits for what is in flight; the sum of the weights of the average."""
        transfer, fragment = self._transfer, self._in_flight
        assert transfer is not None and fragment is not None
        self._transfer = self._in_flight = None
        weight = transfer.finish()
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        if weight is None:
            self._encoding.keep_own(begin, end - begin)
            return self._own_weight
        if weight > 0 and not math.isfinite(_norm(self._encoding.total(end - begin))):
            # Finite numbers whose sum is not. All members have the same bytes here, and so all skip it.
            logging.getLogger("pccl").warning(
                "DiLoCo: the sum of the pseudo-gradients at inner step %d is not finite; no member applies it. "
                "DiLoCo(max_norm=...) keeps a peer that diverges out of the sum",
                self._inner_step,
            )
            return 0
        return weight

    def _apply(self, fragment: int, weight: int) -> None:
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        average = self._encoding.total(end - begin)  # which the optimizer makes of it
        if weight > 0:
            self._optimizer.step(
                self._outer.numpy()[begin:end],
                None if self._momentum is None else self._momentum.numpy()[begin:end],
                average.numpy(),
                weight,
            )
            self._outer_step += 1
            if fragment + 1 == self._schedule.fragments:
                self._batches += weight * self._schedule.period
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
        """Of a helper that can do no more: as a member it would let all others wait."""
        self._joined = False
        self._transfer = self._in_flight = None
        with contextlib.suppress(pccl.PCCLError):
            self._membership.comm.abort()

    def _enter(self) -> None:
        self._parameters.check("DiLoCo.join")
        if not math.isfinite(_norm(self._outer)):
            raise argument_error(
                "DiLoCo.join",
                "the model has parameters that are not finite, and a run may begin with them; initialize it",
            )
        self._transfer = self._in_flight = None

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
            if self._waiting_for <= self._membership.run_size():
                break
            # All who wait see the same two numbers after the same synchronization, so they go on together.
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
        """The members launch what they learned before we came, and need us for it."""
        begin, end = self._schedule.bounds(fragment, self._outer.numel())
        gradient = self._encoding.pseudo_gradient(end - begin)
        weight = 0
        if self._restored is not None and self._restored.numel() == gradient.numel():
            gradient.copy_(self._restored)
            weight = 1
        else:
            gradient.zero_()
        self._restored = None
        self._launch(fragment, weight)

    def _forget_own(self) -> None:
        self._parameters.write(self._outer, 0)
        self._restored = None
        residual = self._encoding.residual()
        if residual is not None:
            residual.zero_()

    def _write_counters(self) -> None:
        counters = (self._waiting_for, self._inner_step, self._outer_step, self._batches)
        self._counters.copy_(torch.tensor(counters, dtype=torch.int64))

    def _read_counters(self) -> None:
        self._waiting_for, self._inner_step, self._outer_step, self._batches = self._counters.tolist()

    def _emit(self, kind: str, fragment: int | None = None, tensor: Tensor | None = None, detail: str = "") -> None:
        if self._on_event is not None:
            event = Event(kind, self._inner_step, self._outer_step, self.world, fragment, tensor, detail)
            self._on_event(event)


def _norm(vector: Tensor) -> float:
    """Euclidean; not finite exactly if an element is not."""
    parts = (torch.linalg.vector_norm(part, dtype=torch.float64) for part in vector.split(NORM_CHUNK))
    return math.hypot(*map(float, parts))


def _name(quantize: str | pccl.QuantizationOptions | None) -> str:
    if isinstance(quantize, pccl.QuantizationOptions):
        return f"{int(quantize.quantized_datatype)}/{int(quantize.algorithm)}"
    return str(quantize)
