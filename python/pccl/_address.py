"""Addresses of masters: ``"ip:port"``, ``"host:port"`` and ``"[v6]:port"``."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from typing import NamedTuple

from pccl._enums import Result
from pccl._errors import PCCLMasterConnectionError, argument_error

_FORM = re.compile(r"^(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:\s]+)):(?P<port>[0-9]+)$")
_LOOKUP_S = 10.0


class Endpoint(NamedTuple):
    packed: bytes  # 4 or 16 bytes
    port: int


class Address(NamedTuple):
    text: str
    host: str
    port: int
    endpoint: Endpoint | None  # None if the host is a name

    def resolve(self, seconds: float | None = None) -> list[Endpoint]:
        """Returns the addresses of the host. The lookup runs in another thread, because it blocks in the system: so a
        signal can interrupt this call, and it gives up after 10 s, or after so many seconds."""
        if self.endpoint is not None:
            return [self.endpoint]
        found: list[Endpoint] = []
        errors: list[str] = []

        def look_up() -> None:
            try:
                for family, _, _, _, where in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
                    endpoint = Endpoint(socket.inet_pton(family, str(where[0]).split("%")[0]), self.port)
                    if endpoint not in found:
                        found.append(endpoint)
            except (OSError, UnicodeError) as error:
                errors.append(getattr(error, "strerror", None) or str(error))

        thread = threading.Thread(target=look_up, name="pccl-lookup", daemon=True)
        thread.start()
        wait = _LOOKUP_S if seconds is None else min(_LOOKUP_S, max(seconds, 0.0))
        thread.join(wait)
        if thread.is_alive() or not found:
            why = errors[0] if errors else f"no answer within {wait:.3g} s"
            raise PCCLMasterConnectionError(
                Result.MASTER_CONNECTION_FAILED,
                "Communicator.connect",
                f"the host '{self.host}' could not be looked up ({why}); check the name, or use an IP address",
            )
        return sorted(found, key=lambda endpoint: len(endpoint.packed))


def parse(text: str, function: str) -> Address:
    match = _FORM.match(text) if isinstance(text, str) else None
    if match is None:
        raise argument_error(
            function, f"{text!r} is no address; write 'ip:port', 'host:port' or '[ipv6]:port', e.g. '127.0.0.1:48148'"
        )
    port = int(match["port"])
    if port > 65535:
        raise argument_error(function, f"{text!r}: port {port} is above 65535")
    host = match["v6"] or match["host"]
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        if match["v6"] or re.fullmatch(r"[0-9.]+", host):
            raise argument_error(function, f"{text!r}: {host!r} is no IP address") from None
        return Address(text, host, port, None)
    return Address(text, host, port, Endpoint(packed, port))
