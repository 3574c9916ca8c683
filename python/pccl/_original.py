"""The package of PCCL 1.0.0, whose distribution has another name (pypccl) and the same folder of files."""

from __future__ import annotations

import os
import warnings


def warn_if_installed(package: str) -> None:
    """``package``: the folder of this one. Once both are in it, removing either breaks the other: pip deletes what it
    installed under a name, whoever wrote the file last."""
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
