"""`format`: 1 if a completion is `<think>...</think><answer>...</answer>` and nothing else.

The pattern of DeepSeek-R1 (arXiv 2501.12948, table 1); white space around the elements is free.
"""

from __future__ import annotations

import re

_LAYOUT = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
_TAG = re.compile(r"</?(?:think|answer)>")


def think_then_answer(completions: list[str], **_columns: object) -> list[float]:
    """Scores each completion 1 or 0; each of the four tags must occur exactly once."""
    return [float(_fits(completion)) for completion in completions]


def _fits(completion: str) -> bool:
    match = _LAYOUT.fullmatch(completion)
    return match is not None and not any(_TAG.search(part) for part in match.groups())
