"""CUDA support of the library."""

from __future__ import annotations

from pccl import _native


def is_available() -> bool:
    """Whether this build works on CUDA memory."""
    return _native.has_cuda_support()
