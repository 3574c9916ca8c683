"""Time limits of calls that block."""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta

from pccl import _native
from pccl._errors import argument_error

Timeout = float | timedelta | None


def seconds_of(timeout: Timeout, function: str) -> float | None:
    """Returns the seconds; None for no limit. PCCLArgumentError for what is no time."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if math.isnan(seconds) or seconds < 0:
        raise argument_error(
            function, f"timeout is {timeout}; use seconds (0 or more), a timedelta, or None for no limit"
        )
    return seconds


def limit(timeout: Timeout, function: str) -> contextlib.AbstractContextManager[None]:
    """Limits the native calls that this thread makes within it, all together: a call that still waits then leaves the
    run and raises PCCLTimeoutError."""
    seconds = seconds_of(timeout, function)
    return contextlib.nullcontext() if seconds is None else _native.TimeLimit(seconds)
