"""Registers the backend. After that ``init_process_group("pccl")`` works."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from pccl.torch import _rendezvous, _subgroup
from pccl.torch._process_group import ProcessGroupPCCL
from pccl.torch._run import Run

# The run of the default group, if that is of this backend. Groups of all ranks share it.
_run: Run | None = None


def _create(options: Any, _: Any) -> ProcessGroupPCCL:
    global _run
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    if not options.global_ranks_in_group:
        _run = _rendezvous.run_of(options.store, rank, size, timeout)
        return ProcessGroupPCCL(_run if size > 1 else None, rank, size, timeout, owns_run=True)
    if size == 1:
        return ProcessGroupPCCL(None, rank, size, timeout, owns_run=False)
    job = _run if _run is not None and not _run.is_closed() else None
    if job is not None and size == job.size:
        return ProcessGroupPCCL(job, rank, size, timeout, owns_run=False)
    run = _subgroup.gather(options.store, rank, size, timeout, job)
    return ProcessGroupPCCL(run, rank, size, timeout, owns_run=True)


def register() -> None:
    if "pccl" not in dist.Backend.backend_list:
        dist.Backend.register_backend("pccl", _create, extended_api=True, devices=["cpu", "cuda"])
        _rendezvous.register()
