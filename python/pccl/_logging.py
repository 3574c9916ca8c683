"""Sends log lines of the library to ``logging.getLogger("pccl")``. While logging is not configured, whole lines go to
standard error. PCCL_LOG_LEVEL sets the lowest level that is logged at all."""

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
    """Blocks until all lines logged before have reached the handlers of the logger."""
    if _installed:
        _native.set_log_receiver(_receive)  # waits until the former receiver, the same one, has got its lines


def end() -> None:
    """Later lines go to standard error, without the interpreter."""
    global _installed
    _installed = False
    _native.set_log_receiver(None)


def forget() -> None:
    """For a child of fork(), in which the library has dropped the receiver."""
    global _installed
    _installed = False


def _receive(level: int, line: str) -> None:
    if not logger.hasHandlers():
        print(line, file=sys.stderr, flush=True)
        return
    # The record has its own time and level. The rest of the line begins with the peer.
    parts = line.split(" ", 2)
    logger.log(_LEVELS[level], "%s", parts[2] if len(parts) == 3 else line)
