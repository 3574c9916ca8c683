"""The command `move` of bench/collectives.hpp through torch.distributed, for any backend.

    move KIND BYTES ITERATIONS  ->  moved CODE BEGIN_NS END_NS BEGIN_NS END_NS...
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

# torch had other names for them before 2.13.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def move(words: list[str], rank: int, world: int) -> str:
    kind, elements, iterations = words[0], int(words[1]) // 4 // world * world, int(words[2])
    piece, root = elements // world, rank == 0
    own, total = float(rank + 1), world * (world + 1) / 2
    send, receive = torch.empty(0), torch.empty(0)
    call: Callable[[], object]
    right: Callable[[], bool]

    def is_sum() -> bool:
        return bool((receive == total).all())

    def is_of_root() -> bool:
        return bool((receive == 1).all())

    def is_of_all() -> bool:
        return all(bool((part == other + 1).all()) for other, part in enumerate(receive.chunk(world)))

    if kind in ("all_reduce", "broadcast", "reduce"):
        receive = torch.full((elements,), own)
    elif kind in ("reduce_scatter", "all_to_all"):
        send = torch.full((elements,), own)
        receive = torch.zeros(elements if kind == "all_to_all" else piece)
    elif kind == "scatter":
        send, receive = torch.full((elements if root else 0,), own), torch.zeros(piece)
    elif kind in ("all_gather", "gather"):
        send, receive = torch.full((piece,), own), torch.zeros(elements if root or kind == "all_gather" else 0)
    else:
        return "moved 3"

    if kind == "all_reduce":
        call, right = lambda: dist.all_reduce(receive), is_sum
    elif kind == "broadcast":
        call, right = lambda: dist.broadcast(receive, src=0), is_of_root
    elif kind == "reduce":
        call, right = lambda: dist.reduce(receive, dst=0), lambda: not root or is_sum()
    elif kind == "reduce_scatter":
        call, right = lambda: reduce_scatter_single(receive, send), is_sum
    elif kind == "all_to_all":
        call, right = lambda: dist.all_to_all_single(receive, send), is_of_all
    elif kind == "scatter":
        parts = list(send.chunk(world)) if root else None
        call, right = lambda: dist.scatter(receive, parts, src=0), is_of_root
    elif kind == "gather":
        parts = list(receive.chunk(world)) if root else None
        call, right = lambda: dist.gather(send, parts, dst=0), lambda: not root or is_of_all()
    else:
        call, right = lambda: all_gather_single(receive, send), is_of_all

    code, times = 0, []
    for i in range(iterations):
        dist.barrier()
        begin = time.monotonic_ns()
        call()
        times += [begin, time.monotonic_ns()]
        if i == 0:
            code = 0 if right() else 1
            receive.zero_()  # sums must not grow from one iteration to the next
    return " ".join(map(str, ["moved", code, *times]))
