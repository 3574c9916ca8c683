"""Uses the package where it is all there is of PCCL: tests/checks/wheel.sh runs this with that environment's Python."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy

os.environ["PCCL_PORT_RANGE"] = "0"

import pccl

PATIENCE_S = 120
scripts = Path(sys.executable).parent


def output(*arguments: str | Path) -> str:
    done = subprocess.run([*arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def peer(address: str, sums: list[float]) -> None:
    array = numpy.full(1_000_000, 1.5, numpy.float32)
    with pccl.Communicator(address) as communicator:
        communicator.connect()
        while communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
            if communicator.are_peers_pending():
                communicator.update_topology()
        communicator.sync_shared_state(pccl.SharedState([pccl.TensorInfo.from_numpy(array, "array")]))
        communicator.all_reduce(array, array, op=pccl.ReduceOp.SUM)
        sums.append(float(array.sum()))


def reduce_with(program: str) -> None:
    """The program as master of two peers, with a journal and a status."""
    with tempfile.TemporaryDirectory() as journal:
        master = subprocess.Popen(
            [scripts / program, "--listen-address", "127.0.0.1:0", "--state-dir", journal, "--status", "127.0.0.1:0"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert master.stdout is not None
        address, status = (master.stdout.readline().split()[-1] for _ in range(2))
        sums: list[float] = []
        peers = [threading.Thread(target=peer, args=(address, sums)) for _ in range(2)]
        for one in peers:
            one.start()
        for one in peers:
            one.join(PATIENCE_S)
        assert sums == [3e6] * 2, sums
        assert "pccl-master" in output(scripts / "python", "-m", "pccl", "top", "--once", "--plain", "--master", status)
        assert list(Path(journal).iterdir())
        master.terminate()
        assert master.wait(PATIENCE_S) == 0
    print(f"{program}: two peers, journal, status")


print("pccl", pccl.__version__, "in", Path(pccl.__file__).parent)
for program in ("pccl_master", "pccl-master"):
    assert "--state-dir" in output(scripts / program, "--help")
    reduce_with(program)
assert "usage:" in output(scripts / "python", "-m", "pccl", "demo", "--help")
print(output(scripts / "python", "-m", "pccl", "demo", "--kill", "--plain", "--steps", "40").splitlines()[-1])
loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
foreign = sorted(path for path in loaded if "protobuf" in path or ("sqlite" in path and "pccl" not in path))
assert not foreign, foreign
times = subprocess.run([sys.executable, "-X", "importtime", "-c", "import pccl"], capture_output=True, text=True).stderr
assert not any(name in times for name in ("| torch", "| numpy"))
whole = next(line for line in times.splitlines() if line.split("|")[-1].strip() == "pccl" and line.split("|")[-1][1] != " ")
print(f"import pccl: {int(whole.split('|')[1]) / 1000:.0f} ms")
