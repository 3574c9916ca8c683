"""``python -m pccl.master`` and the console script ``pccl_master``: a master that serves until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

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


if __name__ == "__main__":
    sys.exit(main())
