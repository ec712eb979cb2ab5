"""Checkpoints: whole or not at all, and enough to continue as if nothing had happened.

`checkpoint-N/` holds
- the weights (safetensors, in the training dtype, for `from_pretrained`) and the tokenizer;
- `optimizer/rank_NNNNN.pt`: AdamW's moments and DeepSpeed's float32 copies of the weights, one file
  per rank, or one for all where every rank has the same;
- `resume/rank_NNNNN.pt`: random states, what is left of a rollout, the log's sums;
- `trainer_state.json`: step, ranks, ZeRO stage, options, and each file with its size.

`--save_only_model` leaves the second and third out. Every file is read without running code from
it: safetensors, JSON, and `torch.load(weights_only=True)`.
"""

from __future__ import annotations

from grpo_doctor_trainer.checkpoint.resume import Resume, find_checkpoint
from grpo_doctor_trainer.checkpoint.state import Progress
from grpo_doctor_trainer.checkpoint.writer import Checkpointer, check_writable

__all__ = ["Checkpointer", "Progress", "Resume", "check_writable", "find_checkpoint"]
