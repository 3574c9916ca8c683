"""The class Communicator: membership in a run, and shared state. Its base classes have the collectives."""

from __future__ import annotations

import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, TypedDict, Unpack

from pccl import _lifetime, _native, _staging
from pccl._address import Endpoint, parse
from pccl._collectives import _Seen
from pccl._enums import Attribute, CommunicatorState, DeviceType, Result, SharedStateSyncStrategy
from pccl._errors import (
    PCCLError,
    PCCLMasterConnectionError,
    PCCLSyncError,
    PCCLUsageError,
    argument_error,
    left_for_time,
)
from pccl._limits import Timeout, limit, seconds_of
from pccl._reductions import Reductions
from pccl._staging import is_on_gpu
from pccl._values import SharedState, SharedStateSyncInfo, is_utf8


class Settings(TypedDict, total=False):
    """Keywords of :class:`Communicator`: fields of ``pcclCommConfig_t``, which docs/settings.md describes."""

    name: str | None
    bind_address: str | None
    advertise_address: str | None
    port_range: str | None
    tcp_congestion: str | None
    invite: str | None
    peer_timeout_ms: int | None
    master_timeout_ms: int | None
    max_scratch_bytes: int | None
    max_concurrent_collective_ops: int | None
    multiplex_chunk_size: int | None
    num_benchmark_connections: int | None


_SETTINGS = Settings.__annotations__.keys()
# In these settings 0 is a value. In the C interface 0 means "not given", so they are passed as PCCL_CONFIG_NONE.
_SETTINGS_WITH_ZERO = {"master_timeout_ms", "max_scratch_bytes"}
_SETTINGS_OF_TEXT = {"name", "bind_address", "advertise_address", "port_range", "tcp_congestion", "invite"}
_SETTINGS_OF_64_BITS = {"peer_timeout_ms", "master_timeout_ms", "max_scratch_bytes"}
_CONFIG_NONE = -1
_SECONDS_BETWEEN_ATTEMPTS = 1.0


# The master's address in an invitation: pccl-invite-1/HOST:PORT/...
def _address_of(invite: str | None) -> str:
    parts = (invite or "").split("/")
    if len(parts) != 5:
        raise argument_error("Communicator", "there is no address; give one, or an invitation (invite, PCCL_INVITE)")
    return parts[1]


