"""Bad input raises an exception whose text says what to do, and nothing is done."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy
import pccl
import pytest
from pccl import DataType, DeviceType, ReduceOp, SharedState, TensorInfo


@pytest.fixture
def communicator() -> Any:
    with pccl.Communicator("127.0.0.1:1") as made:
        yield made


def ones(count: int = 8, dtype: Any = numpy.float32) -> numpy.ndarray:
    return numpy.ones(count, dtype)


def rejected(text: str) -> Any:
    return pytest.raises(pccl.PCCLArgumentError, match=text)


def test_numpy_arrays_that_cannot_be_used(communicator: pccl.Communicator) -> None:
    def reduce(send: Any, recv: Any, text: str, **keywords: Any) -> None:
        for call in (communicator.all_reduce, communicator.all_reduce_async):
            with rejected(text):
                call(send, recv, op=ReduceOp.SUM, **keywords)

    grid = numpy.ones((4, 4), numpy.float32)
    reduce(grid.T, grid.T, "not contiguous; use numpy.ascontiguousarray")
    reduce(grid[:, 1], grid[:, 1], "not contiguous")
    reduce(ones(8, numpy.complex64), ones(8, numpy.complex64), "complex64; convert to one of")
    reduce(ones(8, ">f4"), ones(8, ">f4"), "byte order")
    reduce(ones(), ones(9), "send has 8 elements and recv 9")
    reduce(ones(), ones(8, numpy.float64), "FLOAT and recv DOUBLE")
    frozen = ones()
    frozen.flags.writeable = False
    reduce(ones(), frozen, "read-only")
    reduce([1.0], [1.0], "builtins.list; use a torch tensor or a numpy array")
    reduce(None, ones(), "NoneType")
    reduce(numpy.float32(1), ones(1), "numpy.float32; use")
    reduce(ones(), ones(), "tag is -1", tag=-1)
    with rejected("op is 'sum'; use a pccl.ReduceOp"):
        communicator.all_reduce(ones(), ones(), op="sum")  # type: ignore[arg-type]
    with rejected("descriptors is empty"):
        communicator.all_reduce_multiple_with_retry([])
    reduce(ones(), ones(), "tag is", tag=1 << 64)
    wrong = pccl.ReduceOperandDescriptor(DataType.DOUBLE)
    reduce(ones(), ones(), "says DOUBLE and the arrays are FLOAT", operand_descriptor=wrong)


def test_torch_tensors_that_cannot_be_used(communicator: pccl.Communicator) -> None:
    torch = pytest.importorskip("torch")

    def reduce(send: Any, recv: Any, text: str) -> None:
        with rejected(text):
            communicator.all_reduce(send, recv, op=ReduceOp.SUM)

    grid = torch.ones(4, 4)
    reduce(grid.t(), grid.t(), "not contiguous; use tensor.contiguous")
    reduce(torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool), "torch.bool; convert")
    reduce(torch.ones(3), torch.ones(4), "send has 3 elements and recv 4")
    reduce(torch.ones(3), torch.ones(3, dtype=torch.float64), "FLOAT and recv DOUBLE")
    reduce(torch.ones(3, device="meta"), torch.ones(3, device="meta"), "'meta'.*materialize")
    reduce(torch.ones(3), torch.ones(3).to_sparse(), "layout torch.sparse_coo.*to_dense")
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    reduce(freed, freed, "lost its memory")
    negated = torch._neg_view(torch.ones(3))
    reduce(negated, torch.ones(3), "lazily negated")
    reduce(ones(3), torch.ones(3), "send is a numpy array and recv a torch array")
    reduce(torch.ones(3), ones(3), "send is a torch array and recv a numpy array")


def test_distributed_tensor(communicator: pccl.Communicator) -> None:
    pytest.importorskip("torch")
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor
    import torch

    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        tensor = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Replicate()])
        with rejected(r"DTensor.*to_local\(\)"):
            communicator.all_reduce(tensor, tensor, op=ReduceOp.SUM)
        with rejected(r"DTensor.*to_local\(\)"):
            TensorInfo.from_torch(tensor, "weights")
    finally:
        distributed.destroy_process_group()


def test_descriptors(communicator: pccl.Communicator) -> None:
    def describe(count: int, data_type: DataType = DataType.FLOAT) -> pccl.ReduceDescriptor:
        operand = pccl.ReduceOperandDescriptor(data_type)
        return pccl.ReduceDescriptor(count, ReduceOp.SUM, 0, operand, None)

    make = pccl.ReduceOpDescriptor.from_numpy
    with rejected("counts 9 elements, send has 8 and recv 8; count no more"):
        make(ones(), ones(), reduce_descriptor=describe(9))
    with rejected("counts -1 elements"):
        make(ones(), ones(), reduce_descriptor=describe(-1))
    with rejected("says INT8"):
        make(ones(), ones(), reduce_descriptor=describe(8, DataType.INT8))
    with rejected("counts 8 elements, send has 8 and recv 4"):
        make(ones(), ones(4), reduce_descriptor=describe(8))
    torch = pytest.importorskip("torch")
    with rejected("use from_torch"):
        make(torch.ones(8), torch.ones(8), reduce_descriptor=describe(8))
    with rejected("use from_numpy"):
        pccl.ReduceOpDescriptor.from_torch(ones(), ones(), reduce_descriptor=describe(8))


def test_shared_state_entries() -> None:
    with rejected("must not be empty"):
        SharedState([])
    with rejected("data_ptr of 'w' must not be zero"):
        TensorInfo("w", 0, numel=1, dtype=DataType.FLOAT, device_type=DeviceType.CPU, allow_content_inequality=False)
    with rejected("'w': is not contiguous"):
        TensorInfo.from_numpy(numpy.ones((3, 3)).T, "w")
    frozen = ones()
    frozen.flags.writeable = False
    with rejected("'w': is read-only"):
        TensorInfo.from_numpy(frozen, "w")
    with rejected("zero byte"):
        TensorInfo.from_numpy(ones(), "w\0v")
    torch = pytest.importorskip("torch")
    with rejected("use from_torch"):
        TensorInfo.from_numpy(torch.ones(3), "w")


@pytest.mark.parametrize("text", ["a\0b", "not UTF-8: \udcff"])
def test_texts_that_the_library_cannot_take(text: str) -> None:
    with rejected("use a string without zero bytes and lone surrogates"):
        pccl.Communicator("127.0.0.1:1", name=text)
    with rejected("use a name without zero bytes and lone surrogates"):
        pccl.Communicator("127.0.0.1:1", gang=(text, 2, 0))
    with rejected("the name .* has a (zero byte|lone surrogate); leave it out"):
        TensorInfo.from_numpy(ones(), text)


@pytest.mark.parametrize("host", ["h" * 70, "h\udcff"])
def test_host_names_that_cannot_be_looked_up(host: str) -> None:
    with pytest.raises(pccl.PCCLMasterConnectionError, match=r"could not be looked up \(.*'idna' codec.*; check the name"):
        pccl.MasterNode(f"{host}.example:1")


def test_memory_that_moved(communicator: pccl.Communicator) -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(5))
    state = SharedState([TensorInfo.from_torch(parameter, "layer.weight")])
    parameter.data = torch.zeros(5)
    with rejected("'layer.weight' has other memory.*make the SharedState again"):
        communicator.sync_shared_state(state)
    parameter.data.untyped_storage().resize_(0)
    with rejected("'layer.weight': has lost its memory"):
        communicator.sync_shared_state(state)


@pytest.mark.parametrize(
    "address",
    [
        "", "127.0.0.1", "127.0.0.1:", ":48148", "127.0.0.1:70000", "127.0.0.1:x", "::1:48148", "[::g]:1", "1.2.3:4",
        "a b:1", 7,
    ],  # fmt: skip
)
def test_addresses_that_are_none(address: Any) -> None:
    with rejected("address|port"):
        pccl.Communicator(address)
    with rejected("address|port"):
        pccl.MasterNode(address)


def test_other_arguments() -> None:
    with rejected("peer_group is -1"):
        pccl.Communicator("127.0.0.1:1", -1)
    with pytest.raises(TypeError, match="no setting colour"):
        pccl.Communicator("127.0.0.1:1", colour="red")
    for name in ("peer_timeout_ms", "max_concurrent_collective_ops", "multiplex_chunk_size"):
        with rejected(f"{name} is 0; use a number"):
            pccl.Communicator("127.0.0.1:1", **{name: 0})
    for name in ("master_timeout_ms", "max_scratch_bytes"):
        with rejected(f"{name} is -1; use a number"):
            pccl.Communicator("127.0.0.1:1", **{name: -1})
    with rejected("PCCL_PORT_RANGE|port"):
        pccl.Communicator("127.0.0.1:1", port_range="backwards")
    with pccl.Communicator("127.0.0.1:1") as communicator, rejected("n_attempts is 0"):
        communicator.connect(n_attempts=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peer_timeout_ms", 1500.5), ("peer_timeout_ms", "5000"), ("multiplex_chunk_size", 1 << 40), ("name", 5), ("name", "a\0b"),
        ("gang", ("a\0b", 2, 0)),
    ],  # fmt: skip
)
def test_settings_of_another_type(name: str, value: Any) -> None:
    with pytest.raises(pccl.PCCLArgumentError, match=name):
        pccl.Communicator("127.0.0.1:1", **{name: value})


def test_errors_survive_optimization() -> None:
    program = """
import pccl
try:
    pccl.SharedState([])
except AssertionError as error:
    assert_ = isinstance(error, pccl.PCCLError)
    print("raised", assert_)
"""
    done = subprocess.run([sys.executable, "-O", "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "raised True\n"
