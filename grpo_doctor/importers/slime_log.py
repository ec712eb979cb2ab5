"""Console logs of slime and miles: lines such as `perf 12: {'perf/train_wait_time': 40.1, ...}`.

Of a rollout N the ranks write `perf N` with their timers, and `rollout N`; the rollout manager
writes `perf N` of its own, before. `step M` counts updates of the weights, of which a rollout may
have several. (slime 0.2.4 to 0.3.1, miles 0.1: `utils/train_metric_utils.py`, `ray/rollout.py`.)
"""

from __future__ import annotations

import re
from pathlib import Path

from grpo_doctor.importers.reconstruct import NO_STARTS, LogFacts, LoggedStep, StepLog, reconstruct
from grpo_doctor.importers.text import FatalLines, contains, is_log, lines, numbers_of, unwrapped
from grpo_doctor.trace.model import Trace

_ROW = re.compile(r"(?<![\w-])(perf|rollout|step) (\d+): \{(?=')")
_ROW_BYTES = re.compile(rb"(?:perf|rollout) \d+: \{'(?:perf|rollout)/")
_WAIT, _TRAIN, _TOTAL = "perf/train_wait_time", "perf/train_time", "perf/step_time"
# Timers that run while `train_wait` does, and those of `train`.
_BESIDE = {
    "perf/sleep_time": "offload", "perf/wake_up_time": "offload",
    "perf/update_weights_time": "sync", "perf/save_model_time": "checkpoint",
    "perf/data_preprocess_time": "dataload",
}  # fmt: skip
_TRAINING = {
    "perf/ref_log_probs_time": "logprob/reference",
    "perf/teacher_log_probs_time": "logprob/teacher", "perf/log_probs_time": "logprob/old",
    "perf/actor_train_time": "train",
}  # fmt: skip
_WAITING = "rollout/wait"
_ROLLOUTS = (
    "Rollouts and rewards: the ranks time that they wait, for rollouts and for what the driver "
    "does meanwhile; it is `rollout` here."
)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is a log with rows of slime's rollouts."""
    return is_log(head) and contains(path, _ROW_BYTES)


def load(path: Path) -> Trace:
    """Return the steps of the log, a rollout each; a row that is cut off loses what was cut."""
    log, fatal = StepLog(), FatalLines()
    values: dict[int, dict[str, float]] = {}
    updates: dict[str, float] = {}
    package, cut_off = "slime", False
    for number, line, whole in unwrapped(lines(path), _ROW):
        match = _ROW.search(line)
        if match is None:
            fatal.read(number, line)
            package = "miles" if "miles/" in line else package
            continue
        fatal.step()
        cut_off = not (whole or line.rstrip().endswith("}"))
        pairs = numbers_of(line[match.end() :])
        if match[1] == "step":
            updates = pairs
            continue
        rollout = int(match[2])
        values.setdefault(rollout, {}).update(pairs)
        if _WAIT in pairs or _TRAIN in pairs:
            log.add(_step(rollout, {**updates, **values.pop(rollout)}))
            updates = {}
    for rollout in sorted(values):
        if rollout > max(log.steps, default=-1):
            log.add(LoggedStep(rollout, None, (), values[rollout]))
    timed = any(step.seconds for step in log.steps.values())
    return reconstruct(
        path,
        LogFacts(
            what=f"a console log of {package}",
            framework=package,
            limits=(*NO_STARTS, *((_ROLLOUTS,) if timed else ())),
            spans=(_WAITING, *_BESIDE.values(), *_TRAINING.values()) if timed else (),
            problems=("the last line is cut off",) if cut_off else (),
            truncated=cut_off,
            fatal=fatal,
        ),
        log,
    )


def _step(rollout: int, values: dict[str, float]) -> LoggedStep:
    """Return a step from the timers of the first rank."""
    wait_s, train_s = values.get(_WAIT), values.get(_TRAIN)
    if wait_s is None or train_s is None:
        return LoggedStep(rollout, None, (), values)
    beside = [(span, values[name]) for name, span in _BESIDE.items() if name in values]
    within = [(span, values[name]) for name, span in _TRAINING.items() if name in values]
    waited_s = max(0.0, wait_s - sum(seconds for _, seconds in beside))
    total_s = values.get(_TOTAL, wait_s + train_s)
    return LoggedStep(rollout, total_s, ((_WAITING, waited_s), *beside, *within), values)
