"""Log lines of the library go to ``logging.getLogger("pccl")``, and as whole lines to standard error while nobody has
configured logging. PCCL_LOG_LEVEL decides which lines there are at all."""

from __future__ import annotations

import logging
import sys

from pccl import _native

logger = logging.getLogger("pccl")
_LEVELS = [5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL]
logging.addLevelName(5, "TRACE")
_installed = False


def begin() -> None:
    global _installed
    if not _installed:
        _installed = True
        _native.set_log_receiver(_receive)


def flush() -> None:
    """Returns when the lines that are there have reached the handlers of the logger."""
    if _installed:
        _native.set_log_receiver(_receive)  # waits for the lines of the former one, which it is itself


def end() -> None:
    """Lines that come later go to standard error, without the interpreter."""
    global _installed
    _installed = False
    _native.set_log_receiver(None)


def forget() -> None:
    """In a child of fork(), where the library has let go of the receiver."""
    global _installed
    _installed = False


def _receive(level: int, line: str) -> None:
    if not logger.hasHandlers():
        print(line, file=sys.stderr, flush=True)
        return
    # Time and level are the record's own; what is left begins with the peer.
    parts = line.split(" ", 2)
    logger.log(_LEVELS[level], "%s", parts[2] if len(parts) == 3 else line)
