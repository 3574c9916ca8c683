"""What ``./dev test`` does on a newly set up machine: torch is not installed, or pip offers only the build with
CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import PATIENCE_S

pytestmark = pytest.mark.torch_free

# The same as in ./dev, with an index of packages that are empty.
INSTALL = """
set -euo pipefail
logs=$1/log
say() { echo "$*"; }
step() { shift; "$@"; }
misuse() { echo "./dev: $*" >&2; exit 2; }
source python/environment.sh
install_torch "$1"
"""


def wheel(index: Path, name: str, version: str, *needs: str) -> None:
    """Makes a package with one empty module, in an index that pip can read."""
    about = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in needs]
    files = {
        f"{name}.py": "",
        f"{about}/METADATA": "\n".join(metadata) + "\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n",
    }
    folder = index / name.replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    (folder / "index.html").write_text("".join(f"<a href={one.name}>{one.name}</a>" for one in folder.glob("*.whl")))


def torch_version(tree: Path) -> str:
    for line in (tree / "python/environment.sh").read_text().splitlines():
        if line.startswith("torch_version="):
            return line.removeprefix("torch_version=")
    raise AssertionError("python/environment.sh names no version of torch")


def test_torch_is_installed_where_pip_finds_a_build_for_the_cpu(tree: Path, tmp_path: Path) -> None:
    plain, cpu, environment = tmp_path / "plain", tmp_path / "cpu", tmp_path / "environment"
    wheel(plain, "torch", torch_version(tree), "nvidia_cublas")
    wheel(plain, "nvidia_cublas", "13.0")
    wheel(plain, "scikit_learn", "1.9")
    wheel(cpu, "torch", torch_version(tree) + "+cpu")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=PATIENCE_S)

    def install(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", INSTALL, "install", str(environment)], cwd=tree, timeout=PATIENCE_S, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": plain.as_uri(), "PIP_NO_CACHE_DIR": "1", **variables},
        )  # fmt: skip

    def installed() -> set[str]:
        shown = subprocess.run(
            [str(environment / "bin/pip"), "freeze"], check=True, timeout=PATIENCE_S, text=True, capture_output=True
        )
        return {line.split("==")[0] for line in shown.stdout.splitlines()}

    # The plain index has only the build with CUDA: installing goes on without torch, and one line says how to get it.
    done = install()
    assert done.returncode == 0, done.stdout
    assert installed() == set()
    hint = done.stdout.splitlines()[-1]
    assert hint.startswith("torch is not installed") and "PCCL_TORCH_INDEX_URL" in hint

    # An index that the user names and that does not help is an error.
    done = install(PCCL_TORCH_INDEX_URL=(tmp_path / "nothing").as_uri())
    assert done.returncode == 2 and "PCCL_TORCH_INDEX_URL=file://" in done.stdout.splitlines()[-1]

    # An earlier failure is not remembered.
    done = install(PCCL_TORCH_INDEX_URL=cpu.as_uri())
    assert done.returncode == 0, done.stdout
    assert installed() == {"torch", "scikit_learn"}
    # What is installed is not installed again.
    done = install(PCCL_TORCH_INDEX_URL=(tmp_path / "nothing").as_uri())
    assert (done.returncode, done.stdout) == (0, "")


LOG = """Start testing: Nov 22 05:32 UTC
1/142 Testing: integration_address_test
Output:
----------------------------------------------------------
address_test.cpp:46: warning:
  skipped: this host has no IPv6
<end of output>
----------------------------------------------------------
24/142 Testing: python_types
Output:
----------------------------------------------------------
=========================== short test summary info ============================
SKIPPED [1] python/tests/test_types.py:65: could not import 'torch': No module named 'torch'
16 passed, 1 skipped in 4.30s
<end of output>
25/142 Testing: python_docs
SKIPPED [7] python/tests/test_docs.py:82: could not import 'torch': No module named 'torch'
SKIPPED [2] python/tests/test_docs.py:298: could not import 'torch': No module named 'torch'
SKIPPED [1] python/tests/test_docs.py:262: sphinx is not installed (./dev docs installs it)
138/142 Testing: check_report_page
report_page: skipped: no chromium on this machine (./dev nightly pages installs it)
"""


def test_what_was_skipped_is_counted_and_explained(tree: Path) -> None:
    counted = subprocess.run(
        ["awk", "-f", "tests/skips.awk"], input=LOG, cwd=tree, timeout=PATIENCE_S, text=True, capture_output=True
    )
    assert counted.returncode == 0, counted.stderr
    title, *reasons = counted.stdout.splitlines()
    assert title.startswith("skipped: 13 ")
    assert [line.strip() for line in reasons] == [
        "1  this host has no IPv6 (integration_address_test)",
        "10  could not import 'torch': No module named 'torch' (python_types, python_docs)",
        "1  sphinx is not installed (./dev docs installs it) (python_docs)",
        "1  no chromium on this machine (./dev nightly pages installs it) (check_report_page)",
    ]
    nothing = subprocess.run(
        ["awk", "-f", "tests/skips.awk"], input="all of it ran\n", cwd=tree, timeout=PATIENCE_S, text=True,
        capture_output=True,
    )  # fmt: skip
    assert (nothing.returncode, nothing.stdout) == (0, "")


@pytest.mark.parametrize(("content", "status"), [("pytest.importorskip('no_such_module')", 77), ("", 5)])
def test_a_file_that_is_skipped_as_a_whole_is_no_failure(
    tree: Path, tmp_path: Path, content: str, status: int
) -> None:
    """A file that is skipped as a whole ends with 77, which ctest counts as skipped; a file without tests is a
    mistake."""
    (tmp_path / "conftest.py").write_text("from peers import pytest_sessionfinish\n")
    (tmp_path / "peers.py").write_bytes((tree / "python/tests/conftest.py").read_bytes())
    (tmp_path / "test_it.py").write_text(f"import pytest\n{content}\n")
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, timeout=PATIENCE_S, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
