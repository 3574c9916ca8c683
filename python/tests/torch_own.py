"""Runs torch's own tests of torch.distributed with the backend of this package, one after the other.

    torch_own.py ADDRESS [--ranks N] [--as BACKEND] [NAME...]   # with a master at ADDRESS; without names: all
    torch_own.py gloo [--ranks N] [NAME...]                     # for comparison: with gloo

Prints a line of JSON for each test: name, "ok", "skipped" or "failed", and torch's reason or the error. The tests are
those of the installed torch (torch.testing._internal.distributed), with two ranks or N. They choose what to do by the
name of the backend, so they see "gloo", and only the process group is made with "pccl". ``--as mpi`` runs those that
torch has for MPI alone, such as the ones of all_to_all.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import unittest
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("address")
parser.add_argument("--ranks", default="2")
parser.add_argument("--as", dest="backend", default="gloo")
parser.add_argument("names", nargs="*")
given = parser.parse_intermixed_args()

# Torch's decorators read them when the tests are imported.
os.environ |= {
    "BACKEND": given.backend,
    "WORLD_SIZE": given.ranks,
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
    _init_process_group("pccl" if backend == given.backend else backend, *arguments, **options)


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
    torch.set_num_threads(1)
    if given.address != "gloo":
        os.environ["PCCL_MASTER_ADDRESS"] = given.address
        dist.init_process_group = _with_pccl
    for group, name in enumerate(given.names or (name for name in dir(Own) if name.startswith("test_"))):
        os.environ["PCCL_PEER_GROUP"] = str(group)  # each test is a job of its own
        print(json.dumps([name, *run(name)]), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of torch may still run
