"""One peer of the torch.distributed backend of this library. It obeys the command `move` (torch_collectives.py).

    torch_peer.py RANK WORLD MASTER     MASTER: host:port
"""

from __future__ import annotations

import sys

import pccl.torch  # noqa: F401
import torch
import torch.distributed as dist
from torch_collectives import move


def main() -> None:
    rank, world, master = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=f"pccl://{master}", rank=rank, world_size=world)
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] != "move":
            break
        print(move(words[1:], rank, world), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
