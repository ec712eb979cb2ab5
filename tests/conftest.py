"""What every test relies on, whoever started pytest."""

from __future__ import annotations

import gc
import importlib
import re
import signal
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import costly

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
# They use `tests.recorded.forks.shared`, which takes ten seconds of a processor to start.
_FORKING = (
    "case_studies/test_case_5.py",
    "integration/test_reward_workers.py",
    "integration/test_trainer_engines.py",
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
    """Spares later collections the objects of the libraries, and processors torch's waiting.

    The first is a tenth of the tests' time. Threads of torch that wait for each other spin: with
    two of them small models took up to 40 times as long beside other tests.
    """
    gc.freeze()
    gc.enable()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what is costly, and puts the files in their order.

    It begins with the files that take long, and has others among them; the order within a file
    stays. What takes long mostly waits, and what is short computes: side by side they keep the
    processors busy, one after the other they do not.
    """
    measures = config.pluginmanager.has_plugin("tests.costly")
    listed = frozenset[str]() if measures else costly.names()
    for item in items:
        if costly.is_in(listed, item.nodeid):
            item.add_marker("costly")
    long = {item.path for item in items if any(map(item.get_closest_marker, _LONG))}
    names = dict.fromkeys(item.path for item in items)
    waiting = sorted((path for path in names if path in long), key=_turn)
    computing = [path for path in names if path not in long]
    turns = dict(zip(waiting, _shares([_weight(path) for path in waiting]), strict=True))
    turns |= zip(computing, _shares([1] * len(computing)), strict=True)
    items.sort(key=lambda item: turns[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps a file in one process, and in one process the files that fork from the same server."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduling = importlib.import_module("xdist.scheduler").LoadFileScheduling(config, log)
    vars(scheduling)["_split_scope"] = _scope
    return scheduling


def _scope(test: str) -> str:
    """What runs in one process: `forks`, or a file."""
    path = test.partition("::")[0]
    return "forks" if path.removeprefix("tests/") in _FORKING else path


def _name(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).as_posix()


def _turn(path: Path) -> int:
    name = _name(path)
    return _LONGEST.index(name) if name in _LONGEST else len(_LONGEST)


def _weight(path: Path) -> int:
    return 5 if _name(path) in _LONGEST else 1  # a minute, or some ten seconds


def _shares(weights: Sequence[int]) -> list[float]:
    """How much of all comes before each."""
    ends = list(accumulate(weights))
    return [(end - weight) / ends[-1] for end, weight in zip(ends, weights, strict=True)]
