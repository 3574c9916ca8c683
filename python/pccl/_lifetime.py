"""Cleans up objects that are alive when the interpreter ends, forks, or is interrupted."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pccl import _lanes, _logging, _native, _operation

if TYPE_CHECKING:
    from pccl._communicator import Communicator
    from pccl._master import MasterNode

communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()
# These sets keep masters alive: a master serves until it is stopped.
running_masters: set[MasterNode] = set()  # the program does not end before they are stopped
masters_of_groups: set[MasterNode] = set()  # closed when the program ends


def begin() -> None:
    """Call it before the first object is made, not at import: an import starts no thread."""
    _logging.begin()


def forget(master: MasterNode) -> None:
    running_masters.discard(master)
    masters_of_groups.discard(master)


def _tell_main_thread() -> None:
    _native.set_main_thread(threading.main_thread().ident or 0)


def _after_fork() -> None:
    _native.after_fork()
    _tell_main_thread()
    running_masters.clear()
    masters_of_groups.clear()
    for communicator in list(communicators):
        communicator._closing = threading.RLock()  # a thread that does not exist here may have held it
    _logging.forget()
    _operation._notifier.forget()
    _lanes.forget()


def _before_threads_are_joined() -> None:
    # A program that ended with KeyboardInterrupt must exit, although its threads may still wait for peers.
    kind: Any = getattr(sys, "last_type", None)
    if isinstance(kind, type) and issubclass(kind, KeyboardInterrupt):
        for communicator in list(communicators):
            communicator.close()


def _at_exit() -> None:
    for communicator in list(communicators):
        communicator.close()
    for master in list(masters_of_groups):
        master.close()
    if running_masters:
        from pccl._master import serve_until_interrupted

        serve_until_interrupted(list(running_masters))
    _operation._notifier.stop()
    _lanes.end()
    _logging.end()
    _native.end_of_interpreter()


_tell_main_thread()
os.register_at_fork(after_in_child=_after_fork)
# If Python has this hook, it runs before the interpreter joins its threads.
getattr(threading, "_register_atexit", lambda _: None)(_before_threads_are_joined)
atexit.register(_at_exit)
