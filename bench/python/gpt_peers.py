"""Several peers of DiLoCo in one process: CharGPT of python/examples with a batch dimension for the peers, and the
encodings and the outer optimizer of the package. For losses of many peers in little time; nothing is sent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.nn import functional as F

import pccl
from pccl.diloco._choice import Quantize, make_encoding
from pccl.diloco._encoding import Exchange, Gathering
from pccl.diloco._outer import OuterSGD

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "examples"))
import char_gpt

HELD_OUT = 1024  # texts
TOGETHER = 256  # of them


class Peers:
    """Each parameter has a first dimension for the peers. Not thread-safe."""

    def __init__(self, count: int, width: int, layers: int, batch: int, seed: int, lr: float, text: torch.Tensor) -> None:
        torch.manual_seed(seed)
        self._model = char_gpt.CharGPT(width, layers)
        self._count, self._batch, self._text = count, batch, text
        self._draws = [torch.Generator().manual_seed(100 * seed + peer) for peer in range(count)]
        self._all = {
            name: one.detach().expand(count, *one.shape).clone().requires_grad_()
            for name, one in self._model.named_parameters()
        }
        self._optimizer = torch.optim.AdamW(self._all.values(), lr=lr)
        first = self.texts()
        own = torch.stack([self._model.loss(one) for one in first])
        assert torch.allclose(own, self.losses(first), atol=1e-4), "this is another model than that of the example"

    def texts(self) -> torch.Tensor:
        return torch.stack([char_gpt.draw(self._text, self._batch, draw) for draw in self._draws])

    def step(self, lr: float) -> None:
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.zero_grad()
        self.losses(self.texts()).sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def losses(self, texts: torch.Tensor) -> torch.Tensor:
        """``CharGPT.loss`` of each peer."""
        given = texts[:, :, :-1]
        peers, batch, length = given.shape
        letters = self._all["letters.weight"]
        _, alphabet, width = letters.shape
        places = (given + alphabet * torch.arange(peers)[:, None, None]).reshape(-1)
        x = F.embedding(places, letters.reshape(-1, width)).view(peers, batch, length, width)
        x = (x + self._all["places.weight"][:, None, :length]).view(peers, -1, width)
        for layer, block in enumerate(self._model.blocks):
            name = f"blocks.{layer}."
            split = self._linear(self._norm(x, name + "before_attention"), name + "queries_keys_values")
            queries, keys, values = split.view(peers * batch, length, 3, block.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            x = x + self._linear(mixed.transpose(1, 2).reshape(peers, -1, width), name + "attended")
            wider = F.gelu(self._linear(self._norm(x, name + "before_mlp"), name + "mlp.0"))
            x = x + self._linear(wider, name + "mlp.2")
        logits = self._linear(self._norm(x, "head.0"), "head.1")
        each = F.cross_entropy(logits.reshape(-1, alphabet), texts[:, :, 1:].reshape(-1), reduction="none")
        return each.view(peers, -1).mean(1)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.baddbmm(self._all[name + ".bias"][:, None], x, self._all[name + ".weight"].transpose(1, 2))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.addcmul(
            self._all[name + ".bias"][:, None], F.layer_norm(x, x.shape[-1:]), self._all[name + ".weight"][:, None]
        )

    @torch.no_grad()
    def vectors(self) -> torch.Tensor:
        """A row for each peer: its parameters."""
        return torch.cat([one.reshape(self._count, -1) for one in self._all.values()], 1)

    @torch.no_grad()
    def adopt(self, outer: torch.Tensor) -> None:
        torch.nn.utils.vector_to_parameters(outer.clone(), self._model.parameters())
        for one, own in zip(self._all.values(), self._model.parameters(), strict=True):
            one.copy_(own.expand_as(one))

    @torch.no_grad()
    def held_out(self) -> float:
        """The loss of what was adopted last, on texts that no peer has drawn on purpose."""
        texts = char_gpt.draw(self._text, HELD_OUT, torch.Generator().manual_seed(-1))
        losses = [self._model.loss(part).item() for part in texts.split(TOGETHER)]
        return sum(losses) / len(losses)


def exchange_all(exchanges: list[Exchange]) -> int:
    """Runs the exchanges of all peers as a run without faults does. Returns the sum of the weights."""
    steps: list[Any] = [next(one) for one in exchanges]
    while True:
        answer: Any = len(steps)
        if isinstance(steps[0], Gathering):
            answer = [step.send.clone() for step in steps]
        else:
            sent = torch.stack([step.send for step in steps])
            total = sent.amax(0) if steps[0].op == pccl.ReduceOp.MAX else sent.sum(0, dtype=sent.dtype)
            for step in steps:
                step.receive.copy_(total)
        if isinstance(steps[0], Gathering):
            # All would add up the same bytes, and each has kept what it did not send.
            exchanges = exchanges[:1]
        following, weights = [], 0
        for one in exchanges:
            try:
                following.append(one.send(answer))
            except StopIteration as stop:
                weights = int(stop.value)
        if not following:
            return weights
        steps = following


def train(
    peers: Peers, count: int, steps: int, period: int, quantize: Quantize, outer_options: dict[str, Any],
    lr_of: Callable[[float], float],
) -> float:  # fmt: skip
    """Trains from the first inner step to the last one, with synchronous rounds. ``lr_of`` is the learning rate of the
    inner optimizer at a part of the run (0 to 1). Returns the loss of the outer parameters."""
    outer = peers.vectors()[0].clone()
    elements = outer.numel()
    encodings = [make_encoding(quantize, elements, elements, False) for _ in range(count)]
    optimizer = OuterSGD(outer_options)
    momentum = numpy.zeros(elements, numpy.float32) if optimizer.momentum else None
    for turn in range(steps // period):
        for step in range(turn * period, (turn + 1) * period):
            peers.step(lr_of(step / steps))
        for encoding, own in zip(encodings, peers.vectors(), strict=True):
            torch.sub(outer, own, out=encoding.pseudo_gradient(elements))
        weights = exchange_all([encoding.exchange(0, elements, 1) for encoding in encodings])
        optimizer.step(outer.numpy(), momentum, encodings[0].total(elements).numpy(), weights, turn)
        peers.adopt(outer)
    return peers.held_out()
