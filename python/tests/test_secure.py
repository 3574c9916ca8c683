"""A secure run from Python: the invitation as a setting, and in the environment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import pccl

pytestmark = pytest.mark.torch_free

MASTER = str(Path(pccl.__file__).parent / "bin" / "pccl-master")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """The state directory of a secure master."""
    command = [MASTER, "--secure", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as master:
        assert master.stdout is not None
        assert master.stdout.readline().startswith("listening on ")
        yield tmp_path
        master.terminate()


def invite(state: Path) -> str:
    command = [MASTER, "invite", "--state-dir", str(state)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_an_invitation_contains_the_address(state: Path) -> None:
    with pccl.Communicator(invite=invite(state)) as comm:
        comm.connect(n_attempts=1)
        assert comm.global_world_size == 1


def test_an_invitation_comes_from_the_environment(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_INVITE", invite(state))
    monkeypatch.delenv("PCCL_MASTER_ADDRESS", raising=False)
    with pccl.Communicator.from_env() as comm:
        comm.connect(n_attempts=1)


def test_a_spent_invitation_is_named(state: Path) -> None:
    line = invite(state)
    with pccl.Communicator(invite=line) as first:
        first.connect(n_attempts=1)
        # Not PCCLMasterConnectionError, after which connect() would try again.
        with pccl.Communicator(invite=line) as second, pytest.raises(pccl.PCCLArgumentError, match="invitation spent"):
            second.connect()


def test_without_address_and_invitation_the_error_says_so() -> None:
    with pytest.raises(pccl.PCCLArgumentError, match="no address"):
        pccl.Communicator()
