"""Errors of the process group. Each names what happened and what to do."""

from __future__ import annotations

import torch.distributed as dist

from pccl._errors import PCCLArgumentError, PCCLError

_REMEDY = (
    "A process group has a fixed size, so this one is of no more use: call destroy_process_group(), then "
    "init_process_group() with the processes that are left (or let torchrun start all of them again). To go on "
    "without a restart when a peer is lost, use pccl.torch.ddp_hook or pccl.diloco"
)


def lost(operation: str, took_part: int, size: int) -> dist.DistBackendError:
    return dist.DistBackendError(f"pccl: {operation}: {size - took_part} of {size} peers were lost. {_REMEDY}")


def of(error: PCCLError, operation: str) -> Exception:
    """Argument errors stay as they are. After any other error the members no longer agree on what was done."""
    if isinstance(error, PCCLArgumentError):
        return error
    failure: Exception = dist.DistBackendError(f"pccl: {operation}: {error}. {_REMEDY}")
    failure.__cause__ = error
    return failure


def timed_out(operation: str, seconds: float, message: str) -> dist.DistBackendError:
    waiting = f" ({message})" if message else ""
    return dist.DistBackendError(
        f"pccl: {operation}: the timeout of {seconds:g} s is over{waiting}: another rank did not call it, or computes "
        f"for longer than that; init_process_group(timeout=...) sets the time-out. {_REMEDY}"
    )


def unsupported(operation: str) -> NotImplementedError:
    return NotImplementedError(
        f"pccl: this backend has no {operation}; name the rank, or make a group of another backend for it: "
        "group = torch.distributed.new_group(backend='gloo')"
    )
