"""OpenRLHF's console log: one line a step, `Global step 12: {'timing/generation': 25.5, ...}`.

Since 0.10 it has times. The synchronous trainer's `step_total` is the sum of the others; that of
the asynchronous one is the time of the whole round, during which the next samples are generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from grpo_doctor import knobs
from grpo_doctor.importers.reconstruct import NO_STARTS, LogFacts, LoggedStep, StepLog, reconstruct
from grpo_doctor.importers.text import (
    FatalLines,
    command_of,
    contains,
    is_log,
    lines,
    numbers_of,
    unwrapped,
)
from grpo_doctor.trace.model import Trace

_STEP_LINE = re.compile(r"Global step (\d+): \{")
_STEP_BYTES = re.compile(rb"Global step \d+: \{'")
_TOTAL = "timing/step_total"
# In the order in which the trainers run them.
_PHASES = {
    "timing/generation": "rollout/generate",
    "timing/make_experience": "logprob",
    "timing/ppo_train": "train",
    "timing/broadcast": "sync",
}
_WAITING = "rollout/wait"
_ASYNC = "ppo_trainer_async"
LIMITS = (
    *NO_STARTS,
    "Rewards: OpenRLHF computes them within `timing/generation`, which is `rollout` here.",
)
_SYNC_LIMIT = (
    "Time outside OpenRLHF's timers: its `timing/step_total` is their sum, without checkpoints, "
    "evaluation and logging."
)
ASYNC_NOTE = (
    "Samples are generated during the steps; `rollout` is the time the trainer waited for samples."
)
_NO_TIMES = "The log has no step times: OpenRLHF logs them since 0.10."
_VLLM = re.compile(r"LLM engine \(v([\w.+-]+)\)")


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is a log with lines of OpenRLHF's steps."""
    return is_log(head) and contains(path, _STEP_BYTES)


def load(path: Path) -> Trace:
    """Return the steps of the log; one whose line is cut off loses what was cut."""
    log = StepLog()
    command: tuple[str, ...] = ()
    vllm: str | None = None
    beside = cut_off = False
    fatal = FatalLines()
    for number, line, whole in unwrapped(lines(path), _STEP_LINE):
        if match := _STEP_LINE.search(line):
            fatal.step()
            beside |= _ASYNC in line[: match.start()]
            log.add(logged(int(match[1]), numbers_of(line[match.end() :]), beside=beside))
            cut_off = not (whole or line.rstrip().endswith("}"))
        else:
            fatal.read(number, line)
            command = command or command_of(line, "openrlhf.cli.")
        if vllm is None and (version := _VLLM.search(line)):
            vllm = version[1]
    timed = any(step.seconds for step in log.steps.values())
    return reconstruct(
        path,
        LogFacts(
            what="an OpenRLHF console log",
            framework="openrlhf",
            limits=LIMITS if beside or not timed else (*LIMITS, _SYNC_LIMIT),
            spans=_PHASES.values() if timed else (),
            command=command,
            knobs=knobs.from_command("openrlhf", None, command) if command else {},
            versions={"vllm": vllm} if vllm else {},
            notes=((ASYNC_NOTE,) if beside else ()) if timed else (_NO_TIMES,),
            problems=("the last line is cut off",) if cut_off else (),
            truncated=cut_off,
            fatal=fatal,
        ),
        log,
    )


def logged(number: int, values: Mapping[str, float], *, beside: bool) -> LoggedStep:
    """Return a step from what OpenRLHF logs of it; `beside`: samples are generated meanwhile."""
    total = values.get(_TOTAL)
    phases = [(span, values[name]) for name, span in _PHASES.items() if name in values]
    if beside and total is not None:
        phases = [phase for phase in phases if phase[0] != "rollout/generate"]
        phases = [(_WAITING, max(0.0, total - sum(s for _, s in phases))), *phases]
    return LoggedStep(number, total, tuple(phases), values)
