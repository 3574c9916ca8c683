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
MESSAGES = "send and recv: the library has no messages between two ranks"
NOT_APPLICABLE = {
    "test_batch_isend_irecv_gloo*": MESSAGES,
    "test_irecv": MESSAGES,
    "test_isend*": MESSAGES,
    "test_send_recv*": MESSAGES,
    "test_get_backend": "it compares the name of the backend with 'gloo'",
    "test_monitored_barrier_gloo*": "torch implements monitored_barrier for gloo alone",
    "test_sparse_all_reduce_sum": "the library has no sparse tensors",
}


def reason(name: str) -> str | None:
    for pattern, why in NOT_APPLICABLE.items():
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return why
    return None


@pytest.mark.nightly
def test_torchs_own_tests(master: str) -> None:
    program = Path(__file__).with_name("torch_own.py")
    done = subprocess.run([sys.executable, program, master], stdout=subprocess.PIPE, text=True, timeout=3600)
    outcomes = {}
    for line in done.stdout.splitlines():
        if line.startswith('["test_'):
            name, outcome, text = json.loads(line)
            outcomes[name] = outcome, text
    print(*(f"{outcome:8} {name}" for name, (outcome, _) in sorted(outcomes.items())), sep="\n")
    failed = [
        f"{name}:\n{text}" for name, (outcome, text) in outcomes.items() if outcome == "failed" and not reason(name)
    ]
    assert not failed, "\n\n".join(failed)
    passed = {name for name, (outcome, _) in outcomes.items() if outcome == "ok"}
    assert not [name for name in passed if reason(name)], "these pass: take them out of the list"
    assert len(passed) >= 60
