"""What every test relies on, whoever started pytest."""

from __future__ import annotations

import contextlib
import gc
import importlib
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import costly
from tests.scheduling import FileScheduling, readers_of

# A busy machine stalls for longer than the 200 ms that each example has by default; what never ends
# is ended by pytest's own limit.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test-fast` draws a fifth of the examples that `make test` does.
settings.register_profile("fast", settings.get_profile("busy"), max_examples=20)
# `make fuzz`: half an hour of drawing.
settings.register_profile("fuzz", settings.get_profile("busy"), max_examples=3000)
settings.load_profile("busy")

# Files that take 12 s or more, the longest first: the last to begin decides when the processes end.
_LONGEST = (
    "integration/test_trainer_matrix.py",
    "integration/test_vllm_colocate.py",
    "integration/test_attach_vllm.py",
    "frameworks/test_phases_trl.py",
    "integration/test_vllm_server.py",
    "integration/test_trainer_jobs.py",
    "integration/test_trainer_launchers.py",
    "browser/test_report.py",
    "integration/test_run_trainer.py",
    "integration/test_trainer_equals_trl.py",
    "faults/test_faults.py",
    "integration/test_trainer_resume.py",
    "integration/test_watchdog.py",
    "frameworks/test_async_trl.py",
    "integration/test_run.py",
    "case_studies/test_case_1.py",
    "case_studies/test_case_5.py",
    "spinning/test_spinning.py",
    "browser/test_reading.py",
    "faults/test_harmless.py",
    "integration/test_discover.py",
    "integration/test_reward_workers.py",
    "integration/test_recorder_collectives.py",
    "accuracy/test_accuracy.py",
    "browser/test_legible.py",
    "browser/test_timeline.py",
    "integration/test_flight.py",
    "integration/test_samplers_nvml.py",
    "corpus/test_corpus.py",
    "integration/look/test_gpus.py",
    "faults/test_workers.py",
    "integration/test_dumps.py",
    "unit/findings/rules/test_rules.py",
    "unit/reports/test_terminal.py",
    "unit/hang/dumps/test_bad_folders.py",
    "unit/hang/causes/test_recorded_jobs.py",
    "unit/hang/model/matching/test_nccl_rules.py",
    "unit/trainer/rewards/test_scoring.py",
    "unit/trainer/test_loop.py",
    "unit/hang/test_odd_evidence.py",
    "unit/findings/rules/test_thresholds.py",
)
# They use `tests.recorded.forks.shared`, which takes ten seconds of a processor to start.
_FORKING = (
    "case_studies/test_case_5.py",
    "integration/test_reward_workers.py",
)
_FORKS = "forks"
# Jobs with engines in their ranks: vLLM's CPU build names the shared memory of those that are
# tensor-parallel by their ranks alone, so two such jobs collide.
_COLOCATED = ("integration/test_trainer_matrix.py", "integration/test_vllm_colocate.py")
_MARKS_OF_FILE = re.compile(r"^pytestmark = (.*?)^$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"pytest\.mark\.(\w+)")
# "vllm", "not slow and not heavy", "(heavy or browser) and not vllm"
_SELECTION = re.compile(
    r"(?P<wanted>\w+|\(\w+(?: or \w+)*\))?(?P<unwanted>(?:(?:^| and )not \w+)*)"
)


def pytest_configure() -> None:
    """Gives SIGINT its usual meaning: a shell's background jobs, and all they start, ignore it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves a file unread of which `-m "... and not MARK"` would deselect every test, or which
    has none of the marks of `-m "MARK or ..."`, or which is for other workers.

    To read all takes a worker 18 s, and some files import TRL, datasets and DeepSpeed.
    """
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    if not _is_for_this_worker(config, collection_path):
        return True
    selection = _SELECTION.fullmatch(config.option.markexpr)
    if selection is None:
        return None
    text = collection_path.read_text()
    wanted = set(re.findall(r"\w+", selection["wanted"] or "")) - {"or"}
    if wanted and not wanted & set(_MARK.findall(text)):
        return True
    unwanted = set(re.findall(r"not (\w+)", selection["unwanted"]))
    marks = _MARKS_OF_FILE.search(text) if unwanted else None
    return True if marks and unwanted & set(_MARK.findall(marks[1])) else None


def _worker_of_whole_run(config: pytest.Config) -> dict[str, Any]:
    """What xdist told this process of itself; empty where not all folders are asked for."""
    return getattr(config, "workerinput", {}) if config.args == config.getini("testpaths") else {}


def _is_for_this_worker(config: pytest.Config, path: Path) -> bool:
    worker = _worker_of_whole_run(config)
    if not worker:
        return True
    readers = readers_of(path.relative_to(config.rootpath).as_posix(), worker["workercount"])
    replaces = int(worker["workerid"].removeprefix("gw")) >= worker["workercount"]
    return replaces or worker["workerid"] in readers


def pytest_collection(session: pytest.Session) -> None:
    """Collects no garbage while tests are collected: there is none, and a million objects stay."""
    gc.disable()
    _read_own_share(session.config)


def _read_own_share(config: pytest.Config) -> None:
    """Begins a worker with every n-th file, so that each is compiled once in a fresh clone.

    All workers read all files in one order, so each compiled all: 18 s of a processor apiece.
    What cannot be imported is reported, or skipped, when it is collected.
    """
    worker = _worker_of_whole_run(config)
    files = sorted(Path(__file__).parent.rglob("test_*.py")) if worker else []
    for turn, path in enumerate(files):
        relative = path.relative_to(config.rootpath)
        readers = readers_of(relative.as_posix(), worker["workercount"])
        if readers[turn % len(readers)] != worker["workerid"]:
            continue
        if pytest_ignore_collect(path, config):
            continue
        name = ".".join(relative.with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


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
    """Marks what is costly, and puts the files that take long first; a file keeps its order."""
    measures = config.pluginmanager.has_plugin("tests.costly")
    listed = frozenset[str]() if measures else costly.names()
    for item in items:
        if costly.is_in(listed, item.nodeid):
            item.add_marker("costly")
    items.sort(key=lambda item: _turn(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> FileScheduling | None:
    """Keeps what shares something in one process, see `_scope`."""
    return FileScheduling(config, _scope) if config.getvalue("dist") == "loadfile" else None


def _scope(test: str) -> str:
    """What runs in one process: `_FORKS`, the colocated engines, or a file."""
    path = test.partition("::")[0]
    name = path.removeprefix("tests/")
    if name in _COLOCATED:
        return "colocated"
    return _FORKS if name in _FORKING else path


def _turn(path: Path) -> int:
    name = path.relative_to(Path(__file__).parent).as_posix()
    return _LONGEST.index(name) if name in _LONGEST else len(_LONGEST)
