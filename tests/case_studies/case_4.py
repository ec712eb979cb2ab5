"""Case 4: the GPUs' utilization swings between 0 and 90%.

https://github.com/modelscope/ms-swift/issues/3693: Qwen2.5-VL-3B on two GPUs, images, LoRA. Without
offload, with more of the memory for vLLM and 16 loader processes the training took half the time.

Here the bundled trainer is ill in the same way and is run for real. Where a cost only exists on a
GPU something stands in for it that costs really: see STAND_INS.
"""

from __future__ import annotations

from pathlib import Path

from tests.case_studies.commandline import Flags
from tests.case_studies.judge import ANSWER_S

THREAD = "https://github.com/modelscope/ms-swift/issues/3693"
COMPLAINT = "The GPUs' utilization swings between 0 and 90%, and training is slow."
# As far as the thread shows it: what follows --offload_optimizer is cut off there.
COMMAND = r"""
CUDA_VISIBLE_DEVICES=6,7 NPROC_PER_NODE=2 MAX_PIXELS=200704 \
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --train_type lora \
    --freeze_aligner false --freeze_vit false --lora_rank 16 --lora_alpha 64 \
    --dataset train.jsonl --val_dataset val.jsonl --acc_strategy seq --torch_dtype bfloat16 \
    --num_train_epochs 5 --max_length 2048 --per_device_train_batch_size 2 \
    --per_device_eval_batch_size 2 --num_generations 4 --gradient_accumulation_steps 1 \
    --eval_steps 2000 --save_steps 2000 --learning_rate 1e-6 --save_total_limit 50 \
    --logging_steps 5 --output_dir output --warmup_ratio 0.05 --dataloader_num_workers 8 \
    --max_completion_length 1024 --external_plugins plugin.py \
    --reward_funcs custom_acc custom_format --temperature 1.0 --top_p 1.0 --top_k 80 \
    --log_completions true --async_generate false --move_model_batches 16 \
    --offload_optimizer true
"""
JUDGE = Path(__file__).with_name("judge.py")

# What the small run has instead, and why. All else of the command line is carried over.
INSTEAD: dict[str, tuple[str, str]] = {
    "model": ("embedded-vl", "a Qwen2.5-VL that is made on the spot"),
    "embedded_width": ("512", "wide enough that moving it and ZeRO-3's gathers cost something"),
    "torch_dtype": ("float32", "what a CPU computes in"),
    "train_type": ("full", "so that there is optimizer state to move"),
    "freeze_aligner": ("true", "with full training: only the language model learns"),
    "freeze_vit": ("true", "the same"),
    "max_pixels": ("3136", "four image tokens: the photographs are large, the model is not"),
    "per_device_train_batch_size": ("4", "one prompt with its four completions per rank"),
    "max_completion_length": ("8", "a CPU writes slowly"),
    "reward_funcs": (f"{JUDGE}:count_judged", "a judge that has to be waited for"),
    "deepspeed": ("zero3_offload", "as such scripts have it"),
    "offload_model": ("true", "the thread's advice was to switch it off"),
    "gc_collect_after_offload": ("true", "as such scripts have it beside the two offload flags"),
    "dataloader_num_workers": ("0", "two processors cannot starve eight loader processes"),
    "learning_rate": ("1e-3", "a model that is made on the spot has all to learn"),
    "save_steps": ("0", "no checkpoints: they are case 5's"),
    "move_model_batches": ("", "no vLLM here"),
    "num_train_epochs": ("", "--max_steps says how long"),
    "save_total_limit": ("", "no checkpoints"),
    "lora_rank": ("", "no LoRA"),
    "lora_alpha": ("", "no LoRA"),
    **dict.fromkeys(
        ("rlhf_type", "val_dataset", "acc_strategy", "per_device_eval_batch_size", "eval_steps",
         "external_plugins", "async_generate"),
        ("", "ms-swift's own"),
    ),
}  # fmt: skip

STAND_INS = (
    "the photographs, 24 million pixels each, are really decoded, by the loader's processes",
    "offload really copies weights and optimizer state to other host memory and back; no GPU gains",
    f"a judge that takes {ANSWER_S:g} s stands in for a GPU at work: no flag makes it faster",
)
STEPS = 16  # as many in both runs, so that the settings differ by the fixes alone
AT_MOST = 0.5  # of the step time, as in the thread


def small_flags(command: Flags, dataset: Path, output: Path) -> Flags:
    """The user's flags with what is otherwise here."""
    flags = {**command, "dataset": (str(dataset),), "output_dir": (str(output),)}
    flags["max_steps"] = (str(STEPS),)
    for name, (value, _) in INSTEAD.items():
        flags.pop(name, None)
        if value:
            flags[name] = (value,)
    return flags
