"""CUDA support of the package."""

from __future__ import annotations

import importlib.util


def is_available() -> bool:
    """Whether tensors on a CUDA device can be used: torch is installed and sees one. Imports torch if it is installed. The
    C library works on CPU memory alone; this package copies tensors through page-locked memory."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
