"""All names of the package, under a second name that programs know."""

from pccl import *  # noqa: F403
