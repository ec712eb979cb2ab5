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
    `rewritten` is the user's work after that. Nothing was fixed on what came of an `unseen` one.
    `printed` is what the report said when this was last tried, so that both jobs can run at once:
    where it says something else, that is what is applied.
    """

    framework: str
    name: str
    rule: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)
    next_step: str = ""
    rewritten: Mapping[str, Any] = field(default_factory=dict)
    printed: str = ""
    unseen: bool = False


_JUDGES = {"judges": {"judge": 0.3, "format": 0.2}}
_AT_ONCE = "run {} at once: one function with a pool of processes, or async functions"
_NAMED = {"trl": _AT_ONCE.format("judge, format"), "swift": _AT_ONCE.format("Judge, Format")}


def _of_both(name: str, rule: str, **fields: Any) -> tuple[Case, ...]:
    return tuple(Case(framework, name, rule, **fields) for framework in FRAMEWORKS)


def _at_once(framework: str) -> Case:
    return Case(
        framework, "rewards at once", "GD034", work=_JUDGES, next_step="at once.*async functions",
        rewritten={**_JUDGES, "async": True}, printed=_NAMED[framework],
    )  # fmt: skip


CASES: tuple[Case, ...] = (
    *_of_both(
        "loader processes", "GD002", work={"row_s": 0.03}, printed="--dataloader_num_workers 4"
    ),
    *map(_at_once, FRAMEWORKS),
    *_of_both(
        "micro-batch and accumulation", "GD037",
        flags={"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        printed="--per_device_train_batch_size 4 --gradient_accumulation_steps 2",
    ),
    Case(
        "trl", "logged completions", "GD044",
        flags={"log_completions": "true", "per_device_train_batch_size": 16},
        printed="--log_completions false",
    ),
    Case(
        "swift", "recomputed activations", "GD041",
        flags={"gradient_checkpointing": "true", "per_device_train_batch_size": 8},
        printed="--gradient_checkpointing false",
    ),
    *_of_both(
        "checkpoints", "GD070", unseen=True, flags={"save_strategy": "steps", "save_steps": 2},
        printed="--save_steps 200",
    ),
    *_of_both(
        "reference model", "GD042", unseen=True, flags={"beta": 0.0005}, printed="--beta 0"
    ),
)  # fmt: skip
