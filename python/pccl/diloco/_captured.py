"""A pseudo-gradient that the thread of its transfer computes while the training goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator


class Captured:
    """Two threads use it: that of the training, and that of the transfer (:meth:`computing`)."""

    def __init__(self) -> None:
        self.harm = ""  # why it is not averaged; valid when it is done
        self.is_finite = True
        self._done = threading.Event()
        self._may_proceed = threading.Event()

    @contextlib.contextmanager
    def computing(self) -> Generator[None]:
        """While it is entered, the pseudo-gradient is computed. Its end waits for :meth:`proceed`."""
        try:
            yield
        finally:
            self._done.set()
        self._may_proceed.wait()

    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> bool:
        """Waits until the pseudo-gradient is there, or could not be computed. True."""
        return self._done.wait()

    def proceed(self) -> None:
        """Lets the transfer begin. Without this call, its thread waits for ever."""
        self._may_proceed.set()

    def is_proceeding(self) -> bool:
        return self._may_proceed.is_set()
