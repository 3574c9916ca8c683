"""FSDP2 within a replica, DiLoCo between replicas: each replica is a few processes that share one model.

    pccl-master &
    torchrun --nproc-per-node 2 --master-port 29500 fsdp_diloco.py 127.0.0.1:48148 &
    torchrun --nproc-per-node 2 --master-port 29501 fsdp_diloco.py 127.0.0.1:48148

Start more replicas later, or kill whole replicas: the others go on. A replica trains ``H`` steps on its own. Then the
replicas average how far they came (the pseudo-gradient), shard by shard, and all apply the average with the same outer
optimizer. The outer parameters, their momentum and the round are the shared state, so a newcomer begins where the
others are.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time

import pccl.torch
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 32


def sharded_model(mesh: DeviceMesh) -> torch.nn.Sequential:
    torch.manual_seed(0)  # the processes of a replica begin with shards of one model
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def gradient_scale(mesh: DeviceMesh) -> float:
    """FSDP asks for the average of the gradients, but in some versions of torch gloo gave their sum. Returns the factor
    that makes an average of it."""
    average = torch.empty(1)
    reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    reduce_scatter(average, torch.ones(mesh.size()), op=dist.ReduceOp.AVG, group=mesh.get_group())
    return 1.0 / average.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("master", metavar="HOST:PORT")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--H", type=int, default=20, help="inner steps of a round")
    parser.add_argument("--quantize", choices=["int8"], help="send a quarter of the bytes")
    parser.add_argument("--min-replicas", type=int, default=1, help="wait while there are fewer")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = sharded_model(mesh)
    inner_optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scale = gradient_scale(mesh)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16

    # The memory of this process's shard, and a copy of it that all replicas hold alike.
    shard = list(pccl.torch.local_tensors(model).values())
    outer = torch.nn.ParameterList([part.clone() for part in shard])
    outer_optimizer = torch.optim.SGD(outer.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    round_ = torch.zeros((), dtype=torch.int64)
    state = pccl.torch.shared_state(outer, outer_optimizer, {"round": round_})
    pseudo_gradient = [torch.empty_like(part) for part in shard]
    random = torch.Generator()
    random.seed()  # every process sees other images

    with pccl.torch.ReplicaGrid(options.master, mesh) as grid:
        while True:
            grid.begin(state)
            if round_ >= options.rounds:
                break
            if grid.replicas < options.min_replicas:
                time.sleep(0.1)
                continue
            for part, theirs in zip(shard, outer, strict=True):
                part.copy_(theirs.detach())
            for _ in range(options.H):
                chosen = torch.randint(300, len(images), (BATCH,), generator=random)
                inner_optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
                (loss * scale).backward()  # type: ignore[no-untyped-call]
                inner_optimizer.step()
            for part, theirs, difference in zip(shard, outer, pseudo_gradient, strict=True):
                torch.sub(theirs.detach(), part, out=difference)
            if grid.average_(pseudo_gradient, options.quantize):
                for theirs, difference in zip(outer, pseudo_gradient, strict=True):
                    theirs.grad = difference
                outer_optimizer.step()
                round_ += 1
                if grid.shard == 0:
                    print(f"round {int(round_)}, {grid.replicas} replicas, loss {loss.item():.3f}", flush=True)

    for part, theirs in zip(shard, outer, strict=True):
        part.copy_(theirs.detach())
    with torch.no_grad():
        right = (model(images[:300]).argmax(dim=1) == labels[:300]).float().mean().item()
    content = hashlib.sha256(b"".join(part.numpy().tobytes() for part in shard)).hexdigest()[:16]
    print(f"accuracy {right:.3f}, shard {os.environ.get('RANK')} {content}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
