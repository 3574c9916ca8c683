"""Membership in a run, and the collectives of its members."""

from __future__ import annotations

import os
import time
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
_SECONDS_BETWEEN_ATTEMPTS = 1.0

Array = Any  # torch.Tensor or numpy.ndarray, neither of which is imported here


class Communicator:
    """One peer of a run.

    ``address`` is the master's: ``"ip:port"``, ``"host:port"`` or ``"[ipv6]:port"``. Collectives run among the peers of one
    ``peer_group``. Further keywords are the settings of ``pcclCommConfig_t`` (docs/settings.md); what is not given is taken
    from the environment. Any thread may call any method; calls that wait release the GIL. A signal handler that raises
    (Ctrl-C) ends a call that waits on the main thread: this peer has then left the run, and connect() joins again.
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
        self._settings = settings
        self._closed = False
        # Where each launched operation lies, until it is done: nobody else may hold the arrays.
        self._in_flight: dict[int, tuple[_native.Operation, tuple[Any, ...]]] = {}
        self._comm: _native.Comm | None = None
        _lifetime.begin()
        if self._target.endpoint is not None:
            self._comm = self._create(*self._target.endpoint)
        _lifetime.communicators.add(self)

    @classmethod
    def from_env(cls, **settings: Any) -> Communicator:
        """From PCCL_MASTER_ADDRESS, PCCL_PEER_GROUP (0) and PCCL_P2P_CONNECTION_POOL_SIZE (0). Not connected yet."""
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
        """Joins the run; waits until the present peers admit us. Attempts are 1 s apart."""
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
        """A world size of the last epoch that a call returned with. Never blocks; all are 1 when we are out of the run."""
        return self._live().attribute(attribute)

    def update_topology(self) -> None:
        """Admits the peers that wait. All members call it together; a newcomer not in its first turn."""
        self._live().update_topology()

    def are_peers_pending(self) -> bool:
        """Would update_topology() admit somebody? All members call it together and get one answer; legal while
        reductions run."""
        return self._live().are_peers_pending()

    def optimize_topology(self) -> None:
        """Measures the connections and takes the fastest ring. All members call it together."""
        self._live().optimize_topology()

    # ---- shared state

    def sync_shared_state(
        self,
        shared_state: SharedState,
        strategy: SharedStateSyncStrategy = SharedStateSyncStrategy.ENFORCE_POPULAR,
    ) -> SharedStateSyncInfo:
        """Afterwards all members of the group hold the same content under the same revision."""
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
            raise argument_error("Communicator.sync_shared_state", f"the revision is {revision}; it starts at 0 and grows")
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
        """Reduces over the group; all members get the same bytes in ``recv``, which may be ``send``. After a failure an
        array that was both holds its input again."""
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
        """Launches a reduction. Both arrays belong to it until its handle says that it is done; they are kept alive."""
        source, target = reduce_memory(send, recv, "Communicator.all_reduce_async")
        reduction = _reduction(
            source, op, tag, operand_descriptor, quantization_options, "Communicator.all_reduce_async"
        )
        comm = self._live()
        operation = comm.all_reduce_async(source.pointer, target.pointer, reduction)
        for key, (earlier, _) in list(self._in_flight.items()):
            if earlier.done():
                self._in_flight.pop(key, None)
        self._in_flight[id(operation)] = (operation, source.owners + target.owners)
        return AsyncReduceHandle(operation, self._in_flight)

    def all_reduce_multiple_with_retry(
        self, descriptors: list[ReduceOpDescriptor], *, max_in_flight: int = 4
    ) -> ReduceInfo:
        """Reduces many arrays, each with its own tag, at most ``max_in_flight`` at a time. What fails because a peer was
        lost is tried again by the call itself; it returns when all are reduced, or raises PCCLTooFewPeersError."""
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
        """Makes every call that waits return, in any thread. This peer has then left the run; connect() joins again."""
        self._live().abort()

    def close(self) -> None:
        """Leaves the run and frees everything. Calls that other threads have waiting fail. May be called again."""
        self._closed = True
        comm = self._comm
        if comm is not None:
            comm.close()
        self._in_flight.clear()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """Counters of all memberships of this communicator (docs/settings.md)."""
        import json

        counters: dict[str, Any] = json.loads(self._live().statistics())
        return counters

    def last_message(self) -> str:
        """Cause of the last failure, or for whom a vote waits at the moment."""
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
