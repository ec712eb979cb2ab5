"""Jobs with a handicap that users have, and the rule whose advice is followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FRAMEWORKS = ("trl", "swift")


@dataclass(frozen=True)
class Case:
    """`flags` and `work` (see `user_code/advice_work.py`) are the handicap.

    Where the advice is to change code, it is `next_step`, a pattern that its text has to match, and
    `rewritten` is the user's work after that. Nothing was mended on what came of an `unseen` one.
    """

    framework: str
    name: str
    rule: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)
    next_step: str = ""
    rewritten: Mapping[str, Any] = field(default_factory=dict)
    unseen: bool = False


_JUDGES = {"judges": {"judge": 0.3, "format": 0.2}}


def _of_both(name: str, rule: str, **said: Any) -> tuple[Case, ...]:
    return tuple(Case(framework, name, rule, **said) for framework in FRAMEWORKS)


CASES: tuple[Case, ...] = (
    *_of_both("loader processes", "GD002", work={"row_s": 0.03}),
    *_of_both(
        "rewards at once", "GD034", work=_JUDGES, next_step="at once.*async functions",
        rewritten={**_JUDGES, "async": True},
    ),
    *_of_both(
        "micro-batch and accumulation", "GD037",
        flags={"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
    ),
    Case(
        "trl", "logged completions", "GD044",
        flags={"log_completions": "true", "per_device_train_batch_size": 32},
    ),
    Case(
        "swift", "recomputed activations", "GD041",
        flags={"gradient_checkpointing": "true", "per_device_train_batch_size": 16},
    ),
    *_of_both(
        "checkpoints", "GD070", unseen=True, flags={"save_strategy": "steps", "save_steps": 2}
    ),
    *_of_both("reference model", "GD042", unseen=True, flags={"beta": 0.0005}),
)  # fmt: skip
