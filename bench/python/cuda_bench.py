"""Compares all-reduces of a tensor on a GPU with those of a tensor on the CPU. Two processes of this machine make them
in turn.

    ./dev nightly cuda

Times are medians. The ratio is the median of the ratios of neighbours.
Bound: at most 1.10 at 256 MiB. Exit status 1: it was missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("PCCL_PORT_RANGE", "0")

import torch

import pccl

SIZES = {"1 MiB": (1 << 20, 100), "16 MiB": (16 << 20, 40), "256 MiB": (256 << 20, 20)}
BOUNDS = {"256 MiB": 1.10}


def peer(address: str) -> dict[str, tuple[list[float], list[float]]]:
    """Both processes run this; seconds of each operation on the CPU and on the GPU."""
    result = {}
    with pccl.Communicator(address) as communicator:
        communicator.connect()
        while communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
            communicator.update_topology()
        for size, (size_bytes, count) in SIZES.items():
            tensors = [torch.zeros(size_bytes // 4, device=device) for device in ("cpu", "cuda")]
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(count + 2):
                for tensor, taken in zip(tensors, times, strict=True):
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    communicator.all_reduce(tensor, tensor, op=pccl.ReduceOp.SUM)
                    if turn >= 2:
                        taken.append(time.perf_counter() - begin)
            result[size] = times
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options.peer)
        return 0
    with pccl.MasterNode("127.0.0.1:0") as master:
        master.run()
        address = f"127.0.0.1:{master.port}"
        other = subprocess.Popen([sys.executable, __file__, "--peer", address])
        times = peer(address)
        assert other.wait(60) == 0
    print(f"all_reduce, f32 SUM in place, 2 peers on loopback, median; {torch.cuda.get_device_name()}")
    held = True
    for size, (on_cpu, on_gpu) in times.items():
        ratio = statistics.median(gpu / cpu for cpu, gpu in zip(on_cpu, on_gpu, strict=True))
        bound = ""
        if size in BOUNDS:
            missed = ratio > BOUNDS[size]
            bound = f"at most {BOUNDS[size]:.2f}" + ("   MISSED" if missed else "")
            held = held and not missed
        print(
            f"  {size:>8}  CPU {1e3 * statistics.median(on_cpu):9.3f} ms  GPU {1e3 * statistics.median(on_gpu):9.3f} ms  "
            f"{ratio:5.2f}  {bound}",
            flush=True,
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
