"""Console logs of NeMo RL: after each step its results and timers, `  • policy_training: 25.05s`.

The driver of GRPO prints them since 0.2, the asynchronous one since 0.4, under the number of the
step: `===== Step 3/100 =====`. Steps of a pasted part without that line are counted.
"""

from __future__ import annotations

import re
from pathlib import Path

from grpo_doctor.importers.openrlhf_log import ASYNC_NOTE
from grpo_doctor.importers.reconstruct import NO_STARTS, LogFacts, LoggedStep, StepLog, reconstruct
from grpo_doctor.importers.text import NUMBER, FatalLines, contains, is_log, lines
from grpo_doctor.trace.model import Trace

_STEP = re.compile(r"={5,} Step (\d{1,15})/\d+ ={5,}")
_TOTAL_BYTES = re.compile(rb"\xe2\x80\xa2 Total step time: \d")
_TITLE = re.compile(r"(Validation )?(Results|Timing)\b[^:]{0,99}:\s*$")
_PAIR = re.compile(rf"• ([^:]{{1,80}}): {NUMBER}(s?)(?= |$)")
_RESULTS, _TOTAL = "Training Results:", "Total step time"
# Timers within these, such as `prepare_for_generation/transfer_and_update_weights`, are not listed.
_TIMERS = {
    "exposed_generation": "rollout/wait", "buffer_sampling": "dataload",
    "data_processing": "dataload",
    "prepare_for_generation": "sync", "prepare_for_generation/total": "sync",
    "generation": "rollout/generate", "reward_calculation": "reward",
    "logprob_inference_prep": "offload", "policy_and_reference_logprobs": "logprob",
    "advantage_calculation": "reward/advantages", "training_prep": "offload",
    "policy_training": "train", "weight_sync": "sync", "Total validation time": "eval",
    "checkpointing": "checkpoint",
}  # fmt: skip
# As NeMo RL calls them in trackers.
_METRICS = {
    "Loss": "train/loss", "Avg Reward": "train/reward", "Avg Filtered Reward": "train/reward",
    "Mean Generation Length": "train/mean_gen_tokens_per_sample",
}  # fmt: skip
_REWARDS = (
    "Rewards: environments score within `generation`, which is `rollout` here; `reward` is what "
    "follows."
)
_COUNTED = "The log has no step numbers; its steps are counted from 1."


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is a log with steps of NeMo RL."""
    return is_log(head) and contains(path, _TOTAL_BYTES)


def load(path: Path) -> Trace:
    """Return the steps of the log that ended; a last line that is cut off is left out."""
    log, fatal = StepLog(), FatalLines()
    seconds: dict[str, float] = {}
    metrics: dict[str, float] = {}
    number, prefix, counted, cut_off = 0, "", False, False
    for line_number, line, whole in lines(path):
        header, pair = _STEP.search(line), _PAIR.search(line)
        begins = (_RESULTS in line or _TOTAL in line) and (_TOTAL in seconds or not number)
        if header or begins:
            _end(log, number, seconds, metrics)
            number, seconds, metrics = int(header[1]) if header else number + 1, {}, {}
            counted |= header is None
        if title := _TITLE.search(line):
            prefix = "validation/" if title[1] else ""
        if pair is None:
            fatal.read(line_number, line)
        elif not whole and not line.endswith(")"):
            cut_off = True
        elif pair[3]:
            seconds[pair[1]] = float(pair[2])
            fatal.step()
        else:
            metrics[prefix + _METRICS.get(pair[1], pair[1])] = float(pair[2])
    _end(log, number, seconds, metrics)
    waits = any(span == "rollout/wait" for step in log.steps.values() for span, _ in step.phases)
    return reconstruct(
        path,
        LogFacts(
            what="a console log of NeMo RL",
            framework="nemo-rl",
            limits=(*NO_STARTS, _REWARDS),
            spans=_TIMERS.values(),
            notes=((ASYNC_NOTE,) if waits else ()) + ((_COUNTED,) if counted else ()),
            problems=("the last line is cut off",) if cut_off else (),
            truncated=cut_off,
            fatal=fatal,
        ),
        log,
    )


def _end(log: StepLog, number: int, seconds: dict[str, float], metrics: dict[str, float]) -> None:
    if _TOTAL in seconds:  # else what came before the first step, or a step that did not end
        phases = tuple((span, seconds[name]) for name, span in _TIMERS.items() if name in seconds)
        log.add(LoggedStep(number, seconds[_TOTAL], phases, metrics))
