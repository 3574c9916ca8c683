"""Torch's own tests of torch.distributed pass with the backend of this package, apart from a list with reasons."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

# Name, or beginning of names with "*": why the test does not apply.
NOT_APPLICABLE = {
    "test_send_recv_any_source*": "a message names its sender",
    "test_get_backend": "it compares the name of the backend with 'gloo'",
    "test_monitored_barrier_gloo*": "torch implements monitored_barrier for gloo alone",
    "test_sparse_all_reduce_sum": "the library has no sparse tensors",
}

# Tests of groups of some of the ranks, by the number of ranks that they need. All pass.
OPERATIONS = ("sum", "product", "min", "max")
GROUPS = {
    4: ("test_new_subgroups_with_group_param", "test_gather_object", "test_gather_object_subgroup"),
    8: (
        "test_destroy_group",
        "test_get_rank_size_group",
        "test_barrier_group",
        "test_barrier_timeout_group",
        "test_broadcast_group",
        "test_scatter_group",
        "test_gather_group",
        "test_all_gather_group",
        "test_all_gather_coalesced_group",
        "test_all_gather_object_subgroup",
        *(f"test_{kind}_group_{op}" for kind in ("reduce", "all_reduce", "all_reduce_coalesced") for op in OPERATIONS),
    ),
}

# Torch has them for MPI alone. All pass with three ranks, which those of groups need.
PARTS = ("single_equal_split", "single_unequal_split")
EXCHANGES = (
    "test_all_to_all",
    "test_all_to_all_complex",
    *(f"test_all_to_all_{part}{kind}" for part in PARTS for kind in ("", "_complex", "_group", "_full_group")),
    *(f"test_all_to_all_{kind}" for kind in ("group", "full_group")),
)


def reason(name: str) -> str | None:
    for pattern, why in NOT_APPLICABLE.items():
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return why
    return None


def outcomes(master: str, *names: str, ranks: int = 2, backend: str = "gloo") -> dict[str, tuple[str, str]]:
    """Runs these tests, or all. By name: "ok", "skipped" or "failed", and the reason."""
    program = Path(__file__).with_name("torch_own.py")
    command = [sys.executable, program, master, "--ranks", str(ranks), "--as", backend, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["test_')]
    assert lines, done.stderr[-3000:]
    return {name: (outcome, text) for name, outcome, text in lines}


def test_some_of_torchs_own_tests(master: str) -> None:
    names = ("test_all_reduce_sum", "test_send_recv", "test_batch_isend_irecv_gloo", "test_send_recv_any_source")
    found = outcomes(master, *names)
    assert [found[name][0] for name in names] == ["ok", "ok", "ok", "failed"]


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", GROUPS)
def test_torchs_own_tests_of_groups(master: str, ranks: int) -> None:
    found = outcomes(master, *GROUPS[ranks], ranks=ranks)
    assert {name: outcome for name, (outcome, _) in found.items()} == dict.fromkeys(GROUPS[ranks], "ok"), found


@pytest.mark.nightly
def test_torchs_own_tests_of_all_to_all(master: str) -> None:
    found = outcomes(master, *EXCHANGES, ranks=3, backend="mpi")
    assert {name: outcome for name, (outcome, _) in found.items()} == dict.fromkeys(EXCHANGES, "ok"), found


@pytest.mark.nightly
def test_torchs_own_tests(master: str) -> None:
    found = outcomes(master)
    print(*(f"{outcome:8} {name}" for name, (outcome, _) in sorted(found.items())), sep="\n")
    failed = [f"{name}:\n{text}" for name, (outcome, text) in found.items() if outcome == "failed" and not reason(name)]
    assert not failed, "\n\n".join(failed)
    passed = {name for name, (outcome, _) in found.items() if outcome == "ok"}
    assert not [name for name in passed if reason(name)], "these pass: take them out of the list"
    assert len(passed) >= 80
