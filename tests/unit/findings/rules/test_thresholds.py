"""What is exactly as large as a threshold: it has reached it, and is within a limit that allows it.

Each measured number that a rule compares with a named constant is put exactly at that constant.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import pkgutil
import re
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

from grpo_doctor import findings
from grpo_doctor.findings import RunView, rules
from grpo_doctor.findings.rule import Answer, Finding
from grpo_doctor.findings.view import RuleFile
from tests.build import TraceBuilder
from tests.unit.findings.registry import EXAMPLES

BY_ID = {rule.RULE.id: rule for rule in rules.ALL}
# These are the most that is still allowed; every other threshold is the least that counts.
_AT_MOST = re.compile(
    r"MAX_.*|_?FEW.*|NEARLY_EMPTY_PCT|ROOM|SHORT_S|BUSY_HOST_PCT|MANY_PIXELS|SMALLER|AT_EASE"
    r"|EQUAL|NO_GRADIENT|NO_WEIGHT|USUAL_PART|DOMINATES|MEDIUM_GENERATIONS|DEFAULT_BYTES"
    r"|MIN_PHASE_PART|MIN_FALLING"
)
_NAMED = re.compile(r"_?[A-Z][A-Z0-9_]*")


class _Compared:
    """A constant that remembers what it was compared with."""

    def __init__(self, value: float) -> None:
        self.plain = value
        self.measured: set[float] = set()

    def _plain(self, other: Any) -> float:
        if not isinstance(other, bool) and np.ndim(other) == 0 and math.isfinite(other):
            self.measured.add(other.item() if isinstance(other, np.generic) else other)
        return self.plain

    def __lt__(self, other: Any) -> Any:
        return self._plain(other) < other

    def __le__(self, other: Any) -> Any:
        return self._plain(other) <= other

    def __gt__(self, other: Any) -> Any:
        return self._plain(other) > other

    def __ge__(self, other: Any) -> Any:
        return self._plain(other) >= other


class _Real(_Compared, float):
    pass


class _Whole(_Compared, int):
    pass


def told(answer: Answer) -> object:
    """What a user sees of an answer, less the digits of numbers."""
    if not isinstance(answer, Finding):
        return type(answer)
    return (
        answer.severity,
        round(answer.confidence, 6),
        answer.ranks,
        len(answer.evidence),
        re.sub(r"[0-9.]+", "0", answer.cause),
        [fix.knob for fix in answer.fixes],
    )


def constants(module: ModuleType) -> dict[str, float]:
    return {
        name: value
        for name, value in vars(module).items()
        if _NAMED.fullmatch(name)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


SHARED = [
    module
    for module in (
        importlib.import_module(f"{findings.__name__}.{each.name}")
        for each in pkgutil.iter_modules(findings.__path__)
    )
    if constants(module)
]


def runs_of(rule_id: str) -> list[TraceBuilder]:
    """The example runs of a rule, and the others that its tests build without being told how."""
    module = f"tests.unit.findings.rules.test_{rule_id.lower()}"
    others: list[TraceBuilder] = []
    if importlib.util.find_spec(module) is not None:
        others = [
            build()
            for name, build in vars(importlib.import_module(module)).items()
            if inspect.isfunction(build)
            and build.__module__ == module
            and name not in ("sick", "well")
            and inspect.signature(build).return_annotation == "TraceBuilder"
            and all(
                parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD
                for parameter in inspect.signature(build).parameters.values()
            )
        ]
    return [build() for build in EXAMPLES[rule_id]] + others


@pytest.mark.parametrize("rule_id", EXAMPLES)
def test_a_threshold_is_met_by_what_is_as_large(
    rule_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for build in runs_of(rule_id):
        _put_at_thresholds(BY_ID[rule_id], build, monkeypatch)


def _put_at_thresholds(
    rule: RuleFile, build: TraceBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = RunView.of(build.build())
    if any(not signal.present(view.analysis) for signal in rule.RULE.needs):
        return
    named = [(m, *item) for m in (cast("Any", rule), *SHARED) for item in constants(m).items()]
    for module, name, value in named:

        def answer(threshold: float, module: Any = module, name: str = name) -> object:
            with monkeypatch.context() as patch:
                patch.setattr(module, name, threshold)
                return told(rule.check(view))

        compared = _Whole(value) if isinstance(value, int) else _Real(value)
        answer(compared)
        side = 1 if _AT_MOST.fullmatch(name) else -1
        for at in compared.measured:
            inside = at + side if isinstance(value, int) else math.nextafter(at, side * math.inf)
            sensible = at > 1 or not isinstance(value, int)
            if sensible and inside not in compared.measured:
                assert answer(at) == answer(inside), (name, at)