class Communicator(Reductions):
    """One peer of a run.

    Any thread may call any method. Calls that wait release the GIL. If a signal handler raises (Ctrl-C) while a call
    waits on the main thread, that call ends. This peer has then left the run, and connect() joins again. The attribute
    ``pccl_succeeded`` of the exception tells whether the call succeeded all the same (docs/python.md). The constructor
    opens no connection. As a context manager, a communicator calls close() at the end.

    Calls that block take ``timeout``: seconds or a timedelta; None: no limit but those of docs/settings.md. If a call
    is not done in time, this peer leaves the run, as with :meth:`abort`, and the call raises PCCLTimeoutError. The
    operation then ends for the other members too: a collective fails or is committed for all of them, and a vote goes
    on without this peer. The limit is kept to within a tenth of a second, plus the time that abort() takes. For a limit
    that leaves the run as it is, launch the collective (``..._async``) and give the limit to its handle.

    :param address: address of the master: ``"ip:port"``, ``"host:port"`` or ``"[ipv6]:port"``. With an invitation it is
        not used and may be None: the invitation contains it.
    :param peer_group: any number; only peers with the same number reduce and synchronize with each other.
    :param p2p_connection_pool_size: number of TCP connections to the next peer of the ring, up to 64; 0 means 4. Links
        with a long round trip need more connections to reach their bandwidth.
    :param gang: name, size and place of this process in its gang: processes that join and leave the run together, such
        as those of one sharded replica of a model. All of them give the same name and size, and each another place from 0
        to size - 1; usually the process at place k is in peer group k. connect() waits until the gang is complete and
        connected, and one update_topology() of the members admits all of it. When one of them leaves or is lost, the
        others are removed at the same moment.
    :param gang_timeout_s: with a gang: how long connect() waits for missing places; None: without limit.
    :param settings: fields of ``pcclCommConfig_t``: ``name``, ``bind_address``, ``advertise_address``, ``port_range``,
        ``tcp_congestion``, ``invite`` (of a secure run, docs/security.md), ``peer_timeout_ms``, ``master_timeout_ms``,
        ``max_scratch_bytes``, ``max_concurrent_collective_ops``, ``multiplex_chunk_size``,
        ``num_benchmark_connections`` (docs/settings.md).
        If a setting is None or left out, its value comes from the environment. ``master_timeout_ms=0``: calls fail at
        once if the master is lost; ``max_scratch_bytes=0``: no limit.
    :raises PCCLArgumentError: an address or a setting that cannot be used.
    :raises TypeError: a keyword that is no setting.
    """

    def __init__(
        self,
        address: str | None = None,
        peer_group: int = 0,
        p2p_connection_pool_size: int = 0,
        *,
        gang: tuple[str, int, int] | None = None,
        gang_timeout_s: float | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        unknown = settings.keys() - _SETTINGS
        if unknown:
            raise TypeError(
                f"Communicator has no setting {', '.join(sorted(unknown))}; it has {', '.join(sorted(_SETTINGS))}"
            )
        for name, value in (("peer_group", peer_group), ("p2p_connection_pool_size", p2p_connection_pool_size)):
            if not 0 <= value <= 0xFFFFFFFF:
                raise argument_error("Communicator", f"{name} is {value}; use a number from 0 to 4294967295")
        if address is None:
            address = _address_of(settings.get("invite") or os.environ.get("PCCL_INVITE"))
        self._target = parse(address, "Communicator")
        self._group = peer_group
        self._pool = p2p_connection_pool_size
        self._settings = dict(map(_setting, settings.items())) | _gang_settings(gang, gang_timeout_s)
        self._gang = gang
        self._closed = False
        self._closing = threading.RLock()
        self._was_connected = False
        # Operations that are not known to be done, with the owners of their memory. This keeps the arrays alive if the
        # program has dropped them.
        self._in_flight: dict[_native.Pending, tuple[Any, ...]] = {}
        # All keys of _in_flight, and some that it no longer has; the order in which _release_done_arrays() checks them.
        self._in_flight_order: deque[_native.Pending] = deque()
        self._comm: _native.Comm | None = None
        self._endpoint = self._target.endpoint  # that of _comm
        self._seen = _Seen()
        self._order = ()
        _lifetime.begin()
        if self._endpoint is not None:
            self._comm = self._create(*self._endpoint)
        _lifetime.communicators.add(self)

    @classmethod
    def from_env(cls, **settings: Unpack[Settings]) -> Communicator:
        """Makes a communicator from PCCL_MASTER_ADDRESS, PCCL_PEER_GROUP (default 0) and
        PCCL_P2P_CONNECTION_POOL_SIZE (default 0). It is not connected yet. Returns at
        once.

        :param settings: as for the class.
        :raises PCCLArgumentError: PCCL_MASTER_ADDRESS is not set, or one of the others is no number.
        """
        function = "Communicator.from_env"
        address = os.environ.get("PCCL_MASTER_ADDRESS")
        if not address and os.environ.get("PCCL_INVITE"):
            address = None
        elif not address:
            raise argument_error(function, "PCCL_MASTER_ADDRESS is not set; set it to the master's host:port")
        numbers = []
        for name in ("PCCL_PEER_GROUP", "PCCL_P2P_CONNECTION_POOL_SIZE"):
            text = os.environ.get(name, "0")
            if not text.isdecimal():
                raise argument_error(function, f"{name} is '{text}'; set it to a number, or not at all")
            numbers.append(int(text))
        return cls(address, *numbers, **settings)

    # ---- membership

    def connect(self, n_attempts: int = 5, *, timeout: Timeout = None) -> None:
        """Joins the run. Blocks until the members admit this peer in their next update_topology(); the first peer of a
        run is admitted at once. connect() returns when the members return from that update_topology(). So in its first
        turn this peer goes on with the call after it. May be called again after this peer was removed or the master was
        lost.

        :param n_attempts: how often to try, 1 s apart, if the master does not answer or refuses this peer.
        :param timeout: as for the class; for all attempts together.
        :raises PCCLTimeoutError: not admitted in time.
        :raises PCCLMasterConnectionError: no attempt succeeded; the text names the last cause.
        :raises PCCLArgumentError: the invitation is spent, expired, withdrawn or revoked. It is not tried again.
        :raises PCCLConnectionLostError: the network of this peer translates addresses, and neither this peer nor the
            members can connect to the other.
        :raises PCCLUsageError: connected already, or closed.
        """
        if n_attempts < 1:
            raise argument_error("Communicator.connect", f"n_attempts is {n_attempts}; use 1 or more")
        seconds = seconds_of(timeout, "Communicator.connect")
        end = None if seconds is None else time.monotonic() + seconds
        if self.state is not CommunicatorState.MEMBER:  # a member is refused, and stays one
            self._seen.info = None
        with limit(seconds, "Communicator.connect"):
            for attempt in range(n_attempts):
                if attempt:
                    # The last attempt before the time limit may find the master.
                    rest = _SECONDS_BETWEEN_ATTEMPTS if end is None else end - time.monotonic()
                    time.sleep(min(_SECONDS_BETWEEN_ATTEMPTS, max(0.0, rest)))
                try:
                    self._connect_once(end)
                    return
                except PCCLMasterConnectionError as error:
                    failure = error
                if end is not None and time.monotonic() >= end:
                    raise left_for_time(failure.result, "pcclConnect") from failure
        attempts = "1 attempt" if n_attempts == 1 else f"{n_attempts} attempts"
        raise PCCLMasterConnectionError(
            failure.result,
            "pcclConnect",
            f"Failed to connect to the master node at {self._target.text} after {attempts}: {failure.cause}",
        ) from None

    def _connect_once(self, end: float | None) -> None:
        if self._closed or self._target.endpoint is not None or self.state is CommunicatorState.MEMBER:
            self._connect_to(self._live())
            return
        # The address is a host name. It may have several IP addresses, which may change between attempts.
        failure: PCCLError | None = None
        for endpoint in self._target.resolve(None if end is None else end - time.monotonic()):
            try:
                self._connect_to(self._comm_at(endpoint))
                return
            except PCCLMasterConnectionError as error:
                failure = error
        assert failure is not None
        raise failure

    def _connect_to(self, comm: _native.Comm) -> None:
        try:
            comm.connect()
        except BaseException as error:
            # A signal handler may have raised when the call had succeeded.
            self._was_connected |= getattr(error, "pccl_succeeded", False)
            raise
        self._was_connected = True

    def _comm_at(self, endpoint: Endpoint) -> _native.Comm:
        """Another address of the master needs another native communicator. It counts anew."""
        with self._closing:
            if self._closed or endpoint == self._endpoint:
                return self._live()
            former, self._comm = self._comm, self._create(*endpoint)
            self._endpoint, self._was_connected = endpoint, False
            if self._order:
                self._comm.set_piece_order(self._order)
        if former is not None:
            former.close()
        return self._live()

    def get_attribute(self, attribute: Attribute) -> int:
        """Returns a number of members, groups or gangs, as of the last call that returned. Never blocks. When this peer
        is out of the run, NUM_GANGS is 0 and all others are 1.

        :param attribute: which number. Do not divide a sum by it: the info of the reduction has its own world size.
        :raises PCCLUsageError: the first connect() has not succeeded yet.
        """
        return self._live().attribute(attribute)

    @property
    def state(self) -> CommunicatorState:
        """Whether this peer is in the run, as far as this peer knows. Waits for no other peer."""
        if self._closed:
            return CommunicatorState.CLOSED
        if self._comm is None or not self._was_connected:
            return CommunicatorState.NEW
        membership = self.stats()["membership"]
        return CommunicatorState.MEMBER if membership["connects"] > membership["losses"] else CommunicatorState.LOST

    @property
    def world_size(self) -> int:
        """Members of this peer's group, as of the last call that returned. 1 if this peer is out of the run, or has not
        joined one. Never blocks."""
        return self._group_size()

    @property
    def global_world_size(self) -> int:
        """Members of the run in all groups; otherwise like :attr:`world_size`."""
        return self._size(Attribute.GLOBAL_WORLD_SIZE)

    @property
    def world_gangs(self) -> int:
        """Gangs in the run, as of the last call that returned. 0 if this peer is out of the run. Never blocks."""
        return self.get_attribute(Attribute.NUM_GANGS) if self._was_connected and not self._closed else 0

    def _group_size(self) -> int:
        return self._size(Attribute.PEER_GROUP_WORLD_SIZE)

    def _size(self, attribute: Attribute) -> int:
        # Reading attributes of a communicator that was never connected is an error, which would be logged.
        return self.get_attribute(attribute) if self._was_connected and not self._closed else 1

    def update_topology(self, *, timeout: Timeout = None) -> None:
        """Admits the peers that wait, and builds the rings. Blocks until all members of all groups have called it. If
        this peer is alone in the run, it returns at once. A newcomer need not call it in its first turn.

        :param timeout: as for the class.
        :raises PCCLTopologyError: this peer was removed, or the master is gone: connect() again.
        :raises PCCLTimeoutError: not done in time; this peer has left the run.
        :raises PCCLPendingAsyncOpsError: a launched reduction was not awaited through its handle.
        """
        with limit(timeout, "Communicator.update_topology"):
            self._live().update_topology()

    def are_peers_pending(self, *, timeout: Timeout = None) -> bool:
        """Returns whether update_topology() would admit a peer. Blocks until all members of all groups have called it.
        All members get the same answer. Changes nothing. May be called while reductions run.

        :param timeout: as for the class.
        :raises PCCLTimeoutError: not done in time; this peer has left the run.
        :raises PCCLUsageError: not connected, removed from the run, or the master is gone.
        """
        with limit(timeout, "Communicator.are_peers_pending"):
            return self._live().are_peers_pending()

    def optimize_topology(self, *, timeout: Timeout = None) -> None:
        """Measures bandwidths between members that are unknown or more than an hour old, and installs the fastest ring
        found for each group. By the measurements, a ring never gets slower. Blocks until all members of all groups have
        called it, and then about 20 s at most for the measurements. The method is that of arXiv 2505.14065: a
        travelling salesman's tour over measured bandwidths.

        :param timeout: as for the class.
        :raises PCCLTimeoutError: not done in time; this peer has left the run.
        :raises PCCLTopologyError: this peer was removed, the master is gone, or all other members were lost.
        :raises PCCLUsageError: not connected, or alone in the run.
        :raises PCCLPendingAsyncOpsError: a launched reduction was not awaited through its handle.
        """
        with limit(timeout, "Communicator.optimize_topology"):
            self._live().optimize_topology()

    # ---- shared state

    def sync_shared_state(
        self,
        shared_state: SharedState,
        strategy: SharedStateSyncStrategy = SharedStateSyncStrategy.ENFORCE_POPULAR,
        *,
        timeout: Timeout = None,
    ) -> SharedStateSyncInfo:
        """Makes the members of the group hold the same bytes under the same revision. Blocks until all members of the
        group have called it and have received the content that they lacked. If this peer is alone in the group, it
        returns at once. No thread may write to the arrays during the call.

        The content that most members hold wins; on a tie, that of the member that was admitted first. If members have
        synchronized in this run before, only their content counts. Entries are matched by name, and only content that
        differs is sent. After a failure, arrays and revision are as before.

        :param shared_state: its arrays are read, and overwritten if this peer's content differs. Its ``revision``
            becomes that of the group.
        :param strategy: ENFORCE_POPULAR on all members; or SEND_ONLY on those that have the content and RECEIVE_ONLY on
            the others.
        :param timeout: as for the class.
        :returns: bytes of content that this call sent and received.
        :raises PCCLTimeoutError: not done in time; this peer has left the run.
        :raises PCCLSyncError: the synchronization failed for the group. Or this peer is out of the run, or was removed:
            its revision is more than one above the last agreed one, or its names or types differ from those of the
            others. The text names the reason.
        :raises PCCLArgumentError: an array has other memory than when its TensorInfo was made, or an argument is wrong.
        :raises PCCLPendingAsyncOpsError: a launched reduction was not awaited through its handle.
        """
        comm = self._live()
        if not isinstance(strategy, int):
            raise argument_error(
                "Communicator.sync_shared_state", f"strategy is {strategy!r}; use a pccl.SharedStateSyncStrategy"
            )
        for info in shared_state.tensor_infos:
            info._check_unmoved("Communicator.sync_shared_state")
        revision = shared_state.revision
        if not 0 <= revision < 1 << 64:
            raise argument_error(
                "Communicator.sync_shared_state", f"the revision is {revision}; it starts at 0 and grows"
            )
        fetched = [
            (info, _staging.Fetch(info._gpu_tensor("Communicator.sync_shared_state")))
            for info in shared_state.tensor_infos
            if is_on_gpu(info.device_type)
        ]
        pointers = {id(info): fetch.wait().data_ptr() for info, fetch in fetched}
        entries = [
            (
                info.name,
                pointers.get(id(info), info.data_ptr),
                info.numel,
                info.dtype,
                DeviceType.CPU,
                info.allow_content_inequality,
            )
            for info in shared_state.tensor_infos
        ]
        try:
            with limit(timeout, "Communicator.sync_shared_state"):
                revision, tx_bytes, rx_bytes = comm.synchronize(revision, entries, strategy)
        except PCCLUsageError as error:
            if error.result == Result.INVALID_USAGE:
                raise PCCLSyncError(error.result, error.func_name, error.cause) from None
            raise
        if rx_bytes:
            for info, fetch in fetched:
                _staging.store(fetch.host, info._gpu_tensor("Communicator.sync_shared_state"))
        shared_state.revision = revision  # only once the arrays hold its content
        return SharedStateSyncInfo(tx_bytes, rx_bytes)

    # ---- arrays in flight

    def _start(
        self, owners: tuple[Any, ...], launch: Callable[[_native.Operation], None]
    ) -> tuple[_native.Operation, Callable[[], object]]:
        """Launches an operation, and keeps the owners of its memory alive until it is done. Returns it, and how its
        handle releases them. A signal handler may raise anywhere in here, also when the launch has just succeeded. So
        the owners are kept before it, and an operation that is dropped is awaited by its destructor."""
        self._release_done_arrays()
        operation = _native.Operation()
        pending = _native.Pending(operation)
        release = partial(self._in_flight.pop, pending, None)
        self._in_flight[pending] = owners
        self._in_flight_order.append(pending)
        try:
            launch(operation)
        finally:
            if not operation.is_launched():
                release()
        return operation, release

    def _release_done_arrays(self) -> None:
        """Releases the arrays of reductions that are done but were not awaited with wait(), for example because their
        handles were dropped. Each launch checks at most two earlier ones, round-robin: all are checked in the end, and
        the cost per launch is constant."""
        for _ in range(2):
            try:
                pending = self._in_flight_order.popleft()
            except IndexError:
                return
            if pending not in self._in_flight:
                continue  # its handle was awaited
            if pending.done_or_dropped():
                self._in_flight.pop(pending, None)
            else:
                self._in_flight_order.append(pending)

    # ---- end

    def abort(self) -> None:
        """Leaves the run at once. Every call that waits in another thread raises its error, and connect() joins again.
        Arrays of operations that have no outcome hold their inputs. Usually blocks for some seconds at most. If this
        peer is in no run, it only makes a waiting connect() fail.

        :raises PCCLUsageError: closed.
        """
        if self._comm is not None or self._closed:
            self._live().abort()

    def close(self) -> None:
        """Leaves the run and frees everything. Usually blocks for some seconds at most. Calls that wait fail, in other
        threads and below a signal handler that closes. May be called again. After it, all other methods raise
        PCCLUsageError."""
        self._closed = True
        comm = self._comm
        if comm is not None and comm.waits_here():
            # A signal handler within a call. The communicator leaves the run now, and is freed when that call returns.
            # The lock may be held by a thread that waits for that.
            comm.close()
            return
        # A second thread waits here: the arrays may go only when the first one is done.
        with self._closing:
            if self._comm is not None:
                self._comm.close()
            self._in_flight.clear()
            self._in_flight_order.clear()

    def __del__(self) -> None:
        # Without it the arrays in flight would go first, and the communicator that writes to them last.
        if hasattr(self, "_seen"):
            self.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """Returns the counters of this communicator, summed over all its memberships: nested dictionaries, sizes in
        bytes. docs/settings.md lists the fields. They begin anew if the host name of the master leads to another
        address. Waits for no other peer."""
        import json

        counters: dict[str, Any] = json.loads(self._live().statistics())
        return counters

    def last_message(self) -> str:
        """Returns cause and remedy of the last failure; "" if there was none. After a call has waited in a vote for
        PCCL_VOTE_WARN_S, it returns instead which members are missing. Returns at once."""
        return self._live().last_message()

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<pccl.Communicator of group {self._group} at {self._target.text}{state}>"

    def _create(self, packed: bytes, port: int) -> _native.Comm:
        return _native.Comm(packed, port, self._group, self._pool, self._settings)

    def _live(self) -> _native.Comm:
        if self._closed:
            raise PCCLUsageError(Result.INVALID_USAGE, "Communicator", "it is closed; make another one")
        if self._comm is None:
            raise PCCLUsageError(Result.INVALID_USAGE, "Communicator", "it was never connected; call connect() first")
        return self._comm


def _setting(given: tuple[str, Any]) -> tuple[str, Any]:
    """Converts a name and its value to the form of the C interface, where 0 means "not given"."""
    name, value = given
    if value is None:
        return given
    if name in _SETTINGS_OF_TEXT:
        if isinstance(value, str) and "\0" not in value and is_utf8(value):
            return given
        raise argument_error(
            "Communicator",
            f"{name} is {value!r}; use a string without zero bytes and lone surrogates, or leave it out",
        )
    try:
        value = operator.index(value)
    except TypeError:
        raise argument_error("Communicator", f"{name} is {value!r}; use a whole number, or leave it out") from None
    if value == 0 and name in _SETTINGS_WITH_ZERO:
        return name, _CONFIG_NONE
    if not 0 < value < 1 << (63 if name in _SETTINGS_OF_64_BITS else 32):
        raise argument_error(
            "Communicator", f"{name} is {value}; use a number from the table in docs/settings.md, or leave it out"
        )
    return name, value


def _gang_settings(gang: tuple[str, int, int] | None, timeout_s: float | None) -> dict[str, Any]:
    if gang is None:
        if timeout_s is not None:
            raise argument_error("Communicator", "gang_timeout_s is given, and gang is not")
        return {}
    if not isinstance(gang, tuple) or [type(part) for part in gang] != [str, int, int]:
        raise argument_error("Communicator", f"gang is {gang!r}; use a tuple of its name, its size and this place")
    name, size, place = gang
    if "\0" in name or not is_utf8(name):
        raise argument_error("Communicator", f"gang is {gang!r}; use a name without zero bytes and lone surrogates")
    if not (0 < size <= 0xFFFFFFFF and 0 <= place < size):
        raise argument_error("Communicator", f"gang is {gang!r}; use a size above 0, and a place from 0 to size - 1")
    if timeout_s is None:
        milliseconds = 0
    elif 0 < timeout_s <= 4_294_967:
        milliseconds = max(1, round(timeout_s * 1000))
    else:
        raise argument_error("Communicator", f"gang_timeout_s is {timeout_s}; use seconds above 0, or None")
    return {"gang_name": name, "gang_size": size, "gang_place": place, "gang_timeout_ms": milliseconds}
