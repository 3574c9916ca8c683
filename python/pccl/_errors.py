"""Exceptions. All derive from :class:`PCCLError`: ``.result`` is the result code, the text names cause and remedy."""

from __future__ import annotations

import re
from typing import Any

from pccl._enums import Result

# What this package calls the things of the C interface that a cause names as its remedy.
_NAMES_HERE = {
    "pcclConnect": "connect()",
    "pcclAbort": "abort()",
    "pcclBarrier": "barrier()",
    "pcclQuantNone": "QuantizationAlgorithm.NONE",
    "pcclQuantMinMax": "QuantizationAlgorithm.MIN_MAX",
    "pcclUint32": "DataType.UINT32",
    "pcclUint64": "DataType.UINT64",
    "recv_capacity": "recv",
    "recv_count": "recv",
}


class PCCLError(Exception):
    """A call of the library failed. The text names cause and remedy.

    :param result: the result code of the library.
    :param func_name: the function of the C interface, or of this package, that failed.
    :param cause: cause and remedy.
    """

    result: Result
    """The result code of the library."""
    func_name: str
    """The function of the C interface, or of this package, that failed."""
    cause: str
    """Cause and remedy: the text without function and result."""

    def __init__(self, result: Result | int, func_name: str, cause: str = "") -> None:
        self.result = Result(result)
        self.func_name = func_name
        self.cause = cause
        text = f"{func_name} failed with error: {self.result.name}: {self.result.name}"
        super().__init__(f"{text}: {cause}" if cause else text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result, self.func_name, self.cause)

    @staticmethod
    def check(code: Result | int, name: str) -> None:
        """Raises the exception for a result code; does nothing for success.

        :param code: a result of the library.
        :param name: the function that returned it.
        """
        if code != Result.SUCCESS:
            raise error_for(code, name)


class PCCLArgumentError(PCCLError, ValueError, AssertionError):
    """The arguments can never work; nothing was done."""


class PCCLUsageError(PCCLError, RuntimeError):
    """The call is not possible in the present state of the object."""


class PCCLSyncError(PCCLUsageError):
    """A synchronization of the shared state failed, for the whole group or because this peer was removed. Arrays and
    revision are as before."""


class PCCLTooFewPeersError(PCCLError):
    """This peer is alone in its group: admit another one with update_topology() first, or go on alone."""


class PCCLMasterConnectionError(PCCLError):
    """The master could not be reached, or refused this peer."""


class PCCLConnectionLostError(PCCLError):
    """Another peer was lost, and the operation failed for the whole group. The inputs are intact: retry."""


class PCCLPendingAsyncOpsError(PCCLUsageError):
    """A launched operation was not awaited yet; wait for its handle first."""


class PCCLTopologyError(PCCLError):
    """This peer was removed from the run, or the master is gone: connect() joins again."""


class PCCLTimeoutError(PCCLError, TimeoutError):
    """A time limit that the program gave is over. After a call that blocks, this peer has left the run, so that the
    operation ends for the others too: arrays hold their inputs, and connect() joins again. After a method of a handle,
    the operation goes on, and the method may be called again."""


class PCCLInternalError(PCCLError):
    """Out of memory, descriptors or threads, or a defect of the library."""


_KINDS: dict[Result, type[PCCLError]] = {
    Result.NOT_INITIALIZED: PCCLUsageError,
    Result.INTERNAL_ERROR: PCCLInternalError,
    Result.INVALID_ARGUMENT: PCCLArgumentError,
    Result.INVALID_USAGE: PCCLUsageError,
    Result.TOO_FEW_PEERS: PCCLTooFewPeersError,
    Result.MASTER_CONNECTION_FAILED: PCCLMasterConnectionError,
    Result.RANK_CONNECTION_FAILED: PCCLConnectionLostError,
    Result.RANK_CONNECTION_LOST: PCCLConnectionLostError,
    Result.PENDING_ASYNC_OPS: PCCLPendingAsyncOpsError,
    Result.UPDATE_TOPOLOGY_FAILED: PCCLTopologyError,
    Result.TOPOLOGY_OPTIMIZATION_FAILED: PCCLTopologyError,
}


def error_for(code: Result | int, func_name: str, cause: str = "") -> PCCLError:
    result = Result(code)
    words = re.sub(r"\b(?:pccl[A-Z]|recv_)\w+", lambda name: _NAMES_HERE.get(name[0], name[0]), cause)
    return _KINDS.get(result, PCCLError)(result, func_name, words)


def argument_error(func_name: str, cause: str) -> PCCLArgumentError:
    return PCCLArgumentError(Result.INVALID_ARGUMENT, func_name, cause)


def left_for_time(code: Result | int, func_name: str) -> PCCLTimeoutError:
    """For a call that was ended because its time limit was over."""
    return PCCLTimeoutError(
        code,
        func_name,
        "the time limit of this call is over, and this peer has left the run: connect() joins again. Another member "
        "did not make the call in time, or the limit is too short",
    )
