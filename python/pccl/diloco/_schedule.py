"""When each fragment is sent and when its average is applied: arithmetic on the number of inner steps."""

from __future__ import annotations

from dataclasses import dataclass

# Inner steps between launch and landing, if nothing else was asked for. A later average costs quality (docs/diloco.md).
USUAL_DELAY = 5


@dataclass(frozen=True)
class Schedule:
    """The position in the schedule is the number of inner steps and nothing else, so a peer that knows it can join.

    A round is ``period`` inner steps. Fragment ``p`` lands (its average is applied) at step ``(p + 1) * period //
    fragments`` of each round; it was launched ``delay`` steps earlier. ``delay`` is at most ``period // fragments``, so
    a fragment lands before or at the step at which the next one is launched. So at most one fragment is in flight, and
    none at the end of a round. Newcomers are admitted at that moment, because no average that they have missed is still
    to be applied.

    >>> schedule = Schedule(period=12, fragments=3, delay=2)
    >>> [schedule.launching(step) for step in (2, 6, 10, 14)], [schedule.landing(step) for step in (4, 8, 12)]
    ([0, 1, 2, 0], [0, 1, 2])
    """

    period: int
    fragments: int
    delay: int

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"H is {self.period}; a round has at least 1 inner step")
        if not 1 <= self.fragments <= self.period:
            raise ValueError(
                f"fragments is {self.fragments}; use 1 to H = {self.period}, one lands per inner step at most"
            )
        if not 0 <= self.delay <= self.period // self.fragments:
            raise ValueError(
                f"delay is {self.delay}; use 0 to H // fragments = {self.period // self.fragments}, so that a fragment "
                "has landed before the next one is launched"
            )

    @classmethod
    def of(cls, period: int, fragments: int, overlap: bool, delay: int | None, eager: bool) -> Schedule:
        """With the arguments of :class:`pccl.diloco.DiLoCo`."""
        if delay is None:
            longest = period // max(fragments, 1)
            delay = 0 if not overlap else longest if eager else min(USUAL_DELAY, longest)
        elif delay > 0 and not overlap:
            raise ValueError("delay needs overlap=True: without it every average is applied at once")
        return cls(period, fragments, delay)

    def bounds(self, fragment: int, elements: int) -> tuple[int, int]:
        """Begin and end of the fragment in a vector of ``elements`` that is cut into equal parts: their sizes differ by 1
        at most."""
        return fragment * elements // self.fragments, (fragment + 1) * elements // self.fragments

    def landing(self, step: int) -> int | None:
        """Returns the fragment that lands after inner step ``step`` (counted from 1), or None."""
        offset = (step - 1) % self.period + 1
        fragment = -(-offset * self.fragments // self.period) - 1
        return fragment if step > 0 and (fragment + 1) * self.period // self.fragments == offset else None

    def launching(self, step: int) -> int | None:
        """Returns the fragment that is launched after inner step ``step``, or None. Before the first step it is None,
        because nothing was learned yet."""
        return self.landing(step + self.delay) if step > 0 else None

    def ends_round(self, step: int) -> bool:
        """Whether newcomers are admitted after inner step ``step``."""
        return step % self.period == 0

    def does_anything(self, step: int) -> bool:
        """Whether anything is sent, applied or voted on after inner step ``step``."""
        return self.landing(step) is not None or self.launching(step) is not None or self.ends_round(step)

    def round_begin(self, step: int) -> int:
        """The last end of a round at or before ``step``."""
        return step - step % self.period
