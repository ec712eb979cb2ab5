"""What is exactly as large as a threshold: it has reached it, and is within a limit that allows it.

Each measured number that a rule compares with a named constant is put exactly at that constant.
"""

from __future__ import annotations

import importlib
import math
import operator
import pkgutil
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

from grpo_doctor import findings
from grpo_doctor.findings import RunView, rules
from grpo_doctor.findings.rule import Answer, Finding
from grpo_doctor.findings.view import RuleFile
from tests.build import TraceBuilder
from tests.unit.findings.registry import EXAMPLES, runs_of

BY_ID = {rule.RULE.id: rule for rule in rules.ALL}
# These are the most that is still allowed; every other threshold is the least that counts.
_AT_MOST = re.compile(
    r"MAX_.*|_?FEW.*|NEARLY_EMPTY_PCT|ROOM|SHORT_S|BUSY_HOST_PCT|MANY_PIXELS|SMALLER|AT_EASE"
    r"|EQUAL|NO_GRADIENT|NO_WEIGHT|USUAL_PART|DOMINATES|MEDIUM_GENERATIONS|DEFAULT_BYTES"
    r"|MIN_PHASE_PART|MIN_FALLING|USABLE|MOST_HIDDEN"
)
_FAR = 2**20  # units in the last place, after which arithmetic has swallowed the constant
_NAMED = re.compile(r"_?[A-Z][A-Z0-9_]*")


class _Compared:
    """A constant that remembers what it was compared with, also after arithmetic with it."""

    def __init__(self, value: float) -> None:
        self.plain: float = value
        # Of each comparison: what the constant had become, as a function of it, and the number.
        self.measured: list[tuple[Callable[[float], float], float]] = []
        self.became: Callable[[float], float] = float.__pos__ if value % 1 else lambda it: it

    def _other(self, other: Any) -> Any:
        if not isinstance(other, bool) and np.ndim(other) == 0 and math.isfinite(other):
            number = other.item() if isinstance(other, np.generic) else other
            self.measured.append((self.became, number))
        return other

    def _turned(self, turn: Callable[[Any], Any]) -> Any:
        result, became = turn(self.plain), self.became
        if np.ndim(result) or isinstance(self, int):
            return result
        turned = compared(result.item() if isinstance(result, np.generic) else result)
        turned.measured, turned.became = self.measured, lambda it: turn(became(it))
        return turned


def _compares(how: Callable[[Any, Any], Any]) -> Callable[[_Compared, Any], Any]:
    return lambda self, other: how(self.plain, self._other(other))


def _turns(how: Callable[[Any, Any], Any], is_second: bool) -> Callable[[_Compared, Any], Any]:
    def turn(self: _Compared, other: Any) -> Any:
        return self._turned(lambda it: how(other, it) if is_second else how(it, other))

    return turn


