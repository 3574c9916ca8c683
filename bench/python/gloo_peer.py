"""One peer of gloo, through torch.distributed (bench/contest.hpp and bench/collectives.hpp have the commands).

    gloo_peer.py RANK WORLD HOST PORT CONNECTIONS

Rank 0 keeps the store on a free port, which it prints. With several connections, as many process groups reduce a part of
the vector each, because a group of gloo has one connection to each peer. gloo reduces in place only.
"""

from __future__ import annotations

import datetime
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch_collectives import move

PART_BYTES_MIN = 64 * 1024


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    rank, world, host, port, connections = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
    timeout = datetime.timedelta(seconds=120)
    store = dist.TCPStore(host, int(port), world, rank == 0, timeout, wait_for_workers=False)
    if rank == 0:
        print("port", store.port, flush=True)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
    groups = [dist.group.WORLD] + [dist.new_group(backend="gloo") for _ in range(int(connections) - 1)]
    torch.set_num_threads(1)

    def reduce(tensor: torch.Tensor) -> None:
        parts = max(1, min(len(groups), tensor.numel() * 4 // PART_BYTES_MIN))
        if parts == 1:
            dist.all_reduce(tensor)
            return
        works = [dist.all_reduce(part, group=group, async_op=True) for part, group in zip(tensor.chunk(parts), groups)]
        for work in works:
            work.wait()

    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "move":
            print(move(words[1:], rank, world), flush=True)
            continue
        if words[0] != "reduce":
            break
        size_bytes, _, _, warmup, iterations = (int(word) for word in words[1:])
        tensor = torch.full((size_bytes // 4,), float(rank + 1))
        times: list[float] = []
        code, cpu = 0, cpu_seconds()
        for i in range(warmup + iterations):
            if i == warmup:
                cpu = cpu_seconds()
            begin = time.perf_counter()
            reduce(tensor)
            if i >= warmup and rank == 0:
                times.append(1e3 * (time.perf_counter() - begin))
            if i == 0:
                code = 0 if bool((tensor == world * (world + 1) / 2).all()) else 1
                # Sums must not grow from one iteration to the next.
                tensor.zero_()
        cpu = cpu_seconds() - cpu
        del tensor
        print("reduced", code, f"{cpu:.6f}", 0, len(times), *(f"{t:.5f}" for t in times), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
