"""Whether a report's phases are those of verl's own timers, step by step.

Reads the log a second time, with a regular expression, and compares each step and phase with what
the importer made of it. A public log of 870 steps is data/verl_data/good_full_verl.log of
https://github.com/verl-project/rl-insight.

python -m benchmarks.log_shares LOG...
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.importers.load import load

TIMERS = {
    "rollout": ("gen",),
    "reward": ("reward", "adv"),
    "logprob": ("old_log_prob", "ref"),
    "train": ("update_actor", "update_critic"),
    "sync": ("update_weights",),
}
# A log's digits are those of a float64; ours are whole nanoseconds.
_ROUNDING_S = 1e-6
_STEP = re.compile(r"\bstep:(\d+) - (.*)")
_TIMER = re.compile(r"\btiming_s/(\w+):([0-9.e+-]+)(?= - |\s|$|\()")


def timers_of(path: Path) -> dict[int, dict[str, float]]:
    """Of each step the timers that have no slash, in seconds; the last line of a step counts."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    matches = [match for line in lines if (match := _STEP.search(line))]
    timers = {int(match[1]): dict(_TIMER.findall(match[2])) for match in matches}
    return {
        step: {name: float(seconds) for name, seconds in seconds_of.items()}
        for step, seconds_of in timers.items()
        if "step" in seconds_of
    }


def differences(path: Path) -> list[str]:
    """One sentence per step and phase that is not the log's."""
    analysis, timers = analyse(load(path)), timers_of(path)
    sentences = []
    if sorted(timers) != analysis.steps.numbers.tolist():
        sentences.append(
            f"the log has {len(timers)} steps, the report {len(analysis.steps.numbers)}"
        )
    for row, number in enumerate(analysis.steps.numbers.tolist()):
        seconds_of = timers.get(number, {})
        expected = {
            phase: sum(seconds_of.get(n, 0.0) for n in own) for phase, own in TIMERS.items()
        }
        for phase, seconds in expected.items():
            ours = float(analysis.seconds[row, 0, CODES[phase]])
            if abs(ours - seconds) > _ROUNDING_S:
                sentences.append(f"step {number}: {phase} took {seconds} s, the report says {ours}")
    return sentences


def main() -> int:
    """1 where any phase of any log is not the log's."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    wrong = 0
    for name in sys.argv[1:]:
        sentences = differences(Path(name))
        wrong += len(sentences)
        print(f"{name}: {len(timers_of(Path(name)))} steps, {len(sentences)} differences")
        for sentence in sentences[:10]:
            print(f"  {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
