"""PyTorch on top of the library. ``import pccl`` never imports torch; this package does.

Which part to take:

``ddp_hook``
    DistributedDataParallel whose gradients are averaged over peers that may join and die at any time.
``ReplicaGrid``
    The same for models that are sharded with FSDP2: whole replicas join and leave.
``pccl.diloco``
    Fewer bytes: peers train on their own for many steps, then average.
``init_process_group("pccl", init_method="pccl://host:port", world_size=n)``
    The collectives of torch.distributed for existing programs (importing this package registers the backend). Any
    master address works that ``pccl.Communicator`` takes. With another ``init_method``, such as torchrun's, the master
    is PCCL_MASTER_ADDRESS. A master serves one job at a time. Ranks that are not given are assigned. Such a group has a
    fixed size: code above it divides by the size (as DDP does) and shards by rank. So when a peer is lost, the
    collective in progress and all later ones raise ``torch.distributed.DistBackendError`` on every other rank. The
    remaining ranks make a new, smaller group: ``destroy_process_group()``, then ``init_process_group()``. Supported are
    all_reduce, broadcast, all_gather, reduce_scatter, gather, scatter, all_to_all, reduce, barrier, the object
    collectives and messages between two ranks (send, recv, isend, irecv, batch_isend_irecv), on tensors of the CPU or
    of a CUDA device; groups of some of the ranks (``new_group(ranks)``, meshes of several dimensions), each with a
    master of its own in the process of its first rank. A receive from any rank needs another backend beside it,
    ``new_group(ranks, backend="gloo")``.
``reconfigure``
    Gives such a group other members, without a new one.
``replica_communicator``
    The communicator of one process of a replica, for ``pccl.diloco`` with sharded models.

``local_tensor``, ``local_tensors`` and ``shared_state`` return what the library synchronizes and reduces, without a
copy.
"""

from pccl.torch._backend import register as _register
from pccl.torch._ddp import ddp_hook
from pccl.torch._grid import ReplicaGrid
from pccl.torch._local import local_tensor, local_tensors, shared_state
from pccl.torch._process_group import ProcessGroupPCCL
from pccl.torch._reconfigure import ReconfigureOptions, get_reconfigure_handle, reconfigure, supports_reconfigure
from pccl.torch._replica import replica_communicator

__all__ = [
    "ProcessGroupPCCL",
    "ReconfigureOptions",
    "ReplicaGrid",
    "ddp_hook",
    "get_reconfigure_handle",
    "local_tensor",
    "local_tensors",
    "reconfigure",
    "replica_communicator",
    "shared_state",
    "supports_reconfigure",
]

_register()
