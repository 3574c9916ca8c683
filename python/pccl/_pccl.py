"""All names of the package, under the name that programs know."""

from __future__ import annotations

from pccl._communicator import Communicator
from pccl._enums import (
    Attribute,
    DataType,
    DeviceType,
    DistributionHint,
    QuantizationAlgorithm,
    ReduceOp,
    Result,
    SharedStateSyncStrategy,
)
from pccl._errors import (
    PCCLArgumentError,
    PCCLConnectionLostError,
    PCCLError,
    PCCLInternalError,
    PCCLMasterConnectionError,
    PCCLPendingAsyncOpsError,
    PCCLTooFewPeersError,
    PCCLTopologyError,
    PCCLUsageError,
)
from pccl._master import MasterNode
from pccl._operation import AsyncReduceHandle
from pccl._values import (
    QuantizationOptions,
    ReduceDescriptor,
    ReduceInfo,
    ReduceOpDescriptor,
    ReduceOperandDescriptor,
    SharedState,
    SharedStateSyncInfo,
    TensorInfo,
)

__all__ = [
    "AsyncReduceHandle",
    "Attribute",
    "Communicator",
    "DataType",
    "DeviceType",
    "DistributionHint",
    "MasterNode",
    "PCCLArgumentError",
    "PCCLConnectionLostError",
    "PCCLError",
    "PCCLInternalError",
    "PCCLMasterConnectionError",
    "PCCLPendingAsyncOpsError",
    "PCCLTooFewPeersError",
    "PCCLTopologyError",
    "PCCLUsageError",
    "QuantizationAlgorithm",
    "QuantizationOptions",
    "ReduceDescriptor",
    "ReduceInfo",
    "ReduceOp",
    "ReduceOpDescriptor",
    "ReduceOperandDescriptor",
    "Result",
    "SharedState",
    "SharedStateSyncInfo",
    "SharedStateSyncStrategy",
    "TensorInfo",
]
