"""A user's script with TRL that knows how long its own parts take: MODEL FOLDER TIMES.

TIMES is JSON: seconds that each call of the reward and each fetched batch sleeps, by name
(`reward`, `dataload`, `callback`). Rank 0 writes what they took in all to FOLDER/stopwatch.json,
losses and rewards of each step to FOLDER/losses.jsonl. FAIL_AT=N: the N-th reward raises;
HANG_AT=N: the N-th reward of rank 1 never returns. OWN_RECORDING=DIR: the script itself has a
`GrpoDoctorCallback`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

MODEL, FOLDER, TIMES = sys.argv[1:4]
SECONDS = {"reward": 0.0, "dataload": 0.0, "callback": 0.0, **json.loads(TIMES)}


CALLS: list[int] = []
MEASURED = dict.fromkeys(SECONDS, 0.0)


def spend(part: str) -> None:
    """Sleeps as ordered, and adds what it really took, on a machine that others use too."""
    start = time.perf_counter()
    time.sleep(SECONDS[part])
    MEASURED[part] += time.perf_counter() - start


def length_reward(completions: list[str], **_: Any) -> list[float]:
    spend("reward")
    CALLS.append(1)
    if len(CALLS) == int(os.environ.get("FAIL_AT", "0")):
        raise ValueError("no reward for this one")
    if len(CALLS) == int(os.environ.get("HANG_AT", "0")) and os.environ["RANK"] == "1":
        threading.Event().wait()
    return [float(len(set(text))) for text in completions]


class Journal(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        spend("callback")
        if state.is_world_process_zero:
            with Path(FOLDER, "steps.txt").open("a") as file:
                file.write(f"{time.time()} {time.process_time()}\n")

    def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.is_world_process_zero:
            Path(FOLDER, "stopwatch.json").write_text(json.dumps(MEASURED))

    def on_log(self, _: Any, state: Any, __: Any, logs: dict[str, Any], **___: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            row = {name: logs[name] for name in ("loss", "reward", "grad_norm")}
            with Path(FOLDER, "losses.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")


def slow(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    spend("dataload")
    return batch


def tokenizer() -> PreTrainedTokenizerFast:
    """By its file: the settings beside it are of a newer transformers than some jobs have."""
    marks = {"pad_token": "<|pad|>", "eos_token": "<|end|>"}
    inputs = ["input_ids", "attention_mask"]
    file = f"{MODEL}/tokenizer.json"
    return PreTrainedTokenizerFast(tokenizer_file=file, model_input_names=inputs, **marks)


def callbacks() -> list[TrainerCallback]:
    run_dir = os.environ.get("OWN_RECORDING")
    if not run_dir:
        return [Journal()]
    from grpo_doctor_probes.callback import GrpoDoctorCallback

    return [Journal(), GrpoDoctorCallback(run_dir)]


def main() -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = json.loads(os.environ.get("TRL_OPTIONS", "{}"))
    config = GRPOConfig(
        **{
            "output_dir": f"{FOLDER}/out", "use_cpu": True, "bf16": False, "ddp_backend": "gloo",
            "report_to": [], "save_strategy": "no", "per_device_train_batch_size": 4,
            "num_generations": 4, "max_completion_length": 16, "beta": 0.02, "max_steps": 6,
            "logging_steps": 1, "gradient_checkpointing": False, "disable_tqdm": True, "seed": 3,
            **options,
        }
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": f"{n}+{n}"} for n in range(100)]).with_transform(slow)
    GRPOTrainer(
        model=MODEL, reward_funcs=[length_reward], args=config, train_dataset=rows,
        callbacks=callbacks(), processing_class=tokenizer(),
    ).train()  # fmt: skip
    dist.destroy_process_group()  # else torch aborts at the end, once in a while


if __name__ == "__main__":
    main()
