"""What transformers' Trainer logs of a step, in `trainer_state.json` and in ms-swift's
`logging.jsonl`: the metrics of TRL and ms-swift, and the few times among them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from grpo_doctor import knobs
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.reconstruct import NO_STARTS, LogFacts, LoggedStep, StepLog, reconstruct
from grpo_doctor.importers.text import read_all
from grpo_doctor.trace.jsonfile import BAD_JSON, BARE_NAN, number, read_object, text_or_none, whole
from grpo_doctor.trace.model import Trace

LIMITS = (
    *NO_STARTS,
    "Where the step time goes: TRL and ms-swift send that to trackers such as wandb, not here.",
)
STEP_TIME = "step_time"
# The row that the trainer adds at its end is of the whole run.
RUN_TIME = "train_runtime"
STEP_TIME_COVERS = (
    "The step time is the framework's `step_time`: rollout, rewards, forward and backward passes. "
    "It excludes the optimizer, data loading, logging and checkpoints."
)
_NO_TIMES = "The log has no step times{}."
_SINCE = "; TRL logs `step_time` since 0.26"
_OWN_KEYS = {
    "trl": re.compile(r"completions/|completion_length|frac_reward_zero_std|reward_std$|rewards/"),
    "verl": re.compile(r"critic/score/|actor/"),
    "openrlhf": re.compile(r"rollout/reward_mean|policy_loss$"),
}
_UNTIMED = ("trl", "ms-swift")
_EVAL_TIME = "eval_runtime"
_PROFILED = re.compile(r"profiling/Time taken: \w+\.(.+)")
# TRL's and ms-swift's profiled functions, where a log has them: the first of a span that is there.
_SPANS = {
    "sync": ("sync_weights", "_move_model_to_vllm"),
    "rollout/generate": ("vLLM.generate", "transformers.generate", "transformers.generate_batch",
                         "generate"),
    "reward": ("_score_completions", "_calculate_rewards"),
    "reward/log_completions": ("log_metrics",),
    "train": ("compute_loss",),
}  # fmt: skip


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a row: numbers, and text that is one."""
    metrics = {}
    for key, value in row.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        parsed = number(value)
        if not math.isnan(parsed) or str(value).lower() == "nan":
            metrics[key] = parsed
    return metrics


def step_log(
    rows_by_step: Mapping[int, Sequence[Mapping[str, float]]], wall_s: Mapping[int, float]
) -> StepLog:
    """The steps from their rows. Where no lengths are known otherwise, they are `step_time`."""
    log = StepLog()
    for step, rows in rows_by_step.items():
        seconds = next((row[STEP_TIME] for row in rows if STEP_TIME in row), None)
        log.add(logged_step(step, rows, wall_s.get(step) if wall_s else seconds))
    return log


def of_step_times(log: StepLog) -> str:
    """Return what the step time is, where that is the framework's own; or that there is none."""
    steps = list(log.steps.values())
    if any(step.seconds for step in steps):
        return STEP_TIME_COVERS
    return _NO_TIMES.format(_SINCE if framework_of(steps) == "trl" else "")


def whole_training(seconds: float | None, steps: int) -> tuple[str, ...]:
    """Return how long training took, where that and the number of its steps are known."""
    if not seconds or not steps:
        return ()
    return (f"The whole training took {seconds:.0f} s, {seconds / steps:.3g} s a step.",)


def logged_step(
    step: int, rows: Sequence[Mapping[str, float]], seconds: float | None
) -> LoggedStep:
    """Return a step from what was logged of it: training and evaluation are rows of their own."""
    metrics: dict[str, float] = {}
    for row in rows:
        metrics |= row
    profiled = {
        match[1]: value for key, value in metrics.items() if (match := _PROFILED.match(key))
    }
    phases = tuple(
        part
        for span, names in _SPANS.items()
        if (name := next((name for name in names if name in profiled), None))
        for part in _by_function(span, profiled[name], profiled, metrics)
    )
    evaluated = metrics.get(_EVAL_TIME)
    beside = (("eval", evaluated),) if evaluated is not None else ()
    return LoggedStep(step, seconds, phases, metrics, beside)


def _by_function(
    span: str, seconds: float, profiled: Mapping[str, float], metrics: Mapping[str, float]
) -> list[tuple[str, float]]:
    """Return a span, that of the rewards split by function: TRL profiles each under the name that
    its metrics have."""
    own = [(n, s) for n, s in profiled.items() if f"rewards/{n}/mean" in metrics]
    rest = seconds - sum(s for _, s in own)
    if span != "reward" or not own or rest < 0:
        return [(span, seconds)]
    return [*((f"reward/{name}", s) for name, s in own), (span, rest)]