for _name in ("lt", "le", "gt", "ge"):
    setattr(_Compared, f"__{_name}__", _compares(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv"):
    setattr(_Compared, f"__{_name}__", _turns(getattr(operator, _name), is_second=False))
    setattr(_Compared, f"__r{_name}__", _turns(getattr(operator, _name), is_second=True))


class _Real(_Compared, float):
    __array_ufunc__ = None  # else numpy compares its numbers with it and asks nobody


class _RealOfNumpy(_Compared, float):
    """One that a function of numpy takes as an argument, but that its numbers don't ask."""


class _Whole(_Compared, int):
    __array_ufunc__ = None


class _WholeOfNumpy(_Compared, int):
    """The same, where a function of numpy takes it."""


def compared(value: float) -> _Compared:
    return _Whole(value) if isinstance(value, int) else _Real(value)


def compared_by_python(value: float) -> _Compared:
    return _WholeOfNumpy(value) if isinstance(value, int) else _RealOfNumpy(value)


def at_and_inside(
    value: float, became: Callable[[float], float], measured: float, side: int
) -> tuple[float, float] | None:
    """The constant with which `measured` is exactly at the threshold, and the next one inside."""
    step = 1 if isinstance(value, int) else 0
    try:
        slope = (became(2 * value) - became(value)) / value
        near = value + (measured - became(value)) / slope
    except (ArithmeticError, ValueError):
        return None
    near = round(near) if step else near
    towards = [near]
    for sign in (1, -1):
        for _ in range(3):
            last = near if len(towards) in (1, 4) else towards[-1]
            towards.append(last + sign if step else math.nextafter(last, sign * math.inf))
    exact = [it for it in towards if became(it) == measured]
    if not exact:
        return None
    at, far = exact[0], 1.0
    inside = at
    while became(inside) == measured:
        inside = at + side if step else at + side * far * math.ulp(at)
        far *= 2
        if far > _FAR:
            return None
    return at, inside


def visible_part(answer: Answer) -> object:
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


Constant = tuple[str, str | None, float]  # its name, and its key where the name is of a table


def constants(module: ModuleType) -> list[Constant]:
    """The numbers that have a name, each by itself or in a table such as that of severities."""
    numbers: list[Constant] = []
    for name, content in vars(module).items():
        if not _NAMED.fullmatch(name):
            continue
        if isinstance(content, dict):
            grades = [(key, value) for key, value in content.items() if isinstance(value, float)]
            numbers += [(name, key, value) for key, value in grades if isinstance(key, str)]
        elif isinstance(content, int | float) and not isinstance(content, bool):
            numbers += [(name, None, content)]
    return [number for number in numbers if math.isfinite(number[2])]


SHARED = [
    module
    for module in (
        importlib.import_module(f"{findings.__name__}.{each.name}")
        for each in pkgutil.iter_modules(findings.__path__)
    )
    if constants(module)
]


@pytest.mark.parametrize("rule_id", EXAMPLES)
def test_a_threshold_is_met_by_what_is_as_large(
    rule_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for build in runs_of(rule_id).values():
        _put_at_thresholds(BY_ID[rule_id], build(), monkeypatch)


def _put(patch: pytest.MonkeyPatch, constant: tuple[Any, str, str | None], value: object) -> None:
    module, name, key = constant
    if key is None:
        patch.setattr(module, name, value)
    else:
        patch.setitem(getattr(module, name), key, value)


def _those_compared(
    rule: RuleFile,
    view: RunView,
    candidates: list[tuple[Any, str, str | None, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[Any, str, str | None, float]]:
    """The constants that the rule compares with anything; all, where that cannot be told at once.

    One look instead of one for each: most of the shared ones are other rules'.
    """
    remembering = [compared(value) for *_, value in candidates]
    with monkeypatch.context() as patch:
        for (*constant, _), remembers in zip(candidates, remembering, strict=True):
            _put(patch, cast("Any", tuple(constant)), remembers)
        try:
            rule.check(view)
        except TypeError:
            return candidates
    return [
        candidate
        for candidate, remembers in zip(candidates, remembering, strict=True)
        if remembers.measured
    ]


def _put_at_thresholds(
    rule: RuleFile, build: TraceBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = RunView.of(build.build())
    if any(not signal.present(view.analysis) for signal in rule.RULE.needs):
        return
    candidates = [(m, *constant) for m in (cast("Any", rule), *SHARED) for constant in constants(m)]
    for module, name, key, value in _those_compared(rule, view, candidates, monkeypatch):

        def answer(
            threshold: float, module: Any = module, name: str = name, key: str | None = key
        ) -> object:
            with monkeypatch.context() as patch:
                _put(patch, (module, name, key), threshold)
                return visible_part(rule.check(view))

        remembering = compared(value)
        try:
            answer(cast("float", remembering))
        except TypeError:
            remembering = compared_by_python(value)
            answer(cast("float", remembering))
        side = 1 if _AT_MOST.fullmatch(name) else -1
        for became, number in dict.fromkeys(remembering.measured):
            pair = at_and_inside(value, became, number, side)
            if pair is None or (isinstance(value, int) and pair[0] <= 1):
                continue
            if not any(turn(pair[1]) == other for turn, other in remembering.measured):
                assert answer(pair[0]) == answer(pair[1]), (name, *pair)
