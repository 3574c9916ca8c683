"""Names, values and conversions that programs rely on."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy
import pccl
import pytest
from pccl import DataType, PCCLError, Result

VALUES = {
    "Result": "SUCCESS NOT_INITIALIZED INTERNAL_ERROR INVALID_ARGUMENT INVALID_USAGE TOO_FEW_PEERS "
    "MASTER_CONNECTION_FAILED RANK_CONNECTION_FAILED RANK_CONNECTION_LOST NO_SHARED_STATE_AVAILABLE "
    "PENDING_ASYNC_OPS UPDATE_TOPOLOGY_FAILED TOPOLOGY_OPTIMIZATION_FAILED",
    "ReduceOp": "SUM AVG PROD MAX MIN",
    "SharedStateSyncStrategy": "ENFORCE_POPULAR RECEIVE_ONLY SEND_ONLY",
    "DataType": "UINT8 INT8 INT16 UINT16 UINT32 INT32 UINT64 INT64 FLOAT16 BFLOAT16 FLOAT DOUBLE",
    "DeviceType": "CPU CUDA",
    "DistributionHint": "NONE NORMAL UNIFORM",
    "QuantizationAlgorithm": "NONE MIN_MAX ZERO_POINT_SCALE",
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_the_header(name: str) -> None:
    members = list(getattr(pccl, name))
    assert [member.name for member in members] == VALUES[name].split()
    assert [member.value for member in members] == list(range(len(members)))


def test_attributes_begin_at_one() -> None:
    assert pccl.Attribute.GLOBAL_WORLD_SIZE.value == 1
    assert pccl.Attribute.LOCAL_WORLD_SIZE.value == pccl.Attribute.PEER_GROUP_WORLD_SIZE.value == 2
    assert pccl.Attribute.NUM_DISTINCT_PEER_GROUPS.value == 3
    assert pccl.Attribute.LARGEST_PEER_GROUP_WORLD_SIZE.value == 4


def test_known_names_are_there() -> None:
    import pccl.master

    for name in VALUES:
        assert getattr(pccl._pccl, name) is getattr(pccl, name)
    assert pccl._pccl.Communicator is pccl.Communicator
    assert pccl.__version__.count(".") == 2
    assert callable(pccl.master.main)
    assert pccl.cuda.is_available() is False


def test_numpy_types() -> None:
    for data_type in DataType:
        if data_type is DataType.BFLOAT16:
            continue
        assert DataType.from_numpy_dtype(data_type.to_numpy_dtype()) is data_type
        assert data_type.to_numpy_dtype().itemsize == data_type.itemsize
    assert DataType.from_numpy_dtype(numpy.float32) is DataType.FLOAT
    for wrong in (numpy.complex64, numpy.bool_, numpy.dtype(">f4"), "U4"):
        with pytest.raises(ValueError, match="convert to one of"):
            DataType.from_numpy_dtype(numpy.dtype(wrong))


def test_torch_types() -> None:
    torch = pytest.importorskip("torch")
    for data_type in DataType:
        assert DataType.from_torch_dtype(data_type.to_torch_dtype()) is data_type
        assert data_type.to_torch_dtype().itemsize == data_type.itemsize
    for wrong in (torch.bool, torch.complex64, torch.float8_e4m3fn):
        with pytest.raises(ValueError, match="convert to one of"):
            DataType.from_torch_dtype(wrong)


def test_device_types() -> None:
    assert pccl.DeviceType.from_torch_device_type("cpu") is pccl.DeviceType.CPU
    assert pccl.DeviceType.from_torch_device_type("cuda") is pccl.DeviceType.CUDA
    with pytest.raises(ValueError, match="mps"):
        pccl.DeviceType.from_torch_device_type("mps")


def test_errors_say_function_and_code() -> None:
    error = PCCLError(Result.TOO_FEW_PEERS, "pcclAllReduce")
    assert error.result is Result.TOO_FEW_PEERS
    assert str(error) == "pcclAllReduce failed with error: TOO_FEW_PEERS: TOO_FEW_PEERS"
    PCCLError.check(Result.SUCCESS, "pcclInit")
    with pytest.raises(PCCLError) as raised:
        PCCLError.check(8, "pcclAllReduce")
    assert raised.value.result is Result.RANK_CONNECTION_LOST
    assert isinstance(raised.value, pccl.PCCLConnectionLostError)


def test_causes_name_what_this_package_has(master: str) -> None:
    with pccl.Communicator(master) as comm:
        with pytest.raises(pccl.PCCLUsageError, match=r"call connect\(\) first") as raised:
            comm.update_topology()
    assert "pcclConnect" not in str(raised.value)


def test_errors_survive_pickling() -> None:
    error = pccl.PCCLArgumentError(Result.INVALID_ARGUMENT, "f", "the cause")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is pccl.PCCLArgumentError
    assert (again.result, again.func_name, again.cause, str(again)) == (
        error.result, "f", "the cause", str(error),
    )  # fmt: skip


def test_argument_errors_are_what_programs_catch() -> None:
    for kind in (PCCLError, ValueError, AssertionError):
        assert issubclass(pccl.PCCLArgumentError, kind)


def test_defaults_of_descriptions() -> None:
    operand = pccl.ReduceOperandDescriptor(DataType.FLOAT)
    assert operand.distribution_hint is pccl.DistributionHint.NONE
    options = pccl.QuantizationOptions()
    assert options.quantized_datatype is DataType.UINT8
    assert options.algorithm is pccl.QuantizationAlgorithm.MIN_MAX
    descriptor = pccl.ReduceDescriptor(
        count=3, op=pccl.ReduceOp.AVG, tag=7, operand_descriptor=operand, quantization_options=options
    )
    single = pccl.ReduceOpDescriptor(sendbuf_ptr=16, recvbuf_ptr=32, reduce_descriptor=descriptor)
    assert (single.sendbuf_ptr, single.recvbuf_ptr, single.reduce_descriptor) == (16, 32, descriptor)


def test_import_brings_no_array_library_and_no_thread() -> None:
    program = (
        "import sys, threading, os; import pccl; "
        "heavy = {'numpy', 'torch', 'ml_dtypes'} & set(sys.modules); assert not heavy, heavy; "
        "assert len(os.listdir('/proc/self/task')) == 1; import pccl.master"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
