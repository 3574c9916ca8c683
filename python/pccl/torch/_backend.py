"""Registers the backend. After that ``init_process_group("pccl")`` works."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from pccl.torch import _rendezvous, _subgroup
from pccl.torch._process_group import ProcessGroupPCCL
from pccl.torch._reconfigure import Meeting
from pccl.torch._run import Run

# The run of the default group, if that is of this backend. Groups of all ranks share it.
_run: Run | None = None


def _create(options: Any, given: Any) -> ProcessGroupPCCL:
    global _run
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    job = _run if _run is not None and not _run.is_closed() else None
    # torch gives the options of the backend (pg_options), or tells it with its own ones.
    can_change = any(getattr(one, "enable_reconfigure", False) for one in (given, options))
    if not options.global_ranks_in_group:
        gathered = _rendezvous.gathered_by(options.store)
        if can_change and gathered is None:
            # Its first members are those of the first reconfigure().
            return ProcessGroupPCCL(None, rank, size, timeout, owns_run=True, meeting=Meeting(options.store, None))
        _run = gathered or _rendezvous.run_of(rank, size, timeout)
        meeting = Meeting(options.store, _run) if can_change else None
        return ProcessGroupPCCL(_run, rank, size, timeout, owns_run=True, meeting=meeting)
    if can_change:
        return ProcessGroupPCCL(None, rank, size, timeout, owns_run=True, meeting=Meeting(options.store, job))
    if size == 1:
        return ProcessGroupPCCL(None, rank, size, timeout, owns_run=False)
    if job is not None and size == job.size:
        return ProcessGroupPCCL(job, rank, size, timeout, owns_run=False)
    run = _subgroup.gather(options.store, rank, size, timeout, job)
    return ProcessGroupPCCL(run, rank, size, timeout, owns_run=True)


def register() -> None:
    if "pccl" not in dist.Backend.backend_list:
        dist.Backend.register_backend("pccl", _create, extended_api=True, devices=["cpu", "cuda"])
        _rendezvous.register()
