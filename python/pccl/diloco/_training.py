"""What a DiLoCo helper does after each inner step: the machinery under :class:`pccl.diloco.DiLoCo`."""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import pccl
from pccl._errors import argument_error
from pccl._membership import Lost, Membership
from pccl.diloco._captured import Captured
from pccl.diloco._encoding import WEIGHT_LIMIT, Encoding, Exchange
from pccl.diloco._event import Event
from pccl.diloco._node import Node, Outcome
from pccl.diloco._norm import norm
from pccl.diloco._outer import OuterSGD
from pccl.diloco._parameters import Parameters, clean_moments
from pccl.diloco._replica import Replica
from pccl.diloco._schedule import Schedule
from pccl.diloco._transfer import Transfer

# Before the first step, peers that wait for others check at this interval whether a peer has come.
LINE_UP_POLL_S = 0.02

# Reductions that failed in one part of a replica and not in another, in a row, before that is an error. Each costs the
# run a replica.
REPEATS_MAX = 1000


class Training:
    """The constructor of :class:`pccl.diloco.DiLoCo` sets the attributes."""

    _schedule: Schedule
    _bounds: list[tuple[int, int]]  # begin and end of each fragment in the vector of all parameters
    _mix: float
    _max_norm: float | None
    _weighted: bool
    _unsent: list[int]  # weight that this peer's training since the last launch of each fragment will have
    _inner_optimizer: torch.optim.Optimizer
    _parameters: Parameters
    _optimizer: OuterSGD
    _encoding: Encoding
    _outer: Tensor
    _momentum: Tensor | None
    # With eager updates: where this peer's round began, which is not where the outer parameters are.
    _began: Tensor | None
    # What else a newcomer needs. It is part of the shared state: written before a synchronization, read after it.
    _counters: Tensor
    _waiting_for: int  # 0 once the run has begun
    _inner_step: int
    _outer_step: int
    _batches: int
    _signature: str
    _membership: Membership
    _check_every: int
    _tag: int
    _on_event: Callable[[Event], None] | None
    _transfer: Transfer | None
    _in_flight: int | None
    _own_weight: int
    _restored: tuple[Tensor, int] | None  # a pseudo-gradient and its weight
    _is_finite: bool  # the sum of the last exchange
    _captured: Captured | None  # the pseudo-gradient in flight, if the thread of its transfer computes it
    # Outer step and batches behind an outer step that the thread of the transfer has made. They count when it lands.
    _stepped: tuple[int, int] | None
    _joined: bool
    _has_cleaned: bool
    _node: Node | None
    _replica: Replica | None
    # A random number of the peer that began this run. Another one: the run was begun anew. 0: none was drawn yet. Equal in
    # all parts of one model.
    _origin: int

    @property
    def world(self) -> int:
        """Members of this peer's group; 1 if it is alone or out of the run. In a replica of several processes that all
        take part, the number of replicas at their last agreement: it is equal in all of them."""
        return self._membership.comm.world_size if self._replica is None else self._replica.replicas

    def _join(self) -> None:
        while not self._joined:
            try:
                self._enter()
            except Lost as lost:
                self._joined = False
                self._emit("lost", detail=str(lost))
            except BaseException:
                self._leave()
                raise

    def _advance(self) -> None:
        try:
            self._after_inner_step()
        except Lost as lost:
            self._emit("lost", detail=str(lost))
            self._joined = False
            self._join()
        except BaseException:
            self._leave()
            raise

    def _together(self) -> contextlib.AbstractContextManager[None]:
        """What all processes of a node or replica do at the same time."""
        self._parameters.was_written = self._has_cleaned = False
        if self._replica is not None:
            return self._replica.together(lambda: self._parameters.was_written, self._leave)
        if self._node is None:
            return contextlib.nullcontext()
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

    def _copy_state(self) -> dict[str, Any]:
        local = torch.empty_like(self._outer)
        self._parameters.read(local)
        residual = self._encoding.residual()
        in_flight, in_flight_weight = None, self._own_weight
        unsent = list(self._unsent)
        if residual is not None:
            residual = residual.clone()
        if self._restored is not None:
            # Loaded, and not launched yet. The residual that was loaded with it is already without it.
            in_flight, in_flight_weight = self._restored[0].clone(), self._restored[1]
        elif self._in_flight is not None and self._own_weight > 0 and self._schedule.ends_round(self._inner_step):
            begin, end = self._bounds[self._in_flight]
            in_flight = self._encoding.pseudo_gradient(end - begin).clone()
            if residual is not None:
                residual[begin:end] = 0  # is already in what is in flight
        elif self._in_flight is not None and self._stepped is None:
            # The resumed run drops what is in flight, and sends what the model has learned once more.
            unsent[self._in_flight] = self._weight_with(self._in_flight)
        outer_step, batches = self._stepped or (self._outer_step, self._batches)
        return {
            "signature": self._signature,
            "outer": self._outer.clone(),
            "momentum": None if self._momentum is None else self._momentum.clone(),
            "local": local,
            "began": None if self._began is None else self._began.clone(),
            "residual": residual,
            "in_flight": in_flight,
            "in_flight_weight": in_flight_weight,
            "unsent": unsent,
            "inner_step": self._inner_step,
            "outer_step": outer_step,
            "batches": batches,
            "revision": self._membership.revision,
            "origin": self._origin,
        }

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
        elif self._transfer is not None and self._replica is None:
            self._transfer.poll()
            self._heed_rejection()
        if launching is not None and self._computes_in_background():
            own_weight = self._copy_parameters(launching)
            if landing is not None and weight is not None:
                self._apply(landing, weight)
            if self._schedule.ends_round(step):
                self._end_round()
            self._launch_captured(launching, own_weight)
            return
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
            if self._began is not None:
                self._look_ahead(self._began)
            self._launch(launching, own_weight)

    def _look_ahead(self, began: Tensor) -> None:
        """Eager updates: the round begins where the outer parameters will be if the other members have learned nothing.
        The outer parameters themselves wait for the average, so they stay equal on all members."""
        own = self._encoding.pseudo_gradient(began.numel())
        self._optimizer.look_ahead(
            self._outer.numpy(),
            None if self._momentum is None else self._momentum.numpy(),
            own.numpy(),
            self.world,
            began.numpy(),
            self._outer_step,
        )
        self._parameters.write(began, 0)

    def _write_all_outer(self) -> None:
        self._parameters.write(self._outer, 0)
        if self._began is not None:
            self._began.copy_(self._outer)

    def _computes_in_background(self) -> bool:
        """Whether the thread of the transfer computes pseudo-gradient and outer step. Not if an average lands when its
        fragment is launched again, because both need the former outer parameters. And not in a replica, because its
        processes agree on weight and outcome in between."""
        return 0 < self._schedule.delay < self._schedule.period and self._replica is None

    def _copy_parameters(self, fragment: int) -> int:
        """For :meth:`_launch_captured`. Returns this peer's weight."""
        self._parameters.check("DiLoCo.step")
        weight, self._unsent[fragment] = self._unsent[fragment], 0
        begin, end = self._bounds[fragment]
        self._parameters.capture(begin, self._encoding.pseudo_gradient(end - begin))
        return weight

    def _launch_captured(self, fragment: int, weight: int) -> None:
        captured = self._captured = Captured()
        self._own_weight, self._stepped, self._in_flight = weight, None, fragment
        # A checkpoint of the end of a round has what is in flight, so the outer parameters must be without it.
        makes_step = not self._schedule.ends_round(self._inner_step)
        exchange = self._in_thread(captured, fragment, weight, makes_step)
        self._transfer = self._transfer_of(fragment, exchange, in_background=True)
        try:
            # The event has the pseudo-gradient.
            if self._on_event is not None and captured.wait():
                self._heed_rejection()
                begin, end = self._bounds[fragment]
                self._emit("launch", fragment, self._encoding.pseudo_gradient(end - begin))
        finally:
            captured.proceed()

    def _in_thread(self, captured: Captured, fragment: int, weight: int, makes_step: bool) -> Exchange:
        """Computes the pseudo-gradient from a copy of the parameters, sends it, and makes the outer step."""
        with captured.computing():
            begin, end = self._bounds[fragment]
            gradient = self._encoding.pseudo_gradient(end - begin)
            self._parameters.subtract_captured(self._outer[begin:end], begin, gradient)
            length = norm(gradient)
            captured.harm = self._harm_of(length)
            if captured.harm:
                captured.is_finite = math.isfinite(length)
                gradient.zero_()
                weight = self._own_weight = 0
        weights = yield from self._checked(self._encoding.exchange(begin, end - begin, weight, weight), end - begin)
        if makes_step and self._is_finite and weights > 0:
            self._stepped = self._step_outer(fragment, weights)
        return weights

    def _heed_rejection(self) -> None:
        """Goes on from the outer parameters if what is in flight turned out to be harmful."""
        captured = self._captured
        if captured is None or not captured.is_done() or not captured.harm:
            return
        assert self._transfer is not None and self._in_flight is not None
        harm, captured.harm = captured.harm, ""
        # The thread may be at the outer step of what the others have sent.
        with self._transfer.paused() if captured.is_proceeding() else contextlib.nullcontext():
            self._reject(self._in_flight, harm, captured.is_finite)

    def _capture(self, fragment: int) -> int:
        """Captures what this peer learned. Returns its weight in the average: 0 if it would do harm."""
        self._parameters.check("DiLoCo.step")
        weight, self._unsent[fragment] = self._unsent[fragment], 0
        begin, end = self._bounds[fragment]
        gradient = self._encoding.pseudo_gradient(end - begin)
        base = self._outer if self._began is None else self._began
        self._parameters.subtract_from(base[begin:end], begin, gradient)
        length = norm(gradient)
        if self._replica is not None:
            weight, length = self._replica.agree_on(weight, length)
        harm = self._harm_of(length)
        if not harm:
            return weight
        gradient.zero_()
        self._reject(fragment, harm, math.isfinite(length))
        return 0

    def _harm_of(self, length: float) -> str:
        """Why a pseudo-gradient of this norm is not averaged; "" if it is."""
        if not math.isfinite(length):
            return "the pseudo-gradient is not finite"
        if self._max_norm is not None and length > self._max_norm:
            return f"the norm of the pseudo-gradient is {length:.6g}, max_norm is {self._max_norm:g}"
        return ""

    def _reject(self, fragment: int, detail: str, finite: bool) -> None:
        self._begin_again(finite)
        logging.getLogger("pccl").warning(
            "DiLoCo: %s at inner step %d; this peer contributes nothing to this average and goes on from the outer "
            "parameters. Look at its data and learning rate",
            detail,
            self._inner_step,
        )
        self._emit("rejected", fragment, detail=detail)

    def _begin_again(self, finite: bool) -> None:
        """Goes back to the outer parameters in all fragments: the other fragments would bring the bad numbers back with
        the next inner step. So would the moments of the inner optimizer, which are cleaned unless ``finite``."""
        self._write_all_outer()
        self._unsent = [0] * len(self._unsent)
        if not finite:
            clean_moments(self._inner_optimizer)
            self._has_cleaned = True

    def _launch(self, fragment: int, weight: int, restored: bool = False) -> None:
        """A ``restored`` pseudo-gradient has its weight in it already."""
        begin, end = self._bounds[fragment]
        self._emit("launch", fragment, self._encoding.pseudo_gradient(end - begin))
        self._own_weight, self._captured, self._stepped = weight, None, None
        exchange = self._encoding.exchange(begin, end - begin, weight, 1 if restored else weight)
        exchange = self._checked(exchange, end - begin)
        self._transfer = self._transfer_of(fragment, exchange, in_background=self._schedule.delay > 0)
        self._in_flight = fragment

    def _transfer_of(self, fragment: int, exchange: Exchange, *, in_background: bool) -> Transfer:
        return Transfer(
            self._membership,
            exchange,
            self._tag,
            on_retry=lambda: self._emit("retry", fragment),
            in_background=in_background,
        )

    def _checked(self, exchange: Exchange, elements: int) -> Exchange:
        """With ``overlap`` the thread of the transfer runs this."""
        weights = yield from exchange
        self._is_finite = math.isfinite(norm(self._encoding.total(elements)))
        return weights

    def _collect(self) -> int:
        """Waits for what is in flight. Returns the sum of the weights in the average."""
        transfer, fragment = self._transfer, self._in_flight
        assert transfer is not None and fragment is not None
        begin, end = self._bounds[fragment]
        try:
            weight, is_finite = self._outcome_of(transfer)
            for _ in range(REPEATS_MAX):
                if weight is not None:
                    break
                # A peer was lost when it was in the sums of some parts of the model and not in those of others.
                self._emit("retry", fragment, detail="another part of the model was reduced without a lost peer")
                exchange = self._encoding.exchange(begin, end - begin, self._own_weight, again=True)
                exchange = self._checked(exchange, end - begin)
                self._transfer = self._transfer_of(fragment, exchange, in_background=False)
                weight, is_finite = self._outcome_of(self._transfer)
            self._heed_rejection()
        except Lost:
            self._take_weight_back(fragment)
            raise
        finally:
            self._transfer = self._in_flight = self._captured = None
        if weight is None:
            raise pccl.PCCLError(
                pccl.Result.INTERNAL_ERROR,
                "DiLoCo.step",
                f"the parts of the model had different sums of weights {REPEATS_MAX} times in a row",
            )
        if not is_finite:
            # Finite numbers whose sum is not finite. All members have the same bytes here, so all of them skip it.
            logging.getLogger("pccl").warning(
                "DiLoCo: the sum of the pseudo-gradients at inner step %d is not finite; no member applies it. "
                "DiLoCo(max_norm=...) keeps a peer that diverges out of the sum",
                self._inner_step,
            )
            return 0
        return weight

    def _outcome_of(self, transfer: Transfer) -> tuple[int | None, bool]:
        """Returns the sum of the weights, and whether the sum is finite in all parts of the model. None: the parts have
        different sums of weights, so they were reduced with different peers. Equal sums were made with the same peers,
        because members only leave between two votes."""
        failure: Exception | None = None
        weight: int | None = None
        try:
            weight = transfer.finish()
        except Exception as error:
            if self._replica is None:
                raise
            failure = error
        is_alone = weight is None
        weight = self._own_weight if weight is None else weight
        is_finite = is_alone or self._is_finite
        if self._replica is not None:
            rows = self._replica.settle(failure, weight, int(is_finite))
            if any(theirs != weight for theirs, _ in rows):
                return None, True
            is_finite = all(finite for _, finite in rows)
        if is_alone:
            assert self._in_flight is not None
            begin, end = self._bounds[self._in_flight]
            if self._own_weight > 0:
                self._encoding.keep_own(begin, end - begin)
            else:
                # The residual is not in what was sent, so it stays.
                self._encoding.total(end - begin).zero_()
        return weight, is_finite

    def _apply(self, fragment: int, weight: int) -> None:
        begin, end = self._bounds[fragment]
        average = self._encoding.total(end - begin)  # a sum, which the optimizer turns into the average
        if weight > 0:
            self._outer_step, self._batches = self._stepped or self._step_outer(fragment, weight)
        self._stepped = None
        self._adopt_outer(fragment, self._mix)
        self._emit("outer_step" if weight > 0 else "skipped", fragment, average)

    def _step_outer(self, fragment: int, weight: int) -> tuple[int, int]:
        """Applies the sum of the last exchange. Returns the numbers of outer steps and batches behind it."""
        begin, end = self._bounds[fragment]
        self._optimizer.step(
            self._outer.numpy()[begin:end],
            None if self._momentum is None else self._momentum.numpy()[begin:end],
            self._encoding.total(end - begin).numpy(),
            weight,
            self._outer_step // self._schedule.fragments,
        )
        is_last = fragment + 1 == self._schedule.fragments
        return self._outer_step + 1, self._batches + is_last * weight * (1 if self._weighted else self._schedule.period)

    def _adopt_outer(self, fragment: int, keep: float) -> None:
        begin, end = self._bounds[fragment]
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
        if self._in_flight is not None and self._stepped is None:
            self._take_weight_back(self._in_flight)
        self._transfer = self._in_flight = self._captured = None
        if self._stepped is not None:
            # The outer parameters have it in them.
            self._outer_step, self._batches = self._stepped
            self._stepped = None

    def _take_weight_back(self, fragment: int) -> None:
        """What this peer launched is in no average. The next pseudo-gradient of the fragment contains it again, and has
        its weight. Not one step behind: there the model has left it already."""
        self._unsent[fragment] = self._weight_with(fragment)

    def _weight_with(self, fragment: int) -> int:
        """The weight of what this peer has learned of the fragment, if what it launched is in no average."""
        if not self._weighted or self._schedule.delay == self._schedule.period:
            return self._unsent[fragment]
        return min(self._unsent[fragment] + self._own_weight, WEIGHT_LIMIT - 1)

    def _enter(self) -> None:
        self._parameters.check("DiLoCo.join")
        if not math.isfinite(norm(self._outer)):
            raise argument_error(
                "DiLoCo.join",
                "the model has parameters that are not finite, and a run may begin with them; initialize it",
            )
        self._forget_transfer()
        if self._replica is not None:
            self._agree_on_origin(self._replica)
        elif self._origin == 0:
            self._origin = _draw()

        # Put back if the run turns out to be behind this peer, or if a synchronization of a replica fails when some
        # parts of the model were received and others were not.
        keeps = self._replica is not None or self._outer_step > 0
        own = [(one, one.clone()) for one in (self._outer, self._momentum) if keeps and one is not None]

        def position() -> None:
            for tensor, content in own:
                tensor.copy_(content)
            begin = self._schedule.round_begin(self._inner_step)
            if begin != self._inner_step:
                self._inner_step = begin
                self._restored = None
            # A peer that waits alone synchronizes nothing. Otherwise the run would hold its untrained state, and would
            # replace that of the next peer, which may have a checkpoint.
            while self._present() == 1 < self._waiting_for:
                time.sleep(LINE_UP_POLL_S)
                self._membership.update_topology()
            self._write_counters()

        revision = self._membership.revision
        try:
            received = self._membership.enter(position)
            self._check_not_begun_anew(revision)
        except BaseException:
            for tensor, content in own:
                tensor.copy_(content)
            raise
        own.clear()
        while True:
            self._read_counters()
            if received:
                self._forget_own()
            if self._waiting_for <= self._present():
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

    def _present(self) -> int:
        """Peers in the run; the same number on all of them after the same vote."""
        return self._membership.comm.global_world_size if self._replica is None else self._replica.replicas

    def _check_not_begun_anew(self, revision: int) -> None:
        """Raises if the run that this peer has entered is another one than its own and is behind it. The state of that
        run must not replace what this peer has.

        :param revision: with which this peer entered.
        """
        _, inner_step, outer_step, _, origin = self._counters.tolist()
        if origin == self._origin or outer_step >= self._outer_step:
            return
        self._membership.revision = revision
        raise pccl.PCCLError(
            pccl.Result.INVALID_USAGE,
            "DiLoCo.join",
            f"the run is at outer step {outer_step} (inner step {inner_step}), and this peer at {self._outer_step} "
            f"({self._inner_step}) of another run: other peers have begun anew. This peer has left and keeps its state: "
            "save it (state_dict), end the others, and let all begin with it; or begin here without it to take over "
            "what the others hold",
        )

    def _contribute_to_earlier_round(self, fragment: int) -> None:
        """The members launch what they learned before this peer came, and need it for the reduction."""
        begin, end = self._bounds[fragment]
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
        self._write_all_outer()
        self._restored = None
        self._unsent = [0] * len(self._unsent)
        residual = self._encoding.residual()
        if residual is not None:
            residual.zero_()

    def _agree_on_origin(self, replica: Replica) -> None:
        """All processes of a replica have that of rank 0. A checkpoint has that of its run."""
        restored = -1 if self._restored is None else self._restored[1]
        rows = replica.settle(None, _draw(), restored, self._inner_step, self._origin)
        if any(row[1:] != rows[0][1:] for row in rows):
            raise argument_error(
                "DiLoCo.join",
                "the processes of this replica have loaded different checkpoints (weight in flight, inner step, run: "
                f"{[row[1:] for row in rows]}); load those of the same round in all of them",
            )
        if self._origin == 0:
            self._origin = rows[0][0]

    def _write_counters(self) -> None:
        counters = [self._waiting_for, self._inner_step, self._outer_step, self._batches, self._origin]
        self._counters.copy_(torch.tensor(counters, dtype=torch.int64, device="cpu"))

    def _read_counters(self) -> None:
        self._waiting_for, self._inner_step, self._outer_step, self._batches, self._origin = self._counters.tolist()

    def _emit(self, kind: str, fragment: int | None = None, tensor: Tensor | None = None, detail: str = "") -> None:
        if self._on_event is not None:
            event = Event(kind, self._inner_step, self._outer_step, self.world, fragment, tensor, detail)
            self._on_event(event)


def _draw() -> int:
    return secrets.randbits(62) + 1
