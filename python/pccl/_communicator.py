"""Membership in a run, and the collectives of its members."""

from __future__ import annotations

import os
import time
from collections import deque
from types import TracebackType
from typing import Any

from pccl import _lifetime, _native
from pccl._address import parse
from pccl._enums import Attribute, DistributionHint, QuantizationAlgorithm, ReduceOp, Result, SharedStateSyncStrategy
from pccl._errors import PCCLError, PCCLMasterConnectionError, PCCLUsageError, argument_error
from pccl._memory import Memory
from pccl._operation import AsyncReduceHandle
from pccl._values import (
    QuantizationOptions,
    ReduceDescriptor,
    ReduceInfo,
    ReduceOpDescriptor,
    ReduceOperandDescriptor,
    Reduction,
    SharedState,
    SharedStateSyncInfo,
    check_operand,
    reduce_memory,
    reduction_of,
)

_SETTINGS = {
    "name",
    "bind_address",
    "advertise_address",
    "port_range",
    "tcp_congestion",
    "peer_timeout_ms",
    "master_timeout_ms",
    "max_scratch_bytes",
    "max_concurrent_collective_ops",
    "multiplex_chunk_size",
    "num_benchmark_connections",
}
# Of these 0 means something, which the C interface writes as PCCL_CONFIG_NONE.
_SETTINGS_WITH_ZERO = {"master_timeout_ms", "max_scratch_bytes"}
_CONFIG_NONE = -1
_SECONDS_BETWEEN_ATTEMPTS = 1.0

Array = Any  # torch.Tensor or numpy.ndarray, neither of which is imported here


