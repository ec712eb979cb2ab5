"""What `attach` said the first time of faults that nobody foresaw, before anything was fixed.

Recorded once for each round, in `first_passes/`, because it cannot be measured again: for each
fault the letters of what was right, D (detected), R (the rank) and C (the class).
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.score import Outcome

FOLDER = Path(__file__).with_name("first_passes")


def commit(of_round: str) -> str:
    """The version of the tool that was asked."""
    revision: str = json.loads(_file(of_round).read_text())["commit"]
    return revision


def outcomes(of_round: str) -> list[Outcome]:
    """The verdicts, without the answers' words and seconds."""
    cases: dict[str, str] = json.loads(_file(of_round).read_text())["cases"]
    return [
        Outcome(
            name, of_round, (), 0, -1, "", detected="D" in marks, culprit_right="R" in marks,
            class_right="C" in marks,
        )
        for name, marks in cases.items()
    ]  # fmt: skip


def _file(of_round: str) -> Path:
    return FOLDER / f"{of_round}.json"
