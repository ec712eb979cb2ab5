"""Case 1: the job stands still at its very start.

https://github.com/modelscope/ms-swift/issues/3592: Qwen2.5-VL-72B, LoRA, ZeRO-3 with offload, eight
GPUs. No message, no error; the thread never found out which of the ways to stand still it was.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPLAINT = "When the training starts, the whole process hangs at the beginning."
# As far as the thread shows it: what follows --temperature is cut off there.
COMMAND = r"""
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=8 MAX_PIXELS=640000 \
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-72B-Instruct --train_type lora \
    --dataset screens.json --torch_dtype bfloat16 --num_train_epochs 1 --max_length 2048 \
    --per_device_train_batch_size 1 --per_device_eval_batch_size 1 \
    --gradient_accumulation_steps 1 --eval_steps 1000 --save_steps 2000 --learning_rate 1e-6 \
    --save_total_limit 2 --logging_steps 1 --output_dir output --warmup_ratio 0.05 \
    --dataloader_num_workers 4 --max_completion_length 2048 --external_plugins plugin.py \
    --reward_funcs external_ui_acc uiformat --num_generations 4 --use_vllm true \
    --vllm_gpu_memory_utilization 0.3 --vllm_max_model_len 2048 --deepspeed zero3_offload \
    --temperature 1.1 --tensor_parallel_size 8
"""
RANKS = 8


@dataclass(frozen=True)
class Standstill:
    """One way to stand still at the start.

    Attributes:
        name: for the process list.
        culprit: the rank that is to blame.
        states: what `attach` may call the job.
        classes: what it may call the reason.
        says: words that its first line has to have.
    """

    name: str
    culprit: int
    states: tuple[str, ...]
    classes: tuple[str, ...]
    says: tuple[str, ...]


STANDSTILLS = (
    Standstill("rendezvous", 5, ("stuck",), ("rank-missing",), ("rank 5",)),
    Standstill("gather", 3, ("stuck",), ("storage-blocked",), ("rank 3", "model-00017-of-00037")),
    # On a machine with more work than processors the second reason is as true as the first; where
    # its reading of images shows as progress, it is called slow at that place, and no class given.
    Standstill(
        "images",
        6,
        ("stuck", "slow"),
        ("user-code-busy", "cpu-starved", ""),
        ("rank 6", "prepare_images"),
    ),
)
