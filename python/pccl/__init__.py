"""Collective communication between peers that join, leave and die at any time.

A run is one master and any number of peers::

    communicator = pccl.Communicator("127.0.0.1:48148")
    state = pccl.SharedState([pccl.TensorInfo.from_torch(weights, "weights")])
    with pccl.Run(communicator, state, steps=1000) as run:
        while run.step():                                # joins the run, admits others, makes the weights equal
            ...
            run.all_reduce(gradient)                     # averages, in place
            weights -= 0.1 * gradient

A call that fails raises a :class:`PCCLError`. Its text names the cause and the remedy.
"""

from pccl import _native, _original, cuda
from pccl._collectives import CollectiveInfo, Gathered, Member
from pccl._communicator import Communicator
from pccl._enums import (
    Attribute,
    CommunicatorState,
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
    PCCLSyncError,
    PCCLTimeoutError,
    PCCLTooFewPeersError,
    PCCLTopologyError,
    PCCLUsageError,
)
from pccl._master import MasterNode
from pccl._operation import AsyncHandle, AsyncReduceHandle
from pccl._run import Run
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

__version__ = _native.version()
__all__ = [
    "AsyncHandle",
    "AsyncReduceHandle",
    "Attribute",
    "CollectiveInfo",
    "Communicator",
    "CommunicatorState",
    "DataType",
    "DeviceType",
    "DistributionHint",
    "Gathered",
    "MasterNode",
    "Member",
    "PCCLArgumentError",
    "PCCLConnectionLostError",
    "PCCLError",
    "PCCLInternalError",
    "PCCLMasterConnectionError",
    "PCCLPendingAsyncOpsError",
    "PCCLSyncError",
    "PCCLTimeoutError",
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
    "Run",
    "SharedState",
    "SharedStateSyncInfo",
    "SharedStateSyncStrategy",
    "TensorInfo",
    "__version__",
    "cuda",
]

# Last, because pccl._pccl imports all names defined above.
from pccl import _pccl as _pccl

_original.warn_if_installed(__path__[0])
