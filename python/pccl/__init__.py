"""Collective communication between peers that come and go.

A run is one master and any number of peers::

    communicator = pccl.Communicator("127.0.0.1:48148")
    communicator.connect()                               # waits until the peers of the run admit us
    state = pccl.SharedState([pccl.TensorInfo.from_torch(weights, "weights")])
    while training:
        if turn > 0:
            communicator.update_topology()               # lets newcomers in; all peers call it together
        communicator.sync_shared_state(state)
        ...
        communicator.all_reduce(gradient, gradient, op=pccl.ReduceOp.AVG)
        state.push_revision()

Calls that fail raise a :class:`PCCLError` whose text names cause and remedy.
"""

from pccl import _native, _original, cuda
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

__version__ = _native.version()
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
    "__version__",
    "cuda",
]

# At the end: it takes what is above.
from pccl import _pccl as _pccl

_original.warn_if_installed(__path__[0])