class Communicator:
    """One peer of a run.

    Any thread may call any method; calls that wait release the GIL. A signal handler that raises (Ctrl-C) ends a call
    that waits on the main thread: this peer has then left the run, and connect() joins again. A context manager:
    close() at the end. Making one touches no network.

    :param address: the master's: ``"ip:port"``, ``"host:port"`` or ``"[ipv6]:port"``.
    :param peer_group: tensors and shared state stay among the peers of one group.
    :param p2p_connection_pool_size: TCP connections to the next peer of the ring, up to 64; 0: 4. More of them fill
        long links better.
    :param settings: fields of ``pcclCommConfig_t``: ``name``, ``bind_address``, ``advertise_address``, ``port_range``,
        ``tcp_congestion``, ``peer_timeout_ms``, ``master_timeout_ms``, ``max_scratch_bytes``,
        ``max_concurrent_collective_ops``, ``multiplex_chunk_size``, ``num_benchmark_connections`` (docs/settings.md);
        what is None or not given is taken from the environment. ``master_timeout_ms=0``: calls fail at once when the
        master is lost; ``max_scratch_bytes=0``: no limit.
    :raises PCCLArgumentError: an address or a setting that cannot be used.
    :raises TypeError: a keyword that is no setting.
    """

    def __init__(
        self, address: str, peer_group: int = 0, p2p_connection_pool_size: int = 0, **settings: Any
    ) -> None:
        unknown = settings.keys() - _SETTINGS
        if unknown:
            raise TypeError(
                f"Communicator has no setting {', '.join(sorted(unknown))}; it has {', '.join(sorted(_SETTINGS))}"
            )
        for name, value in (("peer_group", peer_group), ("p2p_connection_pool_size", p2p_connection_pool_size)):
            if not 0 <= value <= 0xFFFFFFFF:
                raise argument_error("Communicator", f"{name} is {value}; use a number from 0 to 4294967295")
        self._target = parse(address, "Communicator")
        self._group = peer_group
        self._pool = p2p_connection_pool_size
        self._settings = dict(map(_setting, settings.items()))
        self._closed = False
        # Where each launched operation lies, until it is done: nobody else may hold the arrays.
        self._in_flight: dict[int, tuple[_native.Operation, tuple[Any, ...]]] = {}
        # Their keys, and perhaps some of operations that are over.
        self._in_flight_order: deque[int] = deque()
        self._comm: _native.Comm | None = None
        _lifetime.begin()
        if self._target.endpoint is not None:
            self._comm = self._create(*self._target.endpoint)
        _lifetime.communicators.add(self)

    @classmethod
    def from_env(cls, **settings: Any) -> Communicator:
        """From PCCL_MASTER_ADDRESS, PCCL_PEER_GROUP (0) and PCCL_P2P_CONNECTION_POOL_SIZE (0). Not connected yet.

        :param settings: as of the class.
        :raises PCCLArgumentError: PCCL_MASTER_ADDRESS is not set, or one of the others is no number.
        """
        function = "Communicator.from_env"
        address = os.environ.get("PCCL_MASTER_ADDRESS")
        if not address:
            raise argument_error(function, "PCCL_MASTER_ADDRESS is not set; set it to the master's host:port")
        numbers = []
        for name in ("PCCL_PEER_GROUP", "PCCL_P2P_CONNECTION_POOL_SIZE"):
            text = os.environ.get(name, "0")
            if not text.isdecimal():
                raise argument_error(function, f"{name} is '{text}'; set it to a number, or not at all")
            numbers.append(int(text))
        return cls(address, *numbers, **settings)

    # ---- membership

    def connect(self, n_attempts: int = 5) -> None:
        """Joins the run. Blocks until the members admit us with their next update_topology(); the first peer of a run
        enters at once. Whoever returns from it stands where the members stand after update_topology(), and need not
        call that in its first turn. Legal again after the run was lost.

        :param n_attempts: how often a master that does not answer or refuses us is tried, 1 s apart.
        :raises PCCLMasterConnectionError: no attempt succeeded; the text has the last cause.
        :raises PCCLUsageError: it is connected already, or closed.
        """
        if n_attempts < 1:
            raise argument_error("Communicator.connect", f"n_attempts is {n_attempts}; use 1 or more")
        for attempt in range(n_attempts):
            if attempt:
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
            try:
                self._connect_once()
                return
            except PCCLMasterConnectionError as error:
                failure = error
        attempts = "1 attempt" if n_attempts == 1 else f"{n_attempts} attempts"
        raise PCCLMasterConnectionError(
            failure.result,
            "pcclConnect",
            f"Failed to connect to the master node at {self._target.text} after {attempts}: {failure.cause}",
        ) from None

    def _connect_once(self) -> None:
        if self._closed or self._target.endpoint is not None:
            self._live().connect()
            return
        # A name may have several addresses, and other ones at the next attempt.
        failure: PCCLError | None = None
        for endpoint in self._target.resolve():
            former, self._comm = self._comm, self._create(*endpoint)
            if former is not None:
                former.close()
            try:
                self._comm.connect()
                return
            except PCCLMasterConnectionError as error:
                failure = error
        assert failure is not None
        raise failure

    def get_attribute(self, attribute: Attribute) -> int:
        """A world size, as of the call that returned last. Never blocks; all are 1 when we are out of the run.

        :param attribute: which one. What a reduction is to be divided by is in its own info, not here.
        """
        return self._live().attribute(attribute)

    def update_topology(self) -> None:
        """Admits the peers that wait and builds the rings. Blocks until all members of all groups have called it; a
        newcomer need not in its first turn. Alone it returns at once.

        :raises PCCLTopologyError: this peer was removed, or the master is gone: connect() again.
        :raises PCCLPendingAsyncOpsError: a launched reduction was not asked for its outcome.
        """
        self._live().update_topology()

    def are_peers_pending(self) -> bool:
        """Would update_topology() admit somebody? Blocks until all members of all groups have called it, who get one
        answer; nothing changes. Legal while reductions run.

        :raises PCCLUsageError: not connected, or lost.
        """
        return self._live().are_peers_pending()

    def optimize_topology(self) -> None:
        """Measures the bandwidths that are not known yet and takes the fastest ring of each group, never one that is
        worse than the present one. Blocks until all members of all groups have called it, and 20 s at most for the
        measurement (the method is that of arXiv 2505.14065: a travelling salesman's tour over measured bandwidths).

        :raises PCCLTopologyError: this peer was removed, or the master is gone.
        :raises PCCLUsageError: not connected, or alone in the run.
        :raises PCCLPendingAsyncOpsError: a launched reduction was not asked for its outcome.
        """
        self._live().optimize_topology()

    # ---- shared state

    def sync_shared_state(
        self,
        shared_state: SharedState,
        strategy: SharedStateSyncStrategy = SharedStateSyncStrategy.ENFORCE_POPULAR,
    ) -> SharedStateSyncInfo:
        """Afterwards all members of the group hold the same bytes under the same revision. Blocks until all members of
        the group have called it and have what they lacked; alone it returns at once. Nobody may write to the arrays
        meanwhile.

        What most members hold wins, where two contents are held equally often that of the longest member; entries are
        matched by name, and only those that differ travel. After a failure arrays and revision are as before.

        :param shared_state: its arrays are read and, where ours differ, written where they lie; its ``revision``
            becomes that of the group.
        :param strategy: ENFORCE_POPULAR on all members, or SEND_ONLY on those that have the content and RECEIVE_ONLY on
            the others.
        :returns: bytes of content that this call sent and received.
        :raises PCCLUsageError: it failed for the group, or this peer was removed: a revision ahead by more than one,
            names or types that others do not have. The text says which.
        :raises PCCLArgumentError: an array was given other memory since the state was made, or a value that cannot
            work.
        :raises PCCLPendingAsyncOpsError: a launched reduction was not asked for its outcome.
        """
        comm = self._live()
        if not isinstance(strategy, int):
            raise argument_error(
                "Communicator.sync_shared_state", f"strategy is {strategy!r}; use a pccl.SharedStateSyncStrategy"
            )
        entries = []
        for info in shared_state.tensor_infos:
            info._check_unmoved("Communicator.sync_shared_state")
            entries.append(
                (info.name, info.data_ptr, info.numel, info.dtype, info.device_type, info.allow_content_inequality)
            )
        revision = shared_state.revision
        if not 0 <= revision < 1 << 64:
            raise argument_error(
                "Communicator.sync_shared_state", f"the revision is {revision}; it starts at 0 and grows"
            )
        shared_state.revision, tx_bytes, rx_bytes = comm.synchronize(revision, entries, strategy)
        return SharedStateSyncInfo(tx_bytes, rx_bytes)

    # ---- reductions

    def all_reduce(
        self,
        send: Array,
        recv: Array,
        *,
        op: ReduceOp,
        tag: int = 0,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
    ) -> ReduceInfo:
        """Reduces over the group. Blocks until the outcome is known, which is the same for all members that are left;
        they all get the same bytes (a ring all-reduce as in arXiv 2505.14065). All members of the group pass the same
        count, type, ``op``, ``tag`` and quantization.

        :param send: a contiguous torch tensor or numpy array on the CPU, of any shape and of a type of
            :class:`DataType`. Not copied, not changed unless it is ``recv``, too.
        :param recv: the result: ``send`` itself, or an array of its kind, type and number of elements that does not
            overlap it. It may be a parameter or require grad; autograd does not record the reduction. After a failure
            it holds its input again if it is ``send``, and is undefined otherwise.
        :param op: what is done; AVG divides by the members that took part. Integers wrap around and their AVG
            truncates; float16 and bfloat16 are added up in float32.
        :param tag: which reduction this is, 0 to 2**64 - 1: several may run at a time under tags of their own.
        :param operand_descriptor: only checked against the arrays, and a hint for quantization; may be left out.
        :param quantization_options: float32 and float64 travel as small integers, with an error of at most half a step
            of their block at each hop; None: as they are.
        :returns: members that took part, bytes sent and received.
        :raises PCCLConnectionLostError: a member was lost, it failed for all; call again, or skip it, on all members
            alike.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array that cannot be used as it lies, or members that disagree.
        """
        source, target = reduce_memory(send, recv, "Communicator.all_reduce")
        reduction = _reduction(
            source, op, tag, operand_descriptor, quantization_options, "Communicator.all_reduce"
        )
        return ReduceInfo(*self._live().all_reduce(source.pointer, target.pointer, reduction))

    def all_reduce_async(
        self,
        send: Array,
        recv: Array,
        *,
        op: ReduceOp,
        tag: int = 0,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
    ) -> AsyncReduceHandle:
        """Launches a reduction and returns at once. Both arrays belong to it until its handle says that it is done:
        neither read nor write them meanwhile. They are kept alive.

        :param send: as of :meth:`all_reduce`.
        :param recv: as of :meth:`all_reduce`.
        :param op: as of :meth:`all_reduce`.
        :param tag: no other launched reduction of this communicator may have it; it is free again when its handle was
            asked for the outcome.
        :param operand_descriptor: as of :meth:`all_reduce`.
        :param quantization_options: as of :meth:`all_reduce`.
        :raises PCCLTooFewPeersError: alone in the group, or out of the run.
        :raises PCCLArgumentError: an array that cannot be used as it lies, or the tag is launched already.
        """
        source, target = reduce_memory(send, recv, "Communicator.all_reduce_async")
        reduction = _reduction(
            source, op, tag, operand_descriptor, quantization_options, "Communicator.all_reduce_async"
        )
        comm = self._live()
        operation = comm.all_reduce_async(source.pointer, target.pointer, reduction)
        self._let_go_of_some()
        key = id(operation)
        self._in_flight[key] = (operation, source.owners + target.owners)
        self._in_flight_order.append(key)
        return AsyncReduceHandle(operation, self._in_flight)

    def _let_go_of_some(self) -> None:
        """Of arrays of reductions that are done and whose handles were dropped. Each launch looks at two that were
        launched before, in turn: all of them in time, and none of them costs a launch more."""
        for _ in range(2):
            try:
                key = self._in_flight_order.popleft()
            except IndexError:
                return
            kept = self._in_flight.get(key)
            if kept is None:
                continue  # somebody waited for it
            if kept[0].done():
                self._in_flight.pop(key, None)
            else:
                self._in_flight_order.append(key)

    def all_reduce_multiple_with_retry(
        self, descriptors: list[ReduceOpDescriptor], *, max_in_flight: int = 4
    ) -> ReduceInfo:
        """Reduces many arrays, each with its own tag. Blocks until all are reduced; what fails because a peer was lost
        is tried again by the call itself, with those that are left. All members of the group pass the same tags, in any
        order.

        :param descriptors: one for each array, with tags that differ. Its pointers are used until the call returns.
        :param max_in_flight: how many run at a time, 1 or more; members may differ.
        :returns: members that took part in the reduction decided last, bytes of all attempts.
        :raises PCCLTooFewPeersError: the others are gone. Each array is reduced or holds its input, and it is not known
            which: keep a copy of inputs that have to be used again.
        :raises PCCLArgumentError: nothing to reduce, a tag twice, or members that disagree.
        """
        function = "Communicator.all_reduce_multiple_with_retry"
        if not descriptors:
            raise argument_error(function, "descriptors is empty: there is nothing to reduce")
        if not 1 <= max_in_flight < 1 << 31:
            raise argument_error(function, f"max_in_flight is {max_in_flight}; use 1 or more, 8 for example")
        reductions = [
            (one.sendbuf_ptr, one.recvbuf_ptr, reduction_of(one.reduce_descriptor)) for one in descriptors
        ]
        return ReduceInfo(*self._live().all_reduce_multiple_with_retry(reductions, max_in_flight))

    # ---- end

    def abort(self) -> None:
        """Makes every call that waits return, in any thread, with its error. This peer has then left the run; arrays of
        what came to no outcome hold their inputs, and connect() joins again. Takes some seconds at most."""
        self._live().abort()

    def close(self) -> None:
        """Leaves the run and frees everything. Calls that other threads have waiting fail. May be called again; every
        other method then raises PCCLUsageError."""
        self._closed = True
        comm = self._comm
        if comm is not None:
            comm.close()
        self._in_flight.clear()
        self._in_flight_order.clear()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """Counters of all memberships of this communicator: numbers in dictionaries, sizes in bytes (docs/settings.md
        has the fields). Never blocks."""
        import json

        counters: dict[str, Any] = json.loads(self._live().statistics())
        return counters

    def last_message(self) -> str:
        """Cause and remedy of the last failure, or for whom a vote waits at the moment; "" if there was none."""
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
    """As the C interface has it, in which 0 means that nothing was given."""
    name, value = given
    if value is None or isinstance(value, str):
        return given
    if value == 0 and name in _SETTINGS_WITH_ZERO:
        return name, _CONFIG_NONE
    if value <= 0:
        raise argument_error(
            "Communicator", f"{name} is {value}; use a number from the table in docs/settings.md, or leave it out"
        )
    return given


def _reduction(
    memory: Memory,
    op: ReduceOp,
    tag: int,
    operand: ReduceOperandDescriptor | None,
    quantization: QuantizationOptions | None,
    function: str,
) -> Reduction:
    if not isinstance(op, int):
        raise argument_error(function, f"op is {op!r}; use a pccl.ReduceOp")
    hint = DistributionHint.NONE
    if operand is not None:
        check_operand(operand, memory, function)
        hint = operand.distribution_hint
    if not 0 <= tag < 1 << 64:
        raise argument_error(function, f"tag is {tag}; use a number from 0 to 2**64 - 1")
    if quantization is None:
        return memory.elements, op, tag, memory.data_type, hint, memory.data_type, QuantizationAlgorithm.NONE
    return (
        memory.elements,
        op,
        tag,
        memory.data_type,
        hint,
        quantization.quantized_datatype,
        quantization.algorithm,
    )
