"""The module that Unsloth writes and imports: TRL's trainer, its source changed, in another class.

`unsloth/models/rl.py` renames `GRPOTrainer` to `_UnslothGRPOTrainer`, keeps the names of its
methods and writes `UnslothGRPOTrainer.py` into a folder of its own (2026.8).
"""

from __future__ import annotations

from grpo_doctor_probes.hooks.adapters.trl import of_trainer
from grpo_doctor_probes.hooks.grpo_trainers import of_trainer as patches_of
from grpo_doctor_probes.hooks.table import Adapter

_MODULE, _OWNER = "UnslothGRPOTrainer", "_UnslothGRPOTrainer"
ADAPTER = Adapter("unsloth", of_trainer(_MODULE, _OWNER), {_MODULE: patches_of(_OWNER)})
