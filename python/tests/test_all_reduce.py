"""Reductions of arrays and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pccl
import pytest
from conftest import in_one_run
from pccl import DataType, QuantizationAlgorithm, QuantizationOptions, ReduceOp

RunPeers = Callable[..., list[Any]]

EXPECTED = {
    ReduceOp.SUM: 2 + 4 + 6,
    ReduceOp.AVG: 4,
    ReduceOp.PROD: 2 * 4 * 6,
    ReduceOp.MAX: 6,
    ReduceOp.MIN: 2,
}


def test_every_numpy_type_and_operation(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        for data_type in DataType:
            if data_type is DataType.BFLOAT16:
                continue
            for op, expected in EXPECTED.items():
                send = numpy.full((3, 5), 2 * (index + 1), data_type.to_numpy_dtype())
                recv = numpy.zeros_like(send)
                info = communicator.all_reduce(send, recv, op=op)
                assert info.local_world_size == 3
                assert (recv == expected).all(), (data_type, op, recv)
                assert (send == 2 * (index + 1)).all()

    run_peers(3, body)


def test_every_torch_type_and_operation(run_peers: RunPeers) -> None:
    torch = pytest.importorskip("torch")

    def body(communicator: pccl.Communicator, index: int) -> None:
        for data_type in DataType:
            for op, expected in EXPECTED.items():
                tensor = torch.full((3, 5), 2 * (index + 1), dtype=data_type.to_torch_dtype())
                communicator.all_reduce(tensor, tensor, op=op)
                assert tensor.to(torch.float64).eq(expected).all(), (data_type, op, tensor)

    run_peers(3, body)


def test_sizes_down_to_nothing(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        for shape in ((), (0,), (1,), (4, 0), (100_003,)):
            array = numpy.ones(shape, numpy.float32)
            communicator.all_reduce(array, array, op=ReduceOp.SUM)
            assert (array == 2).all()

    run_peers(2, body)


def test_quantized(run_peers: RunPeers) -> None:
    size = 1 << 18

    def body(communicator: pccl.Communicator, index: int) -> int:
        exact = numpy.full(1024, 42 + index, numpy.float32)
        communicator.all_reduce(exact, exact, op=ReduceOp.SUM, quantization_options=QuantizationOptions())
        assert (exact == 85).all()
        many = numpy.linspace(-1, 1, size, dtype=numpy.float32)
        result = numpy.empty_like(many)
        info = communicator.all_reduce(
            many,
            result,
            op=ReduceOp.AVG,
            operand_descriptor=pccl.ReduceOperandDescriptor(DataType.FLOAT, pccl.DistributionHint.NORMAL),
            quantization_options=QuantizationOptions(DataType.UINT8, QuantizationAlgorithm.ZERO_POINT_SCALE),
        )
        assert numpy.abs(result - many).max() < 1e-3
        return info.tx_bytes

    def check(sent: list[int]) -> None:
        assert max(sent) < 0.27 * size * numpy.float32().nbytes

    in_one_run(lambda: run_peers(2, body), check)


def test_no_options_mean_as_they_are(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> tuple[pccl.ReduceInfo, pccl.ReduceInfo]:
        array = numpy.array([1e-30, 3.0, 1e30], numpy.float32)
        info = communicator.all_reduce(array, array, op=ReduceOp.MAX)
        assert array.tolist() == numpy.array([1e-30, 3.0, 1e30], numpy.float32).tolist()
        none = QuantizationOptions(algorithm=QuantizationAlgorithm.NONE)
        return info, communicator.all_reduce(array, array, op=ReduceOp.MAX, quantization_options=none)

    def check(infos: list[tuple[pccl.ReduceInfo, pccl.ReduceInfo]]) -> None:
        assert all(again == info for info, again in infos)

    in_one_run(lambda: run_peers(2, body), check)


def test_slices_of_tensors_are_used_where_they_lie(run_peers: RunPeers) -> None:
    torch = pytest.importorskip("torch")

    def body(communicator: pccl.Communicator, index: int) -> None:
        whole = torch.zeros(10, 4)
        rows = whole[3:6]
        rows += 1
        communicator.all_reduce(rows, rows, op=ReduceOp.SUM)
        assert whole.sum().item() == 2 * 12
        model = torch.nn.Linear(3, 2)
        model(torch.ones(1, 3)).sum().backward()
        for tag, parameter in enumerate(model.parameters()):
            assert parameter.grad is not None
            communicator.all_reduce(parameter.grad, parameter.grad, op=ReduceOp.AVG, tag=tag)
            assert parameter.grad.eq(1).all()

    run_peers(2, body)


def test_different_sizes_on_different_peers(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> str:
        array = numpy.ones(10 + index, numpy.float32)
        with pytest.raises(pccl.PCCLArgumentError) as raised:
            communicator.all_reduce(array, array, op=ReduceOp.SUM)
        assert (array == 1).all()
        return str(raised.value)

    for text in run_peers(2, body):
        assert "10" in text and "11" in text


def test_alone(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        array = numpy.ones(4, numpy.float32)
        with pytest.raises(pccl.PCCLTooFewPeersError):
            communicator.all_reduce(array, array, op=ReduceOp.SUM)
        with pytest.raises(pccl.PCCLTooFewPeersError):
            communicator.all_reduce_async(array, array, op=ReduceOp.SUM)

    run_peers(1, body)


def test_many_with_retry(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        arrays = [numpy.full(n, index + 1, numpy.float32) for n in range(1, 40)]
        descriptors = [
            pccl.ReduceOpDescriptor.from_numpy(
                array,
                array,
                reduce_descriptor=pccl.ReduceDescriptor(
                    array.size, ReduceOp.SUM, tag, pccl.ReduceOperandDescriptor(DataType.FLOAT), None
                ),
            )
            for tag, array in enumerate(arrays)
        ]
        if index == 1:
            descriptors.reverse()
        info = communicator.all_reduce_multiple_with_retry(descriptors, max_in_flight=8)
        assert info.local_world_size == 3 and info.tx_bytes > 0
        assert all((array == 6).all() for array in arrays)

    run_peers(3, body)


def prefix(count: int) -> pccl.ReduceDescriptor:
    return pccl.ReduceDescriptor(count, ReduceOp.SUM, 0, pccl.ReduceOperandDescriptor(DataType.FLOAT), None)


def test_a_smaller_count_reduces_the_first_elements(run_peers: RunPeers) -> None:
    def body(communicator: pccl.Communicator, index: int) -> None:
        for count in (5, 0):
            array, result = numpy.full(8, index + 1, numpy.float32), numpy.zeros(6, numpy.float32)
            for recv in (result, array):  # in place last
                descriptor = pccl.ReduceOpDescriptor.from_numpy(array, recv, prefix(count))
                info = communicator.all_reduce_multiple_with_retry([descriptor])
                assert info.world_size == info.local_world_size == 2
            assert result.tolist() == [3.0] * count + [0.0] * (6 - count)
            assert array.tolist() == [3.0] * count + [index + 1.0] * (8 - count)

    run_peers(2, body)


def test_a_smaller_count_of_tensors(run_peers: RunPeers) -> None:
    torch = pytest.importorskip("torch")

    def body(communicator: pccl.Communicator, index: int) -> None:
        tensor = torch.full((2, 4), index + 1.0)
        descriptor = pccl.ReduceOpDescriptor.from_torch(tensor, tensor, prefix(5))
        communicator.all_reduce_multiple_with_retry([descriptor])
        assert tensor.view(-1).tolist() == [3.0] * 5 + [index + 1.0] * 3

    run_peers(2, body)


def test_groups_reduce_apart(master: str) -> None:
    from conftest import admit, run_threads

    def peer(index: int) -> None:
        with pccl.Communicator(master, index % 2) as communicator:
            communicator.connect()
            admit(communicator, 4)
            assert communicator.get_attribute(pccl.Attribute.LOCAL_WORLD_SIZE) == 2
            assert communicator.get_attribute(pccl.Attribute.NUM_DISTINCT_PEER_GROUPS) == 2
            array = numpy.array([float(index)])
            communicator.all_reduce(array, array, op=ReduceOp.SUM)
            assert array[0] == (2 if index % 2 == 0 else 4)
            # Leave together: a peer that leaves early could make the last reduction of its group fail.
            communicator.update_topology()

    run_threads(4, peer)
