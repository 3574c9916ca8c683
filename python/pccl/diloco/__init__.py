"""DiLoCo: turns a plain training loop into one of many peers that join and leave.

:class:`DiLoCo` connects a model and its inner optimizer to a :class:`pccl.Communicator`; :class:`Event` reports what
happens. Needs torch and numpy. Arguments choose one of these forms of the same mechanism:

- ``H=100``: synchronous (DiLoCo, arXiv 2311.08105);
- ``H=100, overlap=True``: an average is sent during the first 5 inner steps of the next round (``delay``);
- ``H=100, overlap=True, delay=100``: one step behind; during all of the next round (PCCL, arXiv 2505.14065);
- ``H=100, overlap=True, eager=True``: one step behind, but each peer applies its own share of the average at once
  (arXiv 2502.12996);
- ``H=100, fragments=4, overlap=True, delay=5``: streaming; a quarter of the parameters is sent every 25 inner steps and
  applied 5 inner steps later (Streaming DiLoCo, arXiv 2501.18512).

The model may be sharded over the processes of a replica (FSDP2, HSDP, tensor parallelism): see ``process_group``.

``quantize="int8"`` and ``quantize=TopK()`` work with each of them. :class:`SparseLoCo` is the synchronous form with
``TopK`` and the outer step of its paper: the fewest bytes.
"""

from pccl.diloco._diloco import DiLoCo
from pccl.diloco._event import Event
from pccl.diloco._parameters import strided
from pccl.diloco._sparse_loco import SparseLoCo
from pccl.diloco._top_k import TopK

__all__ = ["DiLoCo", "Event", "SparseLoCo", "TopK", "strided"]
