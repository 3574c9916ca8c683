"""DistributedDataParallel over any number of peers that come and go: handwritten digits (those of scikit-learn).

    pccl-master &
    python digits_ddp.py 127.0.0.1:48148 &      # start some, start more later, kill any of them
    python digits_ddp.py 127.0.0.1:48148

DDP itself spans this process alone; the hook averages its gradients over the peers of the run. All peers hold the same
parameters after every step, and print the same digest at the end.
"""

from __future__ import annotations

import argparse
import hashlib

import pccl
import pccl.torch
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch.nn.parallel import DistributedDataParallel

BATCH = 32


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images and labels for training, and those for testing."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32) / 16
    classes = torch.tensor(labels)
    return pixels[300:], classes[300:], pixels[:300], classes[:300]


def digest(model: torch.nn.Module) -> str:
    content = hashlib.sha256()
    for parameter in model.parameters():
        content.update(parameter.detach().numpy().tobytes())
    return content.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("master", metavar="HOST:PORT")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--quantize", choices=["int8"], help="send a quarter of the bytes")
    parser.add_argument("--min-peers", type=int, default=1, help="wait while there are fewer")
    options = parser.parse_args()

    images, labels, test_images, test_labels = digits()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    with pccl.Communicator(options.master) as communicator:
        model.register_comm_hook(model, pccl.torch.ddp_hook(communicator, options.quantize))
        # Everything that a newcomer needs: parameters and momentum. The revision is the number of steps.
        state = pccl.torch.shared_state(model, optimizer)
        random = torch.Generator()
        random.seed()  # every peer sees other images
        with pccl.Run(communicator, state, steps=options.steps, min_peers=options.min_peers) as run:
            while run.step():
                chosen = torch.randint(len(images), (BATCH,), generator=random)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
                # Returns with the average of all peers, also when one of them is lost meanwhile.
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if state.revision % 10 == 9:
                    print(f"step {state.revision + 1}, {run.world_size} peers, loss {loss.item():.3f}", flush=True)

    with torch.no_grad():
        right = (network(test_images).argmax(dim=1) == test_labels).float().mean().item()
    print(f"accuracy {right:.3f}, parameters {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
