"""DiLoCo: a plain training loop becomes one of many peers that come and go.

:class:`DiLoCo` stands between a model, its inner optimizer and a :class:`pccl.Communicator`; :class:`Event` is what it
reports. Needs torch and numpy. Three forms of one mechanism, chosen by arguments:

- ``H=100``: synchronous (DiLoCo, arXiv 2311.08105);
- ``H=100, overlap=True``: one step behind, averages travel during the next round (PCCL, arXiv 2505.14065);
- ``H=100, fragments=4, overlap=True, delay=5``: streaming, a quarter of the parameters every 25 inner steps, used 5
  inner steps later (Streaming DiLoCo, arXiv 2501.18512).

``quantize="int8"`` goes with each of them.
"""

from pccl.diloco._diloco import DiLoCo, Event

__all__ = ["DiLoCo", "Event"]
