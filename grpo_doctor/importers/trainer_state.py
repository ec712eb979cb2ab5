"""`trainer_state.json`, which transformers' Trainer writes with a checkpoint: what TRL logged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.reconstruct import reconstruct
from grpo_doctor.importers.rows import RUN_TIME
from grpo_doctor.importers.text import read_all
from grpo_doctor.importers.trainer_log import facts, numbers, of_step_times, step_log
from grpo_doctor.trace.jsonfile import BAD_JSON, BARE_NAN, whole
from grpo_doctor.trace.model import Trace

_WHAT = "a trainer_state.json"
_KEY = b'"log_history"'
# Damage costs the row that it touches; a row ends with its bracket, so few ends have to be tried.
_MOST_ENDS = 100


class _State(msgspec.Struct):
    log_history: list[dict[str, Any]]
    global_step: int = 0


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is such a file, by its name or its keys."""
    return head.lstrip().startswith(b"{") and (path.name == "trainer_state.json" or _KEY in head)


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
    notes = [of_step_times(log)]
    if runtime and state.global_step:
        notes.append(
            f"The whole training took {runtime:.0f} s, {runtime / state.global_step:.3g} s a step."
        )
    of_job = facts(_WHAT, path, log.steps.values(), notes)
    return reconstruct(path, replace(of_job, truncated=cut_off), log)


def _decoded(path: Path) -> tuple[_State, bool]:
    """Return the file, and whether its end is missing."""
    text = read_all(path)
    # Python's json writes bare NaN; as text it keeps its meaning.
    text = BARE_NAN.sub(lambda match: b'"' + match[0].strip() + b'"', text)
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