def facts(what: str, path: Path, steps: Iterable[LoggedStep], notes: Sequence[str]) -> LogFacts:
    """Return what a log, and ms-swift's `args.json` if it is in the same folder, say of the job."""
    logged = list(steps)
    config, problem = _swift_arguments(path)
    framework = "ms-swift" if config else framework_of(logged)
    version = text_or_none(config.get("swift_version"))
    spans = {name for step in logged for name, _ in (*step.phases, *step.beside)}
    limits = LIMITS if framework in _UNTIMED and not spans - {"eval"} else NO_STARTS
    return LogFacts(
        what=what,
        framework=framework,
        framework_version=version,
        limits=limits,
        spans=spans,
        world_size=whole(config.get("global_world_size")) or whole(config.get("world_size")) or 0,
        config=config,
        knobs=knobs.canonical(framework, version, config) if config else {},
        notes=(*notes, *_apart(logged)),
        problems=(problem,) if problem else (),
    )


def framework_of(steps: Sequence[LoggedStep]) -> str:
    """The framework whose own keys were logged, TRL's where it may be ms-swift; a `reward` alone is
    anybody's."""
    keys = {key for step in steps[:10] for key in step.metrics}
    return next((name for name, own in _OWN_KEYS.items() if any(map(own.match, keys))), "unknown")


def _apart(steps: Sequence[LoggedStep]) -> tuple[str, ...]:
    """Return how many steps one row is of, where that is more than one."""
    apart = Counter(b.number - a.number for a, b in itertools.pairwise(steps))
    usual = apart.most_common(1)[0][0] if apart else 1
    return (f"The log has one row for every {usual} steps.",) if usual > 1 else ()


def _swift_arguments(path: Path) -> tuple[dict[str, Any], str | None]:
    """ms-swift's `args.json`, of this folder or of that of a checkpoint's run."""
    for folder in (path.parent, path.parent.parent):
        content, problem = read_object(folder / "args.json")
        if "rlhf_type" in content or "swift_version" in content:
            return content, None
        if problem:
            return {}, problem
    return {}, None


_WHAT = "a trainer_state.json"
_KEY = b'"log_history"'
_ROWS = re.compile(rb"\s*\[\s*\{")
_LINES = b"}\n{"  # of ms-swift's `logging.jsonl`, whose last row has all others once more
# Damage costs the row that it touches; a row ends with its bracket, so few ends have to be tried.
_MOST_ENDS = 100


class _State(msgspec.Struct):
    log_history: list[dict[str, Any]]
    global_step: int = 0


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is such a file, by its name or its keys, or its `log_history` alone."""
    if _ROWS.match(head):
        return b'"step"' in head and b'"reward' in head
    own = path.name == "trainer_state.json" or (_KEY in head and _LINES not in head)
    return head.lstrip().startswith(b"{") and own


def load(path: Path) -> Trace:
    """Return the steps of `log_history`, numbered as there.

    Raises:
        TraceError: it holds no readable row.
    """
    state, cut_off = _decoded(path)
    by_step: dict[int, list[dict[str, float]]] = {}
    runtime: float | None = None
    for row in state.log_history:
        step = whole(row.get("step"))
        metrics = numbers(row)
        runtime = metrics.get(RUN_TIME, runtime)
        if step is not None and RUN_TIME not in metrics:
            metrics.pop("step", None)
            by_step.setdefault(step, []).append(metrics)
    log = step_log(dict(sorted(by_step.items())), {})
    notes = (of_step_times(log), *whole_training(runtime, state.global_step))
    of_job = facts(_WHAT, path, log.steps.values(), notes)
    return reconstruct(path, replace(of_job, truncated=cut_off), log)


def _decoded(path: Path) -> tuple[_State, bool]:
    """Return the file, and whether its end is missing."""
    text = read_all(path)
    # Python's json writes bare NaN; as text it keeps its meaning.
    text = BARE_NAN.sub(lambda match: b'"' + match[0].strip() + b'"', text)
    if _ROWS.match(text):
        text = b'{"log_history":' + text + b"}"
    try:
        return msgspec.json.decode(text, type=_State), False
    except BAD_JSON as problem:
        end = text.rfind(b"}")
        for _ in range(_MOST_ENDS):
            if end < 0:
                break
            try:
                return msgspec.json.decode(text[: end + 1] + b"]}", type=_State), True
            except BAD_JSON:
                end = text.rfind(b"}", 0, end)
        line = text.count(b"\n") + 1
        raise TraceError(
            f"{path} is damaged: {problem} (the file has {line} lines). Accepted: the "
            f"trainer_state.json of a checkpoint, with its `log_history`."
        ) from problem
