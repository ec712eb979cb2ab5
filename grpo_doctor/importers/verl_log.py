"""verl's console log: one line a step, `step:12 - timing_s/gen:25.5 - ...`, of verl 0.2 to 0.9."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.importers.reconstruct import NO_STARTS, LogFacts, LoggedStep, StepLog, reconstruct
from grpo_doctor.importers.text import (
    NUMBER,
    FatalLines,
    command_of,
    contains,
    is_log,
    lines,
    unwrapped,
    without_actor,
)
from grpo_doctor.trace.model import Trace

# `k:v` pairs after the number tell it from other programs' words.
_STEP_LINE = re.compile(r"step:(\d+) - (?=[\w./@-]+:)|^\s*step:(\d+)[\s-]*$")
_STEP_BYTES = re.compile(
    rb"step:\d+ - [\w./@-]+:[-+\dni]|step:\d+[\s-]{0,99}\n[\s-]{0,99}\w+/[\w./@-]+:[-+\dni]"
)
# verl's trainer for SFT, whose output may be in the same file.
_OF_SFT = re.compile(r"(?:train|val)/loss:")
# Where a paste or a narrow terminal broke the line.
_MORE = re.compile(rf"[\s-]*(?=\w+/[\w./@-]+:{NUMBER}(?:\s|$))")
# What follows the number may be of another process: `throughput:436.3(TaskRunner pid=1) Training`.
_PAIR = re.compile(rf"(\S+?):{NUMBER}")
_STEP_TIMER = "timing_s/step"
_TIMER = "timing_s/"
# verl's timers in the order in which its trainers run them, and the span of ours. Before 0.3 the
# rewards were computed within `adv`.
_PHASES = {
    "wait_prev_gen": "rollout/wait",
    "switch_wait": "rollout/wait",
    "gen": "rollout/generate",
    "gen_max": "rollout/generate",
    "dump_rollout_generations": "reward/log_completions",
    "reward": "reward",
    "switch_to_trainer": "offload",
    "old_log_prob": "logprob/old",
    "ref": "logprob/reference",
    "ref_log_prob": "logprob/reference",
    "values": "logprob/values",
    "adv": "reward/advantages",
    "update_critic": "train/critic",
    "update_actor": "train",
    "switch_to_rollout": "offload",
    "update_weights": "sync",
    "sync_rollout_weights": "sync",
    "param_sync": "sync",
    "timing_s/param_sync": "sync",
    "save_checkpoint": "checkpoint",
    "testing": "eval",
}
# The slowest worker's generation, without what `gen` times around it.
_GENERATED = "timing_s/generation_timing/max"
_LITTLE = 0.5
# Parts of the timers above, and those of work that goes on during the step.
_WITHIN = {
    "step", "start_profile", "stop_profile", "generate_sequences", "generate_async",
    "wait_for_enough_samples", "reshard", "tool_calls", "compute_score",
}  # fmt: skip
LIMITS = (
    *NO_STARTS,
    "The optimizer: verl times it as part of `update_actor`, which is `train` here.",
)
_CONFIG_BEGINS = "{'actor_rollout_ref'"
_MOST_CONFIG_LINES = 5000
_VLLM = re.compile(r"LLM engine \(v([\w.+-]+)\)")


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is a log with lines of verl's steps."""
    return is_log(head) and contains(path, _STEP_BYTES)


def load(path: Path) -> Trace:
    """Return the steps of the log; one whose last line is cut off loses what was cut."""
    log, reader = StepLog(), _Facts()
    for number, text, whole in _joined(path):
        match = _STEP_LINE.search(text)
        if match and _OF_SFT.match(text, match.end()):
            continue
        if match:
            log.add(_step(int(match[1] or match[2]), text[match.end() :], whole, reader.unknown))
            reader.truncated = not whole
            reader.fatal.step()
        else:
            reader.fatal.read(number, text)
            reader.read(text)
    of_job = reader.facts()
    return reconstruct(path, replace(of_job, notes=(*of_job.notes, *_around(log))), log)


