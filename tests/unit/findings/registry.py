"""Example runs of every rule: those of `example_runs.py`, and those that its own test file brings.

`rules/test_gdNNN.py` brings them as rows of `RUNS`: one that is `sick` and one that is `well`, then
both sides of each threshold. Other runs are functions without parameters that return a
`TraceBuilder`; `sick()` and `well()` may be such too.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path

from tests.build import TraceBuilder
from tests.unit.findings import example_runs

Examples = tuple[Callable[[], TraceBuilder], Callable[[], TraceBuilder]]
_FILES = sorted((Path(__file__).parent / "rules").glob("test_gd*.py"))


def _examples() -> dict[str, Examples]:
    examples = {}
    for path in _FILES:
        module = importlib.import_module(f"tests.unit.findings.rules.{path.stem}")
        known = {**getattr(module, "RUNS", {}), **vars(module)}
        if "sick" in known and "well" in known:  # else a test of test_rules fails
            examples[path.stem.removeprefix("test_").upper()] = (known["sick"], known["well"])
    return examples


# Rule id: (a run that has it, a run that has not).
EXAMPLES: dict[str, Examples] = {**example_runs.EXAMPLES, **_examples()}


def runs_of(rule_id: str) -> dict[str, Callable[[], TraceBuilder]]:
    """The example runs of a rule, and the others that its tests build without being told how."""
    sick, well = EXAMPLES[rule_id]
    runs = {"sick": sick, "well": well}
    module = f"tests.unit.findings.rules.test_{rule_id.lower()}"
    if importlib.util.find_spec(module) is not None:
        runs |= {
            name: build
            for name, build in vars(importlib.import_module(module)).items()
            if inspect.isfunction(build)
            and build.__module__ == module
            and not name.startswith("_")
            and name not in runs
            and inspect.signature(build).return_annotation == "TraceBuilder"
            and all(
                parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD
                for parameter in inspect.signature(build).parameters.values()
            )
        }
    return runs


def rows_of(rule_id: str) -> dict[str, Callable[[], TraceBuilder]]:
    """The rows of `RUNS` in the file of a rule's tests, without the two examples."""
    path = Path(__file__).parent / "rules" / f"test_{rule_id.lower()}.py"
    if not path.exists():
        return {}
    module = importlib.import_module(f"tests.unit.findings.rules.{path.stem}")
    rows: dict[str, Callable[[], TraceBuilder]] = getattr(module, "RUNS", {})
    return {name: build for name, build in rows.items() if name not in ("sick", "well")}
