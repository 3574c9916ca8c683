"""A small GPT that learns to write licence texts, letter by letter, with any number of peers.

    pccl_master --listen-address 127.0.0.1:48148 &
    python char_gpt.py 127.0.0.1:48148 --seed 1 &
    python char_gpt.py 127.0.0.1:48148 --seed 2         # at any time; each may be killed and started again

The lines that turn a plain training loop into DiLoCo are marked. All peers of a run need the same --mode. Needs torch.
The texts are those that Debian has under /usr/share/common-licenses; --text takes others.
"""

import argparse
import hashlib
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import pccl
from pccl.diloco import DiLoCo, Event, SparseLoCo

OUTER = {"lr": 0.5, "momentum": 0.6}
MODES: dict[str, dict[str, Any]] = {
    "sync": {"outer": OUTER},  # every round ends with an average that all peers wait for
    "async": {"outer": OUTER, "overlap": True},  # training goes on while an average is on its way, --delay steps
    "eager": {"outer": OUTER, "overlap": True, "eager": True},  # for a whole round; one's own share is applied at once
    "streaming": {"outer": OUTER, "overlap": True, "fragments": 4},  # a quarter of the parameters at a time
    "int8": {"outer": OUTER, "quantize": "int8"},  # a quarter of the bytes
    "streaming-int8": {"outer": OUTER, "overlap": True, "fragments": 4, "quantize": "int8"},
    "sparse": {"outer": {}},  # SparseLoCo: a twelfth of the bytes of int8, with 8 peers
}
ALPHABET = [chr(code) for code in range(32, 127)] + ["\n"]
CONTEXT, TEXTS = 64, Path("/usr/share/common-licenses")


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.queries_keys_values(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(batch, length, width))
        wider: torch.Tensor = self.mlp(self.before_mlp(x))
        return x + wider


class CharGPT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(ALPHABET), width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(ALPHABET)))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.letters(text) + self.places(torch.arange(text.shape[1]))
        logits: torch.Tensor = self.head(self.blocks(x))
        return logits

    def loss(self, text: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    @torch.no_grad()
    def write(self, begin: str, length: int) -> str:
        text = torch.tensor([[ALPHABET.index(letter) for letter in begin]])
        for _ in range(length):
            chances = self(text[:, -CONTEXT:])[:, -1].softmax(1)
            text = torch.cat([text, torch.multinomial(chances, 1)], 1)
        return "".join(ALPHABET[letter] for letter in text[0])


def read(folder: Path) -> torch.Tensor:
    index = {letter: place for place, letter in enumerate(ALPHABET)}
    files = [folder] if folder.is_file() else sorted(path for path in folder.iterdir() if path.is_file())
    text = "".join(path.read_text(errors="ignore") for path in files)
    return torch.tensor([index[letter] for letter in text if letter in index])


def draw(text: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    begins = torch.randint(len(text) - CONTEXT - 1, (size, 1), generator=generator)
    return text[begins + torch.arange(CONTEXT + 1)]


def report(event: Event) -> None:
    if event.kind in ("joined", "members", "retry", "lost", "repaired"):
        print(f"step {event.inner_step}: {event.kind}, {event.world} peers {event.detail}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("master", help="HOST:PORT")
    parser.add_argument("--mode", choices=MODES, default="sync")
    parser.add_argument("--steps", type=int, default=500, help="inner steps of the run; more of them, better texts")
    parser.add_argument("--period", type=int, default=20, help="inner steps of a round")
    parser.add_argument("--delay", type=int, help="inner steps until an average is applied, in modes that do not wait")
    parser.add_argument("--outer-lr", type=float, help="learning rate of the outer optimizer, in place of the mode's")
    parser.add_argument("--peers", type=int, default=1, help="how many begin together")
    parser.add_argument("--seed", type=int, default=0, help="each peer needs its own: it chooses the texts")
    for name, size in (("width", 128), ("layers", 4), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--threads", type=int, default=1, help="of torch; peers of one machine share its cores")
    parser.add_argument("--text", type=Path, default=TEXTS)
    parser.add_argument("--checkpoint", type=Path, help="resumed from if it is there, written at the end of rounds")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    text = read(options.text)
    generator = torch.Generator().manual_seed(options.seed)
    model = CharGPT(options.width, options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    form = MODES[options.mode]
    outer = form["outer"] | ({} if options.outer_lr is None else {"lr": options.outer_lr})
    comm = pccl.Communicator(options.master)  # <- DiLoCo
    diloco = (SparseLoCo if options.mode == "sparse" else DiLoCo)(  # <- DiLoCo
        model, optimizer, comm, H=options.period, delay=options.delay, min_peers=options.peers, on_event=report,
        **form | {"outer": outer},
    )  # fmt: skip
    if options.checkpoint and options.checkpoint.exists():
        diloco.load_state_dict(torch.load(options.checkpoint))
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))  # leaves; the others train on

    with comm, diloco:  # <- DiLoCo
        while diloco.inner_step < options.steps and not stop:
            loss = model.loss(draw(text, options.batch, generator))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            diloco.step()  # <- DiLoCo, instead of optimizer.step()
            if diloco.inner_step % options.period == 0:
                print(f"step {diloco.inner_step}: loss {loss.item():.3f}, {diloco.world} peers", flush=True)
            if diloco.inner_step % options.period == 0 and options.checkpoint:
                torch.save(diloco.state_dict(), options.checkpoint)
        sent = comm.stats()["all_reduce"]["sent_bytes"]

    name = hashlib.sha256(diloco.outer.numpy().tobytes()).hexdigest()[:16]
    with torch.no_grad():
        at_end = model.loss(draw(text, 256, torch.Generator().manual_seed(-1))).item()
    print(f"end: loss {at_end:.4f}, model {name}, {diloco.batches} batches, {sent} bytes", flush=True)
    print(model.write("This ", 200))


if __name__ == "__main__":
    main()
