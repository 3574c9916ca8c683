"""Runs torch's own tests of torch.distributed with the backend of this package, one after the other.

    torch_own.py ADDRESS [--ranks N] [NAME...]     # with a master at ADDRESS; without names: all
    torch_own.py gloo [--ranks N] [NAME...]        # for comparison: with gloo

Prints a line of JSON for each test: name, "ok", "skipped" or "failed", and torch's reason or the error. The tests are
those of the installed torch (torch.testing._internal.distributed), with two ranks or N. They choose what to do by the
name of the backend, so they see "gloo", and only the process group is made with "pccl".
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import unittest
from typing import Any

os.environ |= {
    "BACKEND": "gloo",
    # Torch's decorators read it when the tests are imported.
    "WORLD_SIZE": sys.argv[3] if sys.argv[2:3] == ["--ranks"] else "2",
    "TEMP_DIR": os.environ.get("TEMP_DIR") or tempfile.mkdtemp(),
    "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "100",
    "PCCL_PORT_RANGE": "0",
    "PCCL_LOG_LEVEL": "FATAL",
}

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test

import pccl.torch  # noqa: F401 (registers the backend)

_init_process_group = dist.init_process_group


def _with_pccl(backend: str | None = None, *arguments: Any, **options: Any) -> None:
    _init_process_group("pccl" if backend == "gloo" else backend, *arguments, **options)


class Own(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
    def setUp(self) -> None:
        super().setUp()
        # As copies of this process the ranks need not import torch again.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def run(name: str) -> tuple[str, str]:
    result = unittest.TestResult()
    Own(name).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    texts = [text for _, text in result.errors + result.failures]
    return ("failed", "\n".join(texts)[-3000:]) if texts else ("ok", "")


def main() -> None:
    address, *chosen = sys.argv[1:]
    if chosen[:1] == ["--ranks"]:
        chosen = chosen[2:]
    torch.set_num_threads(1)
    if address != "gloo":
        os.environ["PCCL_MASTER_ADDRESS"] = address
        dist.init_process_group = _with_pccl
    for group, name in enumerate(chosen or (name for name in dir(Own) if name.startswith("test_"))):
        os.environ["PCCL_PEER_GROUP"] = str(group)  # each test is a job of its own
        print(json.dumps([name, *run(name)]), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of torch may still run
