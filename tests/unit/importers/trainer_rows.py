"""Rows as TRL and ms-swift log and print them, and a `trainer_state.json` of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace


def trl_row(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": step / 40,
        "reward": 0.5,
        "reward_std": 0.25,
        "frac_reward_zero_std": 0.125,
        "completions/mean_length": 100.0 + step,
        "grad_norm": 0.4,
        **more,
    }


def state_text(*rows: dict[str, Any], **more: Any) -> str:
    return json.dumps({"epoch": 1.0, "global_step": 40, "log_history": rows, **more}, indent=2)


def trainer_state(folder: Path, *rows: dict[str, Any]) -> Trace:
    path = folder / "trainer_state.json"
    path.write_text(state_text(*rows, logging_steps=5, max_steps=40))
    return load(path)


def swift_row(step: int, elapsed_s: float, **more: Any) -> dict[str, Any]:
    row = trl_row(step, **more)
    del row["step"]
    return {
        **row,
        "global_step/max_steps": f"{step}/100",
        "elapsed_time": f"{int(elapsed_s) // 60}m {int(elapsed_s) % 60}s",
        "memory(GiB)": 61.5,
        "train_speed(s/it)": round(elapsed_s / step, 6),
    }


def printed(**values: Any) -> str:
    row = {"loss": "0.01", "reward": "0.5", "completions/mean_length": "15.75", **values}
    return f"Train:   0%|  | 1/9 [00:00<37:47, 1.88it/s]   {row}"
