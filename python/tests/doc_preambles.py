"""Code that fragments in the documentation need. Each piece is put before the block that names it."""

MEMBER = """
import numpy, pccl
weights = numpy.zeros(1024, numpy.float32)
gradient, other_gradient = numpy.ones(1024, numpy.float32), numpy.ones(10, numpy.float32)
handles, skipped = [], []
communicator = pccl.Communicator("127.0.0.1:48148")
communicator.connect()
while communicator.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
    communicator.update_topology()
"""

NETWORK = """
import torch
def network_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
network = network_of(0)
data = torch.Generator()
data.seed()
def batch_for(step):
    return torch.randn(16, 4, generator=data)
def loss_of(model, batch):
    return (model(batch) - batch.sum(1, keepdim=True)).square().mean()
def parameters():
    return [one.detach() for one in model.parameters()]
"""

DILOCO = NETWORK + """
model = network
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
"""

FSDP = NETWORK + """
model = network
def shards_now():
    return list(pccl.torch.local_tensors(model).values())
"""

DATA = DILOCO + """
samples = torch.randn(400, 4, generator=torch.Generator().manual_seed(0))
"""

IN_DILOCO = DILOCO + """
import pccl
from pccl.diloco import DiLoCo
diloco = DiLoCo(model, optimizer, pccl.Communicator("127.0.0.1:48148"), H=10)
diloco.join()
"""

NODE = NETWORK + """
import pccl, torch.distributed as dist
from pccl.diloco import DiLoCo
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""

PREAMBLES = {"node": NODE, "data": DATA, "member": MEMBER, "network": NETWORK, "diloco": DILOCO, "fsdp": FSDP, "in_diloco": IN_DILOCO}
