"""What a DiLoCo helper reports."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Event:
    """An event of the outer optimization, for logs and tests.

    :param kind: ``"joined"`` (this peer entered the run, also again after ``"lost"``), ``"members"`` (newcomers were
        admitted), ``"launch"`` (``tensor``: the pseudo-gradient), ``"rejected"`` (this peer's pseudo-gradient is not
        finite, or its norm exceeds ``max_norm``: it is not averaged, and the model was set to the outer parameters),
        ``"retry"`` (a reduction failed and is repeated), ``"outer_step"`` (``tensor``: the average that was applied),
        ``"skipped"`` (no outer step: no member had anything to average, or the sum is not finite), ``"repaired"`` (this
        peer's state differed from the group's and was overwritten), ``"lost"`` (this peer was removed, or the master is
        gone; it joins again next).
    :param inner_step: :attr:`pccl.diloco.DiLoCo.inner_step` at that time.
    :param outer_step: :attr:`pccl.diloco.DiLoCo.outer_step` at that time.
    :param world: number of members of the group at that time.
    :param fragment: index of the part of the parameters, from 0; None if the event is not about a part.
    :param tensor: float32, one vector; valid only during the callback.
    :param detail: the cause, as text.
    """

    kind: str
    inner_step: int
    outer_step: int
    world: int
    fragment: int | None = None
    tensor: Tensor | None = None
    detail: str = ""
