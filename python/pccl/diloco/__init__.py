"""DiLoCo: turns a plain training loop into one of many peers that join and leave.

:class:`DiLoCo` connects a model and its inner optimizer to a :class:`pccl.Communicator`; :class:`Event` reports what
happens. Needs torch and numpy. Arguments choose one of three forms of the same mechanism:

- ``H=100``: synchronous (DiLoCo, arXiv 2311.08105);
- ``H=100, overlap=True``: one step behind; an average is sent during the next round (PCCL, arXiv 2505.14065);
- ``H=100, fragments=4, overlap=True, delay=5``: streaming; a quarter of the parameters is sent every 25 inner steps and
  applied 5 inner steps later (Streaming DiLoCo, arXiv 2501.18512).

``quantize="int8"`` works with each of them.
"""

from pccl.diloco._diloco import DiLoCo
from pccl.diloco._event import Event

__all__ = ["DiLoCo", "Event"]
