"""Case 3: out of memory under ZeRO-2, too slow under ZeRO-3, on cards of 24 GB.

Eight A30 and a 7B model with LoRA. The command line is a plain one of that time: of this user only
the cards, the stages and what happened are known.
"""

from __future__ import annotations

COMPLAINT = "On 24 GB cards ZeRO-2 runs out of memory and ZeRO-3 is too slow."
COMMAND = r"""
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=8 \
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --train_type lora \
    --dataset train.jsonl --torch_dtype bfloat16 --num_train_epochs 1 --max_length 2048 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --num_generations 8 \
    --max_completion_length 1024 --reward_funcs accuracy format --dataloader_num_workers 4 \
    --gradient_checkpointing true --deepspeed {stage}
"""


def command(stage: str) -> str:
    """The launch with `zero2` or `zero3`."""
    return COMMAND.format(stage=stage)
