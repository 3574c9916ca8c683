"""What ends, and when: objects that are alive when the interpreter ends, forks, or is interrupted."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pccl import _logging, _native, _operation

if TYPE_CHECKING:
    from pccl._communicator import Communicator
    from pccl._master import MasterNode

communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()
running_masters: set[MasterNode] = set()  # kept alive: a master serves until it is told to stop


def begin() -> None:
    """Before the first object is made: nothing here starts a thread at import."""
    _logging.begin()


def _tell_main_thread() -> None:
    _native.set_main_thread(threading.main_thread().ident or 0)


def _after_fork() -> None:
    _native.after_fork()
    _tell_main_thread()
    running_masters.clear()
    _logging.forget()
    _operation._notifier.forget()


def _before_threads_are_joined() -> None:
    # An interrupted program is to end, though its threads wait for peers.
    kind: Any = getattr(sys, "last_type", None)
    if isinstance(kind, type) and issubclass(kind, KeyboardInterrupt):
        for communicator in list(communicators):
            communicator.close()


def _at_exit() -> None:
    for communicator in list(communicators):
        communicator.close()
    if running_masters:
        from pccl._master import serve_until_interrupted

        serve_until_interrupted(list(running_masters))
    _operation._notifier.stop()
    _logging.end()
    _native.end_of_interpreter()


_tell_main_thread()
os.register_at_fork(after_in_child=_after_fork)
# Runs before the interpreter joins its threads, where there is such a hook.
getattr(threading, "_register_atexit", lambda _: None)(_before_threads_are_joined)
atexit.register(_at_exit)
