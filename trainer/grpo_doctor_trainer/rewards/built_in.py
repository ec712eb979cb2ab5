"""The built-in reward functions, two of them here.

`format`: 1 if a completion is `<think>...</think><answer>...</answer>` and nothing else. The
pattern of DeepSeek-R1 (arXiv 2501.12948, table 1); white space around the elements is free. Chat
templates such as that of R1's distilled models open `<think>` in the prompt already: the completion
then has to close it, and may not open it again.

`length`: the soft overlong punishment of DAPO (arXiv 2503.14476, equation 13). 0 up to a soft
limit, then falling in a straight line to -1 at the longest completion there can be. DAPO punishes
over the last 4096 of 20480 tokens; here it is the same share of `--max_completion_length`, one
fifth.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.rewards.accuracy import make_accuracy
from grpo_doctor_trainer.tasks import arithmetic_reward

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpo_doctor_trainer.config import TrainerConfig

_LAYOUT = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
_TAG = re.compile(r"</?(?:think|answer)>")
_THINK = "<think>"
_PUNISHED_SHARE = 4096 / 20480


def think_then_answer(
    completions: list[str], prompts: Sequence[str] = (), **_columns: object
) -> list[float]:
    """Scores each completion 1 or 0; each of the four tags must occur exactly once.

    Args:
        completions: the texts.
        prompts: of each as the model saw it; none: no prompt opens `<think>`.
    """
    paired = itertools.zip_longest(completions, prompts, fillvalue="")
    return [float(_fits(_opened_by(prompt) + completion)) for completion, prompt in paired]


def _opened_by(prompt: str) -> str:
    return _THINK if prompt.rstrip().endswith(_THINK) else ""


def _fits(completion: str) -> bool:
    match = _LAYOUT.fullmatch(completion)
    return match is not None and not any(_TAG.search(part) for part in match.groups())


def make_length(config: TrainerConfig) -> Callable[..., list[float]]:
    """Makes the function for the limit of a run."""
    longest = config.max_completion_length
    punished = max(1, round(longest * _PUNISHED_SHARE))

    def length(completion_ids: list[list[int]], **_columns: object) -> list[float]:
        return [overlong_punishment(len(ids), longest, punished) for ids in completion_ids]

    return length


def overlong_punishment(tokens: int, longest: int, punished: int) -> float:
    """Scores a completion of `tokens` tokens, its end token included, from 0 down to -1.

    Args:
        tokens: its length.
        longest: where the punishment is full, L_max of the paper.
        punished: how many tokens before that it begins, L_cache of the paper.
    """
    excess = tokens - (longest - punished)
    return 0.0 - min(1.0, max(0, excess) / punished)


# Each is made for a run, because some need its limits, and scores one completion at a time.
BUILT_IN: dict[str, Callable[[TrainerConfig], Callable[..., Any]]] = {
    "accuracy": make_accuracy,
    "format": lambda _config: think_then_answer,
    "length": make_length,
    "arithmetic": lambda _config: arithmetic_reward,
}
