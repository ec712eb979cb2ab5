"""Case 2: will it fit? 2 x A800, 4 x A6000 or 8 x A30.

https://github.com/modelscope/ms-swift/issues/3426: Qwen2.5-VL-7B ran out of memory on two A800; the
maintainers answered with this launch, which holds about 70 GB of each card's 80.
"""

from __future__ import annotations

COMPLAINT = "How much memory does GRPO of Qwen2.5-VL-7B need, and on which of my cards does it fit?"
# As far as the thread shows it: what follows --offload_model is cut off there.
COMMAND = r"""
MAX_PIXELS=602112 CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 \
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --external_plugins plugin.py \
    --reward_funcs external_r1v_acc format --use_vllm true --vllm_gpu_memory_utilization 0.6 \
    --train_type lora --freeze_vit true --torch_dtype bfloat16 \
    --dataset lmms-lab/multimodal-open-r1-8k-verified --max_completion_length 1536 \
    --num_train_epochs 1 --per_device_train_batch_size 2 --per_device_eval_batch_size 2 \
    --learning_rate 1e-7 --eval_steps 1000 --save_steps 1000 --save_total_limit 2 \
    --logging_steps 5 --output_dir output --warmup_ratio 0.05 --dataloader_num_workers 4 \
    --dataset_num_proc 4 --num_generations 4 --temperature 1.0 --top_p 0.9 --top_k 50 \
    --async_generate false --system prompt.txt --deepspeed zero2 --log_completions true \
    --num_iterations 1 --num_infer_workers 2 --offload_optimizer true --offload_model true
"""
HANDED_OVER = (
    "whether a launch fits is asked before it starts, of a memory model; the rules that are tested "
    "here answer for a job that ran: how much it left, or what it lacked"
)