def _around(log: StepLog) -> tuple[str, ...]:
    """Return how much of verl's `gen` the slowest engine generated, where that is little."""
    rows = [step.metrics for step in log.steps.values() if _GENERATED in step.metrics]
    whole, own = (
        median(row.get(key, math.nan) for row in rows) if rows else math.nan
        for key in (f"{_TIMER}gen", _GENERATED)
    )
    if not own < _LITTLE * whole:
        return ()
    known = f"Of the {whole:.3g} s of `gen`, generation takes {own:.3g} s"
    rest = "engines that wake and sleep, weights and data that are moved"
    return (f"{known}. verl does not time the rest: {rest}.",)


def _joined(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines; those of a step that was broken into several as one."""
    step: tuple[int, str, bool] | None = None
    for number, line, whole in unwrapped(lines(path), _STEP_LINE):
        if step is not None and (more := _MORE.match(line)):
            step = (step[0], f"{step[1].rstrip(' -')} - {line[more.end() :]}", whole)
            continue
        if step is not None:
            yield step
        step = (number, line, whole) if _STEP_LINE.search(line) else None
        if step is None:
            yield number, line, whole
    if step is not None:
        yield step


def _step(number: int, text: str, whole: bool, unknown: set[str]) -> LoggedStep:
    values: dict[str, float] = {}
    pairs = text.split(" - ")
    for pair in pairs if whole else pairs[:-1]:
        if match := _PAIR.match(pair):
            values[match[1]] = float(match[2])
    return logged(number, values, unknown)


def logged(number: int, values: Mapping[str, float], unknown: set[str]) -> LoggedStep:
    """Return a step from what verl logs of it; timers of no known phase are added to `unknown`."""
    timers = {key.removeprefix(_TIMER): s for key, s in values.items() if key.startswith(_TIMER)}
    unknown |= {name for name in timers.keys() - _PHASES.keys() - _WITHIN if "/" not in name}
    phases = tuple((span, timers[name]) for name, span in _PHASES.items() if name in timers)
    return LoggedStep(number, values.get(_STEP_TIMER), phases, values)


class _Facts:
    """What the rest of the log says: the command, the printed configuration, vLLM's version."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()
        self.truncated = False
        self.fatal = FatalLines()
        self._command: tuple[str, ...] = ()
        self._vllm: str | None = None
        self._config: Mapping[str, Any] = {}
        self._actor = ""
        self._printed: list[str] = []

    def read(self, line: str) -> None:
        """A line that is not a step."""
        actor, text = without_actor(line)
        if self._printed or text.startswith(_CONFIG_BEGINS):
            if not self._printed:
                self._actor = actor
            if actor == self._actor:
                self._config_line(text)
        elif not self._command and (words := command_of(text, "-m verl.")):
            self._command = words
        elif self._vllm is None and (version := _VLLM.search(text)):
            self._vllm = version[1]

    def _config_line(self, text: str) -> None:
        self._printed.append(text)
        printed = "\n".join(self._printed) if text.endswith("}") else ""
        if printed.count("{") == printed.count("}") > 0:
            self._config = _literal(printed)
            self._printed = []
        elif len(self._printed) > _MOST_CONFIG_LINES:
            self._printed = []

    def facts(self) -> LogFacts:
        """Return all of it."""
        notes: tuple[str, ...] = ()
        if self.unknown:
            timers = ", ".join(sorted(self.unknown))
            notes = (f"Timers of verl that belong to no phase known here: {timers}.",)
        settings = knobs.from_command("verl", None, self._command) if self._command else {}
        settings = {**knobs.canonical("verl", None, self._config), **settings}
        return LogFacts(
            what="a verl console log",
            framework="verl",
            limits=LIMITS,
            spans=_PHASES.values(),
            world_size=self._world_size(),
            config=self._config,
            knobs=settings,
            versions={"vllm": self._vllm} if self._vllm else {},
            command=self._command,
            notes=notes,
            problems=("the last line is cut off",) if self.truncated else (),
            truncated=self.truncated,
            fatal=self.fatal,
        )

    def _world_size(self) -> int:
        trainer = self._config.get("trainer")
        settings = dict(trainer) if isinstance(trainer, dict) else {}
        for word in self._command:
            name, _, value = word.lstrip("+").partition("=")
            settings[name.removeprefix("trainer.")] = value
        gpus, hosts = (str(settings.get(key, "")) for key in ("n_gpus_per_node", "nnodes"))
        return int(gpus) * int(hosts if hosts.isdecimal() else 1) if gpus.isdecimal() else 0


def _literal(printed: str) -> Mapping[str, Any]:
    try:
        value = ast.literal_eval(printed)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
