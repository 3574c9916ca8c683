"""``python -m pccl``: the package's programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

_USAGE = """usage: python -m pccl COMMAND [OPTION ...]

commands:
  top     who is in a run, its ring, what is done and who waits for whom
  demo    a small training on this machine, with a peer that is killed and comes back
  master  a master that serves until it is interrupted
  doctor  what is between this host and a master: name, address, firewalls, translators, TLS

python -m pccl COMMAND --help tells more."""


def _command(name: str) -> Callable[[Sequence[str]], int] | None:
    # Each command is imported only when it runs: `top` must work without numpy.
    if name == "top":
        from pccl.tools import top

        return top.main
    if name == "demo":
        from pccl.tools import demo

        return demo.main
    if name == "master":
        import pccl.master as master

        return master.daemon
    if name == "doctor":
        import pccl.master as master

        return lambda arguments: master.daemon(["doctor", *arguments])
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        print(_USAGE, file=sys.stderr)
        return 2
    if given[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    command = _command(given[0])
    if command is None:
        print(f"python -m pccl: there is no command {given[0]!r}\n\n{_USAGE}", file=sys.stderr)
        return 2
    return command(given[1:])


if __name__ == "__main__":
    sys.exit(main())
