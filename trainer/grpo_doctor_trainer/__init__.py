"""The bundled GRPO trainer: an explicit loop, instrumented, for one machine or many.

Run it with `python -m torch.distributed.run --nproc_per_node 2 -m grpo_doctor_trainer`; without any
flag it trains an embedded tiny model on generated arithmetic. `loop.py` is the place to start.
"""

from __future__ import annotations

__version__ = "0.1.0"
