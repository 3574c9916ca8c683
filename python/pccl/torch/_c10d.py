"""Names that torch.distributed has and its type stubs hide."""

from torch._C._distributed_c10d import GradBucket, PrefixStore, Store, TCPStore

__all__ = ["GradBucket", "PrefixStore", "Store", "TCPStore"]
