#!/usr/bin/env python3
"""Writes the seeds of fuzz_master and fuzz_peer: scripts for tests/fuzz/world.cpp that bring a run to life, so that the
fuzzer starts from states that random bytes would hardly reach. Run it when the order of choices in world.cpp
changes."""
import pathlib
import random

SETTLE = [7, 0]
CONNECT, UPDATE, PENDING, LAUNCH, AWAIT, SYNC = 0, 1, 2, 3, 5, 6


def call(node, kind, *rest):
    return [0, node, kind, *rest]


def together(kind, nodes, *rest):
    return [byte for node in nodes for byte in call(node, kind, *rest)] + SETTLE


def joined(count):
    script = call(1, CONNECT) + SETTLE
    for newcomer in range(2, count + 1):
        script += call(newcomer, CONNECT) + SETTLE
        script += together(PENDING, range(1, newcomer))
        script += together(UPDATE, range(1, newcomer))
    return script


def launch(tag, count, place=0, kind=10, op=0):
    return (LAUNCH, tag, count, kind, op, 0, 0, 0, place)


def entries(*sizes):
    return (len(sizes), *(byte for size in sizes for byte in (size, 0, 0, 0, 1)))


def scripts():
    for count in (1, 2, 3):
        yield f"joined-{count}", joined(count)
    everybody = range(1, 4)
    base = joined(3)
    for place in (0, 1):
        reduce = base + together(*(LAUNCH, everybody), *launch(0, 60, place)[1:]) + together(AWAIT, everybody, 0)
        yield f"reduce-{place}", reduce
    yield "mismatch", base + call(1, *launch(0, 60)) + call(2, *launch(0, 61)) + call(3, *launch(0, 60)) + SETTLE
    yield "sync", base + together(SYNC, everybody, 0, 0, *entries(200, 100))
    yield (
        "sync-differs",
        base
        + call(1, SYNC, 0, 0, *entries(200))
        + call(2, SYNC, 0, 0, *entries(100))
        + call(3, SYNC, 0, 0, *entries(200))
        + SETTLE,
    )
    yield (
        "leave",
        base + call(2, 7, 0) + SETTLE + together(LAUNCH, (1, 3), *launch(0, 60)[1:]) + together(AWAIT, (1, 3), 0),
    )
    generator = random.Random(7)
    for number in range(8):
        script = list(base)
        for _ in range(150):
            script += [generator.randrange(8), generator.randrange(4), *generator.randbytes(generator.randrange(9))]
        yield f"random-{number}", script


def main():
    corpus = pathlib.Path(__file__).parent / "corpus"
    for target in ("fuzz_master", "fuzz_peer"):
        (corpus / target).mkdir(parents=True, exist_ok=True)
        for name, script in scripts():
            (corpus / target / name).write_bytes(bytes(script))


if __name__ == "__main__":
    main()
