"""Case 5: odd outputs, a device mismatch, and checkpoints that grow from 15 to 43 GB.

https://github.com/modelscope/ms-swift/issues/3114: DeepSeek-R1-Distill-Qwen-7B, all weights, one
completion per prompt at temperature 0. With one completion, or greedy ones, every advantage is 0:
the bundled trainer refuses both, so in small it has the fewest it takes, two.
"""

from __future__ import annotations

from tests.case_studies.commandline import Flags

COMPLAINT = "The outputs are odd after training, and 15 GB of weights became a checkpoint of 43 GB."
COMMAND = r"""
swift rlhf --rlhf_type grpo --model deepseek-ai/DeepSeek-R1-Distill-Qwen-7B \
    --reward_funcs accuracy format --use_vllm false --train_type full --torch_dtype bfloat16 \
    --dataset AI-MO/NuminaMath-TIR#5000 --max_completion_length 2048 --num_train_epochs 1 \
    --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --learning_rate 1e-6 \
    --gradient_accumulation_steps 2 --eval_steps 20 --save_steps 20 --save_total_limit 2 \
    --logging_steps 5 --max_length 4096 --output_dir output --warmup_ratio 0.05 \
    --dataloader_num_workers 2 --dataset_num_proc 2 --num_generations 1 --temperature 0 \
    --max_steps 5 --system prompt.txt
"""
# What the small run has instead: a model that is made on the spot, and a checkpoint now and then.
# No DeepSpeed, as the user has none: bfloat16 weights and AdamW's two moments in bfloat16, 3 : 1.
SMALL: Flags = {
    "deepspeed": ("none",),
    "train_type": ("full",),
    "torch_dtype": ("bfloat16",),
    "num_generations": ("2",),
    "temperature": ("1.0",),
    "per_device_train_batch_size": ("8",),
    "max_completion_length": ("8",),
    "max_steps": ("6",),
    "save_steps": ("2",),
    "save_total_limit": ("none",),
    "learning_rate": ("1e-4",),
    "logging_steps": ("5",),
    "dataloader_num_workers": ("0",),
}
