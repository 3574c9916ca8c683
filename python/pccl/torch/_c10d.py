"""Names of torch.distributed that its type stubs hide."""

from torch._C._distributed_c10d import GradBucket, PrefixStore, Store, TCPStore

__all__ = ["GradBucket", "PrefixStore", "Store", "TCPStore"]
