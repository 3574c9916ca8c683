"""Peers that come and go exchange what has no fixed size: here the samples that each of them has found in a step.

    pccl-master &
    python gather_pieces.py 127.0.0.1:48148 &      # start some, start more later, kill any of them
    python gather_pieces.py 127.0.0.1:48148

all_gather finds the sizes by itself. It succeeds for all remaining members or for none, so all of them know the same
pieces and print the same digest after each step.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import numpy
import pccl

PIECE_MAX = 5000
BINS = numpy.linspace(-4.0, 4.0, 41)


def gather(communicator: pccl.Communicator, found: Any) -> list[Any]:
    """The pieces of all members. A peer that is alone, or was removed from the run, has only its own."""
    while communicator.world_size > 1:
        try:
            return list(communicator.all_gather(found))
        except pccl.PCCLConnectionLostError:
            continue  # for all members: a peer was lost, and the others call again
        except pccl.PCCLTooFewPeersError:
            break
    return [found]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("master", metavar="HOST:PORT")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--min-peers", type=int, default=1, help="wait while there are fewer")
    options = parser.parse_args()

    random = numpy.random.default_rng()  # each peer finds something else
    histogram = numpy.zeros(len(BINS) - 1, numpy.int64)
    # A newcomer receives what the members have counted. The revision is the number of steps.
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(histogram, "histogram")])
    with pccl.Communicator(options.master) as communicator:
        with pccl.Run(communicator, state, steps=options.steps, min_peers=options.min_peers) as run:
            while run.step():
                found = random.standard_normal(random.integers(PIECE_MAX), numpy.float32)
                pieces = gather(communicator, found)
                for piece in pieces:
                    histogram += numpy.histogram(piece, BINS)[0]
                digest = hashlib.sha256(b"".join(piece.tobytes() for piece in pieces) + histogram.tobytes())
                print(
                    f"step {state.revision}, {len(pieces)} peers, {histogram.sum()} samples, {digest.hexdigest()[:16]}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
