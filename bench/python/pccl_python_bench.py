"""What the Python package costs over the C interface: all-reduces of two peers (processes of this machine) by pccl and,
in turn with them, by the functions of libpccl.so called through ctypes; and what a waiting call leaves to other
threads.

    ./dev bench python

Both kinds are in the same processes, each in a run of its own, and take turns: one operation each (256 MiB), or 25.
Times are medians; the difference is the median of the differences between neighbours. Bounds: 60 us at 4 KiB, 3 % at
256 MiB, 80 % for a counting thread beside one that waits. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy

os.environ.setdefault("PCCL_PORT_RANGE", "0")
begin = time.perf_counter()
import pccl

IMPORT_S = time.perf_counter() - begin
SIZES = {"4 KiB": (4 << 10, 2000), "1 MiB": (1 << 20, 200), "256 MiB": (256 << 20, 12)}
OVER_C_US = {"4 KiB": 60.0}
OVER_C_PART = {"256 MiB": 0.03}
COUNTER_PART = 0.8
BLOCK = 25  # operations of one kind in a row, for the small sizes


class SocketAddress(ctypes.Structure):
    _fields_ = [
        ("protocol", ctypes.c_int),
        ("v4", ctypes.c_ubyte * 4),
        ("v6", ctypes.c_ubyte * 16),
        ("port", ctypes.c_ushort),
    ]


class CreateParams(ctypes.Structure):
    _fields_ = [("master", SocketAddress), ("group", ctypes.c_uint32), ("pool", ctypes.c_uint32)]


class Descriptor(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_size_t),
        ("op", ctypes.c_int),
        ("tag", ctypes.c_uint64),
        ("datatype", ctypes.c_int),
        ("hint", ctypes.c_int),
        ("quantized", ctypes.c_int),
        ("algorithm", ctypes.c_int),
    ]


class CPeer:
    """A peer by the C interface alone."""

    def __init__(self, library: str, port: int) -> None:
        self.pccl = ctypes.CDLL(library)
        params = CreateParams(SocketAddress(0, (127, 0, 0, 1), (0,) * 16, port), 0, 0)
        self.comm = ctypes.c_void_p()
        assert self.pccl.pcclInit() == 0
        assert self.pccl.pcclCreateCommunicator(ctypes.byref(params), ctypes.byref(self.comm)) == 0
        assert self.pccl.pcclConnect(self.comm) == 0

    def world(self) -> int:
        value = ctypes.c_int()
        assert self.pccl.pcclGetAttribute(self.comm, 1, ctypes.byref(value)) == 0
        return value.value

    def update(self) -> None:
        assert self.pccl.pcclUpdateTopology(self.comm) == 0

    def reducer(self, array: numpy.ndarray) -> Callable[[], None]:
        descriptor = Descriptor(array.size, 0, 0, 10, 0, 10, 0)
        pointer, by_reference = ctypes.c_void_p(array.ctypes.data), ctypes.byref(descriptor)
        reduce, comm = self.pccl.pcclAllReduce, self.comm

        def run() -> None:
            if reduce(pointer, pointer, by_reference, comm, None) != 0:
                raise SystemExit("a reduction failed")

        return run


class PythonPeer:
    def __init__(self, port: int) -> None:
        self.comm = pccl.Communicator(f"127.0.0.1:{port}")
        self.comm.connect()

    def world(self) -> int:
        return self.comm.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE)

    def update(self) -> None:
        self.comm.update_topology()

    def reducer(self, array: numpy.ndarray) -> Callable[[], object]:
        return lambda: self.comm.all_reduce(array, array, op=pccl.ReduceOp.SUM)


def peer(library: str, ports: list[int], sizes: list[str]) -> dict[str, tuple[list[float], list[float]]]:
    """Both processes run this; seconds of each operation by the C interface and by Python."""
    kinds: list[CPeer | PythonPeer] = [CPeer(library, ports[0]), PythonPeer(ports[1])]
    for kind in kinds:
        while kind.world() < 2:
            kind.update()
    result: dict[str, tuple[list[float], list[float]]] = {}
    for size in sizes:
        size_bytes, count = SIZES[size]
        array = numpy.zeros(size_bytes // 4, numpy.float32)
        reducers = [kind.reducer(array) for kind in kinds]
        times: tuple[list[float], list[float]] = ([], [])
        block = BLOCK if count > BLOCK else 1
        for _ in range(0, count, block):
            for reduce, taken in zip(reducers, times):
                reduce()  # warms up what the other kind left cold
                for _ in range(block):
                    begin = time.perf_counter()
                    reduce()
                    taken.append(time.perf_counter() - begin)
        result[size] = times
    return result


def reductions(library: str, sizes: list[str]) -> bool:
    """Whether the bounds were kept."""
    masters = [pccl.MasterNode("127.0.0.1:0") for _ in range(2)]
    for master in masters:
        master.run()
    ports = [master.port for master in masters]
    arguments = ["--peer", ",".join(map(str, ports)), "--library", library, "--sizes", ",".join(sizes)]
    other = subprocess.Popen([sys.executable, __file__, *arguments])
    times = peer(library, ports, sizes)
    assert other.wait(60) == 0
    for master in masters:
        master.close()
    print("all_reduce, f32 SUM in place, 2 peers on loopback, median")
    held = True
    for size, (by_c, by_python) in times.items():
        c, python = statistics.median(by_c), statistics.median(by_python)
        over = statistics.median(there - here for here, there in zip(by_c, by_python, strict=True))
        bound = ""
        if size in OVER_C_US:
            bound = f"at most {OVER_C_US[size]:.0f} us" + ("" if over * 1e6 <= OVER_C_US[size] else "   MISSED")
        elif size in OVER_C_PART:
            bound = f"at most {OVER_C_PART[size]:.0%}" + ("" if over <= OVER_C_PART[size] * c else "   MISSED")
        held = held and "MISSED" not in bound
        print(
            f"  {size:>8}  C {1e3 * c:9.3f} ms  Python {1e3 * python:9.3f} ms  "
            f"{1e6 * over:+8.1f} us  {over / c:+7.2%}  {bound}",
            flush=True,
        )
    return held


def counter(seconds: float) -> float:
    """Steps a second of a thread that only counts."""
    end = time.perf_counter() + seconds
    steps = 0
    while time.perf_counter() < end:
        for _ in range(1000):
            steps += 1
    return steps / seconds


def interrupted(call: Callable[[], object]) -> float:
    """Seconds from a SIGINT to the end of a call that waits."""
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.2, interrupt).start()
    try:
        call()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    raise SystemExit("the call ended by itself")


def waiting_thread() -> bool:
    """The speed of a counter while another thread waits in connect(), and how soon an interrupted call ends. Whether the
    bound was kept."""
    with pccl.MasterNode("127.0.0.1:0") as master:
        master.run()
        address = f"127.0.0.1:{master.port}"
        with pccl.Communicator(address) as first, pccl.Communicator(address) as second:
            first.connect()
            alone, beside = [], []
            for _ in range(3):
                alone.append(counter(0.5))
                thread = threading.Thread(target=second.connect)
                thread.start()
                while not first.are_peers_pending():
                    pass
                beside.append(counter(0.5))
                first.update_topology()
                thread.join()
                second.abort()
            times = [interrupted(second.connect) for _ in range(5)]
            print(f"connect() interrupted by SIGINT ends after {1e3 * max(times):.0f} ms (longest of {len(times)})")
            share = statistics.median(beside) / statistics.median(alone)
            missed = "" if share > COUNTER_PART else "   MISSED"
            print(
                f"counter thread beside one that waits in connect(): {share:.0%} of its speed alone  "
                f"above {COUNTER_PART:.0%}{missed}"
            )
            return not missed


def main() -> int:
    tree = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(SIZES), help="of: " + ", ".join(SIZES))
    parser.add_argument("--library", default=str(tree / "build/lib/libpccl.so"))
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.sizes.split(",")
    if options.peer:
        peer(options.library, [int(port) for port in options.peer.split(",")], sizes)
        return 0
    print(f"import pccl: {1e3 * IMPORT_S:.0f} ms (numpy was there already)")
    held = reductions(options.library, sizes)
    return 0 if waiting_thread() and held else 1


if __name__ == "__main__":
    sys.exit(main())
