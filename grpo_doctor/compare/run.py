"""What is compared of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.per_step import counted
from grpo_doctor.findings import Results, RunView, run_rules
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.compare import Side

_SIZES = ("num_hidden_layers", "hidden_size")
TOKENS = "rollout/tokens"
_DIGITS = 6


@dataclass(frozen=True)
class ComparedRun:
    """A run's steps, tokens, settings and findings."""

    view: RunView
    results: Results

    @classmethod
    def of(cls, trace: Trace) -> ComparedRun:
        """Analyze a trace and run every rule on it."""
        view = RunView.of(trace)
        return cls(view, run_rules(view))

    @property
    def analysis(self) -> Analysis:
        """Its numbers."""
        return self.view.analysis

    @property
    def trace(self) -> Trace:
        """The recording."""
        return self.view.trace

    @property
    def step_seconds(self) -> NDArray[np.float64]:
        """Shape (used steps,)."""
        return self.analysis.step_seconds

    @property
    def phase_seconds(self) -> NDArray[np.float64]:
        """Shape (used steps, phases and unattributed): the mean over ranks."""
        seconds = self.analysis.used_seconds
        ranks = max(1, seconds.shape[1])
        mean: NDArray[np.float64] = seconds.sum(axis=1) / ranks
        return mean

    @property
    def batch(self) -> int | None:
        """Completions that one rank trains on per step; None where the run does not say it."""
        facts = self.trace.run.facts
        sizes = facts.get("train.micro_batch"), facts.get("train.grad_accumulation")
        are_known = all(isinstance(size, int) for size in sizes)
        return math.prod(int(size or 0) for size in sizes) if are_known else None

    @property
    def model(self) -> str | None:
        """The model's name without its folder; None where the run does not say it."""
        return PurePath(str(self.trace.run.facts.get("model.name") or "")).name or None

    @property
    def model_size(self) -> str | None:
        """How large the model is, as the job described it."""
        sizes = [self.trace.run.config.get(f"model_{key}") for key in _SIZES]
        return f"{sizes[0]} layers of {sizes[1]}" if all(sizes) else None

    @cached_property
    def step_tokens(self) -> NDArray[np.float64] | None:
        """Completion tokens of all ranks in each used step, shape (steps,); None if unknown."""
        tokens = np.nansum(counted(self.analysis, TOKENS), axis=1)
        return tokens if tokens.sum() > 0 else None

    def side(self) -> Side:
        """Return its facts."""
        run, tokens = self.trace.run, self.step_tokens
        gpus = sorted({gpu.name for gpu in self.trace.gpus if gpu.visible})
        count = sum(gpu.visible for gpu in self.trace.gpus)
        step_s = self.analysis.step_s
        return Side(
            source=self.trace.source.rstrip("/").rpartition("/")[2],
            id=run.id,
            framework=run.framework,
            framework_version=run.framework_version,
            command=list(run.command),
            world_size=run.world_size,
            gpus=f"{count} x {', '.join(gpus)}" if gpus else "no GPU sampled",
            steps=len(self.step_seconds),
            steps_total=len(self.analysis.steps.numbers),
            set_apart=len(self.analysis.steps.numbers) - len(self.step_seconds),
            step_time_s=round(step_s, _DIGITS) if step_s else None,
            tokens_per_step=round(float(tokens.mean()), 1) if tokens is not None else None,
        )
