"""Which part of a model each process of a replica holds, and which of them takes part in the run for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

# Name of a parameter, and label of the part of it that a process holds.
Key = tuple[str, str]


@dataclass(frozen=True)
class Piece:
    """The part of one parameter that a process holds.

    :param name: of the parameter.
    :param label: equal on exactly the processes of a replica that hold the same elements. The empty label is the whole
        parameter.
    :param elements: how many elements it has.
    :param part: of the model, which is sent together: index of a fragment that lists modules, otherwise 0.
    """

    name: str
    label: str
    elements: int
    part: int = 0

    @property
    def key(self) -> Key:
        return self.name, self.label


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "placements") and hasattr(tensor, "to_local")


def local_part(tensor: Any) -> torch.Tensor:
    """The memory that this process holds of a parameter, without autograd."""
    if is_sharded(tensor):
        with torch.no_grad():
            tensor = tensor.to_local()
        if hasattr(tensor, "elem") and hasattr(tensor, "wait"):
            tensor = tensor.wait()  # a functional collective may still be filling it
    local: torch.Tensor = tensor.detach()
    return local


def piece_of(name: str, parameter: Any, part: int = 0) -> Piece:
    """ValueError for a DTensor that is a sum which nobody has made yet, or whose mesh does not have this process."""
    if not is_sharded(parameter):
        return Piece(name, "", parameter.numel(), part)
    mesh = parameter.device_mesh
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError(f"parameter {name} is a DTensor of a mesh that this process is not in")
    labels = []
    for dimension, placement in enumerate(parameter.placements):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            raise ValueError(
                f"parameter {name} is a partial DTensor, its value a sum that nobody has made; use redistribute()"
            )
        labels.append(f"{dimension}:{place[dimension]} of {mesh.size(dimension)} by {placement}")
    return Piece(name, ", ".join(labels), local_part(parameter).numel(), part)


@dataclass(frozen=True)
class Holders:
    """The processes of a replica that hold a piece, by rank.

    :param owner: takes part in the run for it, and the others receive it from there.
    :param ranks: all of them, ascending.
    """

    owner: int
    ranks: tuple[int, ...]


def deal(everyone: Iterable[Iterable[Piece]]) -> dict[Key, Holders]:
    """Gives each piece an owner, so that the processes own about equally many elements of each part of the model. The
    result depends on the argument alone, so all replicas of the same form get the same one.

    :param everyone: the pieces of each rank.
    """
    ranks: dict[Key, list[int]] = {}
    found: dict[Key, Piece] = {}
    for rank, pieces in enumerate(everyone):
        for piece in pieces:
            ranks.setdefault(piece.key, []).append(rank)
            found[piece.key] = piece
    load: dict[tuple[int, int], int] = {}  # elements by part and rank
    dealt = {}
    # First those that have no choice, then the large ones.
    for key, holders in sorted(ranks.items(), key=lambda one: (len(one[1]), -found[one[0]].elements, one[0])):
        part = found[key].part
        owner = min(holders, key=lambda rank: (load.get((part, rank), 0), rank))
        load[part, owner] = load.get((part, owner), 0) + found[key].elements
        dealt[key] = Holders(owner, tuple(holders))
    return dealt


def owned_by(rank: int, pieces: Iterable[Piece], dealt: Mapping[Key, Holders]) -> list[Piece]:
    """Those pieces of a rank that it owns."""
    return [piece for piece in pieces if dealt[piece.key].owner == rank]
