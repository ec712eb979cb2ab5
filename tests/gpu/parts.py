"""A part of `make gpu`: what it is asked to do, and what it found out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

State = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Wish:
    """How to run. `dry`: on the CPU with gloo, as far as that goes. `folder` is the part's own.

    `keep` is where the evidence of each fault stays, for `attach --replay`; none: nowhere.
    """

    folder: Path
    dry: bool = False
    ranks: int = 4
    cases: tuple[str, ...] = ()
    keep: Path | None = None


@dataclass
class Check:
    """One line of the result: what was expected and what was seen, with numbers."""

    name: str
    state: State
    text: str


@dataclass
class Outcome:
    """All lines of a part."""

    checks: list[Check] = field(default_factory=list)

    def says(self, name: str, holds: bool, text: str) -> None:
        """Note a check that has passed or failed."""
        self.checks.append(Check(name, "passed" if holds else "failed", text))

    def skips(self, name: str, why: str) -> None:
        """Note a check that could not be made."""
        self.checks.append(Check(name, "skipped", why))


Part = Callable[[Wish, Outcome], None]


def problem_without(*packages: str) -> str:
    """Why a part that needs CUDA and these packages cannot be run here; empty where it can."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return cuda_problem() or (f"not installed: {', '.join(missing)}" if missing else "")


def cuda_problem() -> str:
    """Why CUDA cannot be used here; empty where it can."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device here"
    return ""
