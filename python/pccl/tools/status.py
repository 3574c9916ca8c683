"""Reads the status of a master that was started with ``pccl-master --status`` (docs/operating.md)."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pccl.tools.screen import printable

DEFAULT_PORT = 48147
_BYTES_MAX = 64 << 20
_TIMEOUT_S = 5.0
_T = TypeVar("_T")


class StatusError(Exception):
    """No status came; the text names cause and remedy."""


@dataclass(frozen=True)
class Wait:
    vote: str
    tag: int | None
    for_ms: int
    others: int


@dataclass(frozen=True)
class Peer:
    name: str
    address: str
    group: int
    state: str
    since_ms: int
    heard_ms: int
    waits: Wait | None
    gang: str | None


@dataclass(frozen=True)
class Gang:
    """One whose peers wait to be admitted."""

    name: str
    awaits_former: bool
    missing: list[int]
    unreachable: list[int]

    def waits(self) -> str:
        if self.missing:
            return f"place {', '.join(map(str, self.missing))} of gang {self.name}"
        if self.awaits_former:
            return f"the end of the former gang {self.name}"
        if self.unreachable:
            return f"connections with place {', '.join(map(str, self.unreachable))} of gang {self.name}"
        return "update topology of the members"


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    up: bool
    bytes_per_second: int | None


@dataclass(frozen=True)
class Group:
    id: int
    ring: list[str]
    edges: list[Edge]
    expected_revision: int
    running: int
    syncing: bool
    committed: int
    aborted: int
    refused: int
    committed_bytes: int
    syncs: int


@dataclass(frozen=True)
class Vote:
    vote: str
    group: int | None
    tag: int | None
    open_ms: int
    voted: int
    missing: int
    waits_for: list[str]


@dataclass(frozen=True)
class Removal:
    peer: str
    reason: str
    ago_ms: int


@dataclass(frozen=True)
class Status:
    version: str
    run: str
    incarnation: int
    state: str
    uptime_ms: int
    epoch: int
    decisions: int
    members: int
    removed: int
    optimizing: bool
    groups: list[Group]
    peers: list[Peer]
    gangs: list[Gang]
    votes_open: int
    votes: list[Vote]
    removals: list[Removal]
    journal_waits_ms: int | None


def url_of(where: str) -> str:
    """Makes a URL of HOST, HOST:PORT, [V6]:PORT or a URL. Raises ValueError."""
    given = where if "://" in where else f"http://{where}"
    parts = urlsplit(given)
    port = parts.port  # raises if it is no number below 65536
    if parts.scheme != "http" or not parts.hostname or parts.username or port == 0:
        raise ValueError
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path if parts.path not in ("", "/") else "/status"
    return f"http://{host}:{DEFAULT_PORT if port is None else port}{path}"


def fetch(url: str) -> Status:
    # Proxies of the environment are for the web, not for a host of the run.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    other = (
        f"what answers at {url} is not the status of a master; give the port that `pccl-master --status` printed, "
        "not the one where peers connect"
    )
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as answer:
            body = _read(answer)
    except urllib.error.HTTPError as error:
        error.close()
        raise StatusError(f"{other} (HTTP {error.code})") from None
    except (http.client.HTTPException, ConnectionResetError):
        raise StatusError(other) from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            raise StatusError(f"nothing came from {url} within {_TIMEOUT_S:.0f} s; is it the right address?") from None
        raise StatusError(
            f"no status at {url}: {getattr(reason, 'strerror', None) or reason}; start the master with "
            f"`pccl-master --status HOST:PORT` and give that address here"
        ) from None
    try:
        if len(body) > _BYTES_MAX:
            raise ValueError
        return _status(json.loads(body))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StatusError(other) from None


def _read(answer: http.client.HTTPResponse) -> bytes:
    deadline = time.monotonic() + 2 * _TIMEOUT_S
    body = b""
    while len(body) <= _BYTES_MAX and (part := answer.read1()):
        body += part
        if time.monotonic() > deadline:
            raise TimeoutError
    return body


# Each reader raises for a value of another type, because the document may be anything.
def _take(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return value


def _text(value: object) -> str:
    return printable(_take(str, value))


def _number(value: object) -> int:
    return _take(int, value)


def _maybe(value: object) -> int | None:
    return None if value is None else _number(value)


def _objects(value: object) -> list[dict[str, Any]]:
    return [_take(dict, one) for one in _take(list, value)]


def _texts(value: object) -> list[str]:
    return [_text(one) for one in _take(list, value)]


def _wait(value: object) -> Wait | None:
    if value is None:
        return None
    fields = _take(dict, value)
    return Wait(_text(fields["vote"]), _maybe(fields["tag"]), _number(fields["for_ms"]), _number(fields["others"]))


def _peer(fields: dict[str, Any]) -> Peer:
    return Peer(
        name=_text(fields["peer"]),
        address=_text(fields["address"]),
        group=_number(fields["group"]),
        state=_text(fields["state"]),
        since_ms=_number(fields["since_ms"]),
        heard_ms=_number(fields["heard_ms"]),
        waits=_wait(fields["waits"]),
        gang=None if fields.get("gang") is None else _text(fields["gang"]),
    )


def _gang(fields: dict[str, Any]) -> Gang:
    return Gang(
        name=_text(fields["name"]),
        awaits_former=_take(bool, fields["awaits_former"]),
        missing=[_number(place) for place in _take(list, fields["missing"])],
        unreachable=[_number(place) for place in _take(list, fields["unreachable"])],
    )


def _edge(fields: dict[str, Any]) -> Edge:
    return Edge(
        _text(fields["from"]), _text(fields["to"]), _take(bool, fields["up"]), _maybe(fields["bytes_per_second"])
    )


def _group(fields: dict[str, Any]) -> Group:
    tally = _take(dict, fields["tally"])
    return Group(
        id=_number(fields["id"]),
        ring=_texts(fields["ring"]),
        edges=[_edge(edge) for edge in _objects(fields["edges"])],
        expected_revision=_number(fields["expected_revision"]),
        running=_number(fields["running"]),
        syncing=fields["sync"] is not None,
        committed=_number(tally["committed"]),
        aborted=_number(tally["aborted"]),
        refused=_number(tally["refused"]),
        committed_bytes=_number(tally["committed_bytes"]),
        syncs=_number(tally["syncs"]),
    )


def _vote(fields: dict[str, Any]) -> Vote:
    return Vote(
        vote=_text(fields["vote"]),
        group=_maybe(fields["group"]),
        tag=_maybe(fields["tag"]),
        open_ms=_number(fields["open_ms"]),
        voted=_number(fields["voted"]),
        missing=_number(fields["missing"]),
        waits_for=_texts(fields["waits_for"]),
    )


def _status(document: object) -> Status:
    fields = _take(dict, document)
    return Status(
        version=_text(fields["version"]),
        run=_text(fields["run"]),
        incarnation=_number(fields["incarnation"]),
        state=_text(fields["state"]),
        uptime_ms=_number(fields["uptime_ms"]),
        epoch=_number(fields["epoch"]),
        decisions=_number(fields["decisions"]),
        members=_number(fields["members"]),
        removed=_number(fields["removed"]),
        optimizing=_take(bool, fields["optimizing"]),
        groups=[_group(group) for group in _objects(fields["groups"])],
        peers=[_peer(peer) for peer in _objects(fields["peers"])],
        gangs=[_gang(gang) for gang in _objects(fields.get("gangs", [])) if not _take(bool, gang["admitted"])],
        votes_open=_number(fields["votes_open"]),
        votes=[_vote(vote) for vote in _objects(fields["votes"])],
        removals=[
            Removal(_text(one["peer"]), _text(one["reason"]), _number(one["ago_ms"]))
            for one in _objects(fields["removals"])
        ],
        journal_waits_ms=_maybe(fields.get("journal_waits_ms")),
    )
