"""Detects the package of PCCL 1.0.0. Its distribution has another name (pypccl), but installs into the same folder."""

from __future__ import annotations

import os
import warnings


def warn_if_installed(package: str) -> None:
    """``package``: the folder of this package. If both packages were installed there, removing either breaks the other:
    pip deletes the files that it installed under a name, even if the other package has overwritten them."""
    site = os.path.dirname(package)
    try:
        both = any(name.startswith("pypccl-") for name in os.listdir(site))
    except OSError:
        return
    if both:
        warnings.warn(
            f"pypccl (PCCL 1.0.0) is installed in {site}, too, and owns files of this package: removing or upgrading one "
            "breaks the other. Remove both (pip uninstall pypccl pccl), then install pccl again",
            RuntimeWarning,
            stacklevel=3,
        )
