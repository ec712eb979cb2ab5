"""The forty: what is wrong with each, and why that is known."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tests.clinic import causes
from tests.faults.cases import draw
from tests.faults.registry import load
from tests.labelled import registry
from tests.labelled.case import Case

Kind = Literal["slow", "stuck", "not learning", "not fitting"]


@dataclass(frozen=True, slots=True)
class SickRun:
    """One run and its truth.

    Attributes:
        name: such as `slow-03`; says its kind and nothing more.
        causes: keys of `causes.MENU[kind]` that are right.
        proof: why.
        case: how to start it, for one that is slow or does not learn.
        fault: of `tests.faults`, for one that is stuck.
        launch: the command, for one that does not fit, with `gpus`.
    """

    name: str
    kind: Kind
    causes: frozenset[str]
    proof: str
    case: Case | None = None
    fault: str = ""
    launch: str = ""
    gpus: str = ""

    @property
    def guilty(self) -> frozenset[int]:
        """The ranks of which one must be named, drawn from the fault's name; none where none is."""
        if not self.fault:
            return frozenset()
        fault = load()[self.fault]
        return fault.truth.guilty(draw(fault, 0).culprit, fault.world_size)


@lru_cache(maxsize=1)
def sick_runs() -> dict[str, SickRun]:
    """All of them by name."""
    rows = []
    for prefix, kind in (
        ("slow", _slow()), ("stuck", _stuck()),
        ("unlearning", _unlearning()), ("unfit", _too_large()),
    ):  # fmt: skip
        random.Random(prefix).shuffle(kind)  # the order says nothing
        rows += [replace(row, name=f"{prefix}-{i:02}") for i, row in enumerate(kind, 1)]
    return {row.name: row for row in rows}


_INJECTED = "the flag or the reward function that causes it was put in: tests/labelled"


def _of_cases(kind: Kind, cases: Iterable[Case], *strengths: str) -> list[SickRun]:
    rows = []
    for case in cases:
        right = frozenset(causes.of_rules(sorted(case.has))) & causes.MENU[kind].keys()
        if case.strength in strengths and right:
            rows.append(SickRun("", kind, right, f"{case.title}: {_INJECTED}", case))
    return rows


def _slow() -> list[SickRun]:
    return _of_cases("slow", registry.slow(), "medium", "strong")


def _unlearning() -> list[SickRun]:
    """One of each cause."""
    rows = _of_cases("not learning", registry.unlearning(), "strong")
    return list({min(row.causes): row for row in reversed(rows)}.values())


_STUCK = (
    "sleep in the reward",
    "reward server never answers",
    "a child that never ends",
    "locks taken in opposite orders",
    "SIGSTOP in update",
    "another operation",
    "two groups in swapped order",
    "a FIFO that nobody writes",
    "DataLoader worker reads a hung file",
    "engine core killed, its front lives",
)


def _stuck() -> list[SickRun]:
    faults = load()
    return [
        SickRun(
            "", "stuck", frozenset(faults[name].truth.classes),
            f"{name}: injected into one rank: tests/faults", fault=name,
        )
        for name in _STUCK
    ]  # fmt: skip


def _too_large() -> list[SickRun]:
    """Public launches that ran out of memory, each with a buffer that is too large by itself."""
    rows = json.loads(Path(__file__).with_name("launches.json").read_text())
    return [
        SickRun("", "not fitting", frozenset({row["cause"]}), row["proof"],
                launch=row["launch"], gpus=row["gpus"])
        for row in rows
    ]  # fmt: skip
