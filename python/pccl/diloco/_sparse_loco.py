"""DiLoCo with sparse pseudo-gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

import pccl
from pccl.diloco._diloco import DiLoCo
from pccl.diloco._event import Event
from pccl.diloco._parameters import Parts
from pccl.diloco._top_k import TopK


class SparseLoCo(DiLoCo):
    """:class:`DiLoCo` for slow links (SparseLoCo, arXiv 2508.15706): of each chunk of a pseudo-gradient a peer sends
    only the largest elements, with 2 bits each, and adds what it did not send to its next one. With 8 peers each link
    carries a twelfth of the bytes of ``DiLoCo(quantize="int8")``. ::

        with SparseLoCo(model, optimizer, communicator, H=30, min_peers=2) as diloco:
            ...                                         # the loop of DiLoCo

    It differs from ``DiLoCo`` in its defaults alone: ``quantize=TopK()``, and an outer step without momentum, because
    what was not sent plays that part. Rounds are shorter than those of DiLoCo. Each member receives the pieces of all
    others, so the bytes grow with the number of members; those of ``"int8"`` do not.

    What a member did not send yet stays on that member: it is in its checkpoint, and it is lost with the member. A
    newcomer begins without any.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        comm: pccl.Communicator | None,
        *,
        H: int = 30,  # noqa: N803 (the name in the papers)
        top_k: TopK = TopK(),  # noqa: B008 (a constant)
        outer: Mapping[str, Any] | None = None,
        fragments: int | Parts = 1,
        overlap: bool = False,
        delay: int | None = None,
        eager: bool = False,
        mix: float | None = None,
        min_peers: int = 1,
        check_every: int = 1,
        max_norm: float | None = None,
        weighted: bool = False,
        process_group: torch.distributed.ProcessGroup | None = None,
        tag: int = 0,
        rejoin_timeout_s: float = 600.0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """Does not touch the network. ValueError for options that cannot work.

        :param model: as for :class:`DiLoCo`.
        :param inner_optimizer: as for :class:`DiLoCo`.
        :param comm: as for :class:`DiLoCo`.
        :param H: inner steps per round; the paper uses 15 and 30.
        :param top_k: how many elements are sent, and what becomes of the others.
        :param outer: ``lr`` (1.0, as in the paper; docs/diloco.md shows what other rates did),
            ``momentum`` (0), ``nesterov``.
        :param fragments: as for :class:`DiLoCo`.
        :param overlap: as for :class:`DiLoCo`.
        :param delay: as for :class:`DiLoCo`.
        :param eager: as for :class:`DiLoCo`.
        :param mix: as for :class:`DiLoCo`.
        :param min_peers: as for :class:`DiLoCo`.
        :param check_every: as for :class:`DiLoCo`.
        :param max_norm: as for :class:`DiLoCo`.
        :param weighted: as for :class:`DiLoCo`.
        :param process_group: as for :class:`DiLoCo`.
        :param tag: as for :class:`DiLoCo`.
        :param rejoin_timeout_s: as for :class:`DiLoCo`.
        :param on_event: as for :class:`DiLoCo`.
        """
        super().__init__(
            model,
            inner_optimizer,
            comm,
            H=H,
            outer={"lr": 1.0, "momentum": 0.0, **(outer or {})},
            fragments=fragments,
            overlap=overlap,
            delay=delay,
            eager=eager,
            mix=mix,
            quantize=top_k,
            min_peers=min_peers,
            check_every=check_every,
            max_norm=max_norm,
            weighted=weighted,
            process_group=process_group,
            tag=tag,
            rejoin_timeout_s=rejoin_timeout_s,
            on_event=on_event,
        )
