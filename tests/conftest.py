"""What every test relies on, whoever started pytest."""

from __future__ import annotations

import gc
import re
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine stalls for longer than the 200 ms that each example has by default; what never ends
# is ended by pytest's own limit.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test-fast` draws a fifth of the examples that `make test` does.
settings.register_profile("fast", settings.get_profile("busy"), max_examples=20)
settings.load_profile("busy")

# Files that take 30 s to 2 minutes, the longest first: the last to begin decides when several
# processes end.
_LONGEST = (
    "browser/test_report.py",
    "integration/test_run_trainer.py",
    "integration/test_watchdog.py",
    "case_studies/test_case_5.py",
    "browser/test_reading.py",
    "corpus/test_corpus.py",
    "integration/test_run.py",
    "case_studies/test_case_1.py",
    "faults/test_faults.py",
    "spinning/test_spinning.py",
    "integration/test_attach_ras.py",
    "integration/test_reward_workers.py",
    "gpu/test_dry_run.py",
    "integration/test_samplers_nvml.py",
    "integration/test_discover.py",
    "integration/test_trainer_engines.py",
    "integration/test_flight.py",
)
_LONG = ("slow", "browser", "perfetto")
_MARKS_OF_FILE = re.compile(r"^pytestmark = (.*?)^$", re.MULTILINE | re.DOTALL)


def pytest_configure() -> None:
    """Gives SIGINT its usual meaning: a shell's background jobs, and all they start, ignore it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves a file unread of which `-m "... and not MARK"` would deselect every test.

    Every worker reads every file, and some import TRL, datasets and DeepSpeed, which takes seconds.
    """
    expression = config.option.markexpr
    if collection_path.suffix != ".py" or " or " in expression or "(" in expression:
        return None
    unwanted = {term[4:] for term in expression.split(" and ") if term.startswith("not ")}
    marks = _MARKS_OF_FILE.search(collection_path.read_text()) if unwanted else None
    if marks and unwanted & set(re.findall(r"pytest\.mark\.(\w+)", marks[1])):
        return True
    return None


def pytest_collection() -> None:
    """Collects no garbage while tests are collected: there is none, and a million objects stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spares later collections the objects of the libraries: a tenth of the tests' time."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the files that take long; the order within a file stays."""
    long = {item.path for item in items if any(map(item.get_closest_marker, _LONG))}
    items.sort(key=lambda item: _turn(item.path, long))


def _turn(path: Path, long: set[Path]) -> int:
    name = path.relative_to(Path(__file__).parent).as_posix()
    if name in _LONGEST:
        return _LONGEST.index(name)
    return len(_LONGEST) + (path not in long) + ("unit" in path.parts)
