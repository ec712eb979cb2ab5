"""The finder that tells of imports: it finds what others would, and changes nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_doctor_probes.hooks.importing import ImportWatcher, install
from tests.unit.probes.conftest import Recorded
from tests.unit.probes.hooks.hooked_job import write_packages

Watch = Callable[..., ImportWatcher]  # (*modules of the package that are waited for)
LAZY = """
import sys, types
sys.modules[__name__] = types.SimpleNamespace(__name__=__name__, __spec__=__spec__, lazy=True)
"""


@pytest.fixture
def imported() -> list[Any]:
    """The modules of which was told, in their order."""
    return []


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: list[Any]) -> Iterator[Watch]:
    """Watches the package `framework`, whose modules are `one`, `two` and `lazy`."""
    modules = {"framework.one": "VALUE = 1", "framework.two": "VALUE = 2", "framework.lazy": LAZY}
    write_packages(tmp_path, modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "grpo_doctor_trainer", raising=False)

    def begin(*names: str) -> ImportWatcher:
        return install(ImportWatcher(["framework"], lambda _: set(names), imported.append))

    yield begin
    for name in [name for name in sys.modules if name.partition(".")[0] == "framework"]:
        del sys.modules[name]


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_waited_for_is_asked_once_and_with_the_first_import_of_the_package(
    tmp_path: Path, watch: Watch, imported: list[Any], recording: Recorded, fails: bool
) -> None:
    """An error of ours is counted, and the import goes on."""
    packages: list[str] = []

    def modules(package: str) -> set[str]:
        packages.append(package)
        if fails:
            raise ValueError("a version from tomorrow")
        return {"framework.two"}

    install(ImportWatcher(["framework"], modules, imported.append))
    write_packages(tmp_path, {"frameworks.one": ""})
    importlib.import_module("frameworks.one")
    assert packages == []
    importlib.import_module("framework.one")
    importlib.import_module("framework.two")
    asked, told, errors = (3, 0, 3) if fails else (1, 1, 0)
    assert packages == ["framework"] * asked
    assert (len(imported), recording.header.errors) == (told, errors)


def test_a_process_of_the_bundled_trainer_is_left_alone(
    watch: Watch, imported: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch("framework.one")
    monkeypatch.setitem(sys.modules, "grpo_doctor_trainer", ModuleType("grpo_doctor_trainer"))
    assert importlib.import_module("framework.one").VALUE == 1
    assert imported == []


class Finder:
    """Finds a specification for one name."""

    def __init__(self, name: str = "", spec: ModuleSpec | None = None) -> None:
        self.name, self.spec = name, spec

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return self.spec if name == self.name else None


def test_it_goes_before_what_the_job_puts_there_and_leaves_the_rest_in_order(
    watch: Watch, imported: list[Any]
) -> None:
    watcher = watch("framework.one")
    finders = sys.meta_path[1:]
    first, second = Finder(), Finder()
    sys.meta_path[:0] = [first, second]
    importlib.import_module("framework.one")
    assert sys.meta_path == [watcher, first, second, *finders]
    assert len(imported) == 1


def test_what_the_job_has_taken_out_stays_out(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watch("framework.one")
    sys.meta_path.remove(watcher)
    assert watcher.find_spec("framework") is None
    assert watcher not in sys.meta_path
    monkeypatch.setattr(sys, "meta_path", [])  # without any finder
    assert watcher.find_spec("framework.one") is None


def test_finders_of_all_kinds_are_asked_and_no_second_watcher(
    watch: Watch, imported: list[Any]
) -> None:
    watcher = watch("framework.one")
    path = importlib.import_module("framework").__path__
    also = ImportWatcher(["framework"], lambda _: {"framework.one"}, imported.append)
    sys.meta_path[1:1] = [object(), also]  # type: ignore[list-item]
    spec = watcher.find_spec("framework.one", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))
    assert len(imported) == 1
    assert watcher.find_spec("framework.gone", path) is None


@pytest.mark.parametrize("loader", [None, object()], ids=["a namespace", "of an old kind"])
def test_what_is_not_executed_by_its_loader_is_only_found(
    watch: Watch, recording: Recorded, loader: Any
) -> None:
    watcher = watch("framework.data")
    spec = ModuleSpec("framework.data", loader)
    sys.meta_path.append(Finder("framework.data", spec))
    assert watcher.find_spec("framework.data", []) is spec
    assert recording.header.errors == 0


def test_there_is_one_watcher_and_it_is_the_first_of_all_finders(watch: Watch) -> None:
    watcher = watch("framework.one")
    sys.meta_path.insert(0, Finder())
    assert install(ImportWatcher([], set, print)) is watcher
    sys.meta_path.remove(watcher)
    newcomer = ImportWatcher([], set, print)
    assert install(newcomer) is newcomer
    assert sys.meta_path[0] is newcomer
