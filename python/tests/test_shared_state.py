"""Shared state: what is sent, which content wins, and revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import in_one_run
from pccl import SharedState, SharedStateSyncStrategy, TensorInfo

RunPeers = Callable[..., list[Any]]


def state_of(**arrays: numpy.ndarray) -> SharedState:
    return SharedState([TensorInfo.from_numpy(array, name) for name, array in arrays.items()])


def test_only_what_differs_travels(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> tuple[int, int]:
        same, other = numpy.ones(1000), numpy.full(2000, float(index == 2))
        state = state_of(same=same, other=other)
        info = communicator.sync_shared_state(state)
        assert (other == 0).all() and (same == 1).all()
        state.push_revision()
        assert communicator.sync_shared_state(state) == pccl.SharedStateSyncInfo(0, 0)
        return info.tx_bytes, info.rx_bytes

    def check(results: list[tuple[int, int]]) -> None:
        assert sum(tx for tx, _ in results) == 16000
        assert results[2] == (0, 16000)

    in_one_run(lambda: run_peers(3, body), check)


def test_revisions(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array = numpy.full(10, float(index))
        state = state_of(array=array)
        assert state.revision == 0
        if index == 0:
            state.revision = 13  # from a checkpoint
        communicator.sync_shared_state(state)
        assert state.revision == 13 and (array == 0).all()
        state.push_revision()
        assert state.revision == 14
        communicator.sync_shared_state(state)

    run_peers(2, body)


def test_strategies(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array = numpy.full(10, float(index))
        strategies = [SharedStateSyncStrategy.RECEIVE_ONLY, SharedStateSyncStrategy.SEND_ONLY]
        info = communicator.sync_shared_state(state_of(array=array), strategies[index])
        assert (array == 1).all()
        assert (info.rx_bytes, info.tx_bytes) == ((80, 0) if index == 0 else (0, 80))

    run_peers(2, body)


def test_entries_that_may_differ(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        own, common = numpy.full(4, float(index)), numpy.zeros(4)
        state = SharedState(
            [
                TensorInfo.from_numpy(own, "own", allow_content_inequality=True),
                TensorInfo.from_numpy(common, "common"),
            ]
        )
        communicator.sync_shared_state(state)
        own[:] = index
        state.push_revision()
        assert communicator.sync_shared_state(state).rx_bytes == 0
        assert (own == index).all()

    run_peers(2, body)


def test_every_torch_type_is_data(run_peers: RunPeers) -> None:
    torch = pytest.importorskip("torch")

    def body(communicator: pccl.Communicator, index: int) -> None:
        tensors = {
            data_type.name: torch.full((257,), 1 + index, dtype=data_type.to_torch_dtype())
            for data_type in pccl.DataType
        }
        state = SharedState([TensorInfo.from_torch(tensor, name) for name, tensor in tensors.items()])
        communicator.sync_shared_state(state)
        received = {int(tensor.double()[0]) for tensor in tensors.values()}
        assert len(received) == 1
        state.push_revision()
        assert communicator.sync_shared_state(state) == pccl.SharedStateSyncInfo(0, 0)

    run_peers(2, body)


def test_entries_by_pointer(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array = numpy.full(10, index, numpy.int16)
        info = TensorInfo(
            "array",
            array.ctypes.data,
            numel=array.size,
            dtype=pccl.DataType.INT16,
            device_type=pccl.DeviceType.CPU,
            allow_content_inequality=False,
        )
        communicator.sync_shared_state(SharedState([info]))
        assert len(set(array.tolist())) == 1

    run_peers(2, body)


def test_empty_entries(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        state = state_of(empty=numpy.empty((0, 3)), full=numpy.full(3, float(index)))
        communicator.sync_shared_state(state)

    run_peers(2, body)


def test_a_device_pointer_without_a_device(master: str) -> None:
    if pccl.cuda.is_available():
        pytest.skip("there is a GPU")
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        info = TensorInfo(
            "w",
            64,
            numel=1,
            dtype=pccl.DataType.FLOAT,
            device_type=pccl.DeviceType.CUDA,
            allow_content_inequality=False,
        )
        with pytest.raises(pccl.PCCLArgumentError, match="'w' is CUDA memory, and torch cannot use it here"):
            communicator.sync_shared_state(SharedState([info]))


def test_the_same_name_twice(master: str) -> None:
    with pccl.Communicator(master) as communicator:
        communicator.connect()
        array = numpy.ones(3)
        infos = [TensorInfo.from_numpy(array, "w"), TensorInfo.from_numpy(array.copy(), "w")]
        with pytest.raises(pccl.PCCLArgumentError, match="w"):
            communicator.sync_shared_state(SharedState(infos))


def test_a_failed_sync_leaves_all_as_it_was(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array = numpy.full(10, float(index))
        state = state_of(array=array)
        with pytest.raises(pccl.PCCLUsageError):
            communicator.sync_shared_state(state, SharedStateSyncStrategy.RECEIVE_ONLY)
        assert state.revision == 0 and (array == index).all()

    run_peers(2, body)
