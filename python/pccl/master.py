"""Masters that serve until SIGINT or SIGTERM. ``main`` serves within this process; ``daemon`` runs the program
``pccl-master``. ``python -m pccl.master`` and the scripts ``pccl_master`` and ``pccl-master`` run ``daemon``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pccl._errors import PCCLError
from pccl._master import MasterNode, serve_until_interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pccl_master", description="Master of a PCCL run.")
    parser.add_argument(
        "--listen-address",
        "--listen",
        default="0.0.0.0:48148",
        metavar="HOST:PORT",
        help="where peers find it; port 0: any free port (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        master = MasterNode(options.listen_address)
    except PCCLError as error:
        parser.error(error.cause)
    try:
        master.run()
    except PCCLError as error:
        print(f"pccl_master: {error.cause}", file=sys.stderr)
        return 1
    host = options.listen_address.rsplit(":", 1)[0]
    print(f"listening on {host}:{master.port}", flush=True)
    serve_until_interrupted([master])
    return 0


def daemon(arguments: Sequence[str] | None = None) -> int:
    """Replaces this process with the ``pccl-master`` of the package. Returns only if that fails."""
    program = Path(__file__).parent / "bin" / "pccl-master"
    try:
        os.execv(program, ["pccl-master", *(sys.argv[1:] if arguments is None else arguments)])
    except OSError as error:
        print(f"pccl-master: {program}: {error.strerror}; install the package anew, or `./dev python`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(daemon())
