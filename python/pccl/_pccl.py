"""All names of the package as ``pccl._pccl``, because existing programs import that module."""

from pccl import *  # noqa: F403
