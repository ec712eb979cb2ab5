"""Which processes are watched, what is wrapped in an imported module, and what took effect."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from grpo_doctor_probes.hooks import boot as module
from grpo_doctor_probes.hooks.boot import adapter_of, apply, apply_to_actor, boot, boot_late
from grpo_doctor_probes.hooks.coverage import Coverage, version_of
from grpo_doctor_probes.hooks.importing import ImportWatcher
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.wrapping import after, replace
from grpo_doctor_probes.record import recorder, sidecar
from tests.unit.probes.conftest import Recorded

TRAINER = "transformers.trainer"
CODE = """
class Trainer:
    def training_step(self):
        return "trained"

    def evaluate(self):
        return "evaluated"
"""


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> Coverage:
    """What is noted of hooks from here on."""
    own = Coverage()
    monkeypatch.setattr(module, "COVERAGE", own)
    return own


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPO_DOCTOR", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sidecar, "EXTRAS", {})
    monkeypatch.setattr(module, "_APPLIED", set())
    monkeypatch.setattr(recorder._Start, "inherited", None)


@pytest.mark.parametrize(
    ("environment", "run_dir_and_rank", "remembered"),
    [
        ({}, ("", ""), None),
        ({}, ("/runs/1", ""), ("/runs/1", 0)),
        ({}, ("/runs/1", "3"), ("/runs/1", 3)),
        ({}, ("/runs/1", "x"), ("/runs/1", 0)),
        ({"GRPO_DOCTOR_RUN_DIR": "/runs/2"}, ("", ""), ("/runs/2", 0)),
        ({"GRPO_DOCTOR_RUN_DIR": "/runs/2"}, ("/runs/1", "3"), ("/runs/2", 3)),
        ({"GRPO_DOCTOR_RUN_DIR": "/runs/2", "GRPO_DOCTOR": "1"}, ("", ""), ("/runs/2", 0)),
        ({"GRPO_DOCTOR_RUN_DIR": "/runs/2", "GRPO_DOCTOR": "0"}, ("", ""), None),
        ({"GRPO_DOCTOR": "0"}, ("/runs/1", "3"), None),
    ],
)
def test_a_process_is_watched_where_there_is_a_run_directory(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    run_dir_and_rank: tuple[str, str],
    remembered: tuple[str, int] | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    watcher = boot(*run_dir_and_rank)
    assert isinstance(watcher, ImportWatcher) is (remembered is not None)
    assert isinstance(sys.meta_path[0], ImportWatcher) is (remembered is not None)
    assert (sidecar.EXTRAS.keys() == {"hooks"}) is (remembered is not None)
    assert recorder._Start.inherited == remembered


def trainer() -> Any:
    """The module of a Trainer."""
    made = ModuleType(TRAINER)
    exec(CODE, vars(made))
    made.Trainer.__module__ = TRAINER
    return made


def wrapped(kind: Any) -> set[str]:
    return {name for name, method in vars(kind).items() if hasattr(method, "__wrapped__")}


class Remote:
    """What `ray.remote` puts in the place of a class, which is hooked where it runs."""

    __ray_metadata__ = "of an actor"

    def training_step(self) -> str:
        return "sent to the actor"


@pytest.mark.parametrize(("name", "kind"), [("transformers.other", None), (TRAINER, Remote)])
def test_what_no_adapter_names_and_a_class_of_actors_are_left_alone(
    coverage: Coverage, name: str, kind: type | None
) -> None:
    theirs = trainer()
    theirs.__name__, theirs.Trainer = name, kind or theirs.Trainer
    apply(adapter_of("transformers"), theirs)
    assert (wrapped(theirs.Trainer), coverage.facts()) == (set(), {})


def test_a_patch_that_does_not_fit_is_noted_and_hooks_take_effect(coverage: Coverage) -> None:
    def patch(_: Any) -> Any:
        raise ValueError("a version from tomorrow")

    hooks = (Hook(TRAINER, "Trainer.evaluate", "eval", "1.0-"),)
    theirs = trainer()
    apply(Adapter("transformers", hooks, {TRAINER: {"Trainer.training_step": patch}}), theirs)
    assert wrapped(theirs.Trainer) == {"evaluate"}
    assert coverage.facts()["problems"] == [
        f"transformers: {TRAINER}: ValueError: a version from tomorrow"
    ]


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Trainer that the job has imported, and nothing else that an adapter names."""
    for name in list(sys.modules):
        if name.partition(".")[0] in module.ADAPTERS:
            monkeypatch.delitem(sys.modules, name)
    theirs = trainer()
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    monkeypatch.setitem(sys.modules, TRAINER, theirs)
    return theirs


def test_what_was_imported_before_is_wrapped_late_and_once(
    coverage: Coverage, imported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, TRAINER)
    boot_late()
    assert (wrapped(imported.Trainer), coverage.facts()) == (set(), {})
    monkeypatch.setitem(sys.modules, TRAINER, imported)
    boot_late()
    first = imported.Trainer.training_step
    assert wrapped(imported.Trainer) == {"training_step", "evaluate"}
    boot_late()
    assert imported.Trainer.training_step is first
    assert set(coverage.facts()["packages"]) == {"transformers"}


def test_what_was_wrapped_where_it_comes_from_is_not_wrapped_again(
    coverage: Coverage, imported: Any, recording: Recorded
) -> None:
    apply(adapter_of("transformers"), imported)
    actor = type("Trainer", (imported.Trainer,), {"__module__": TRAINER})
    apply_to_actor(actor)
    assert wrapped(actor) == set()
    assert actor().training_step() == "trained"
    assert recording.names == ["train"]


def test_a_copy_that_is_hooked_already_stays_so(coverage: Coverage, recording: Recorded) -> None:
    theirs = trainer()
    replace(theirs, "Trainer.evaluate", after(print))
    actor: Any = type("Trainer", (), {"__module__": TRAINER, **vars(theirs.Trainer)})
    apply_to_actor(actor)
    assert wrapped(actor) == {"training_step", "evaluate"}
    assert actor.evaluate is theirs.Trainer.evaluate
    assert (actor().evaluate(), actor().training_step()) == ("evaluated", "trained")
    assert recording.names == ["train"]


def hook(span: str) -> Hook:
    return Hook("trl.trainer", "GRPOTrainer.work", span, "1.0-")


TRL, NUMPY = Adapter("no-such-trl", ()), Adapter("numpy", ())


def test_a_span_is_absent_where_none_of_its_functions_is_there() -> None:
    coverage = Coverage()
    for span, wrapped in (("rollout", True), ("train", False), ("sync", False), ("sync", True)):
        coverage.note_hook(TRL, hook(span), wrapped=wrapped)
    coverage.note_hook(NUMPY, hook("train"), wrapped=False)
    coverage.note_problem(TRL, "trl.trainer", ValueError("x" * 600))
    facts = coverage.facts()
    version = version_of("numpy")
    assert version is not None
    assert facts["packages"] == {
        "no-such-trl": {"version": None, "spans": ["rollout", "sync"], "absent": ["train"]},
        "numpy": {"version": version, "spans": [], "absent": ["train"]},
    }
    (problem,) = facts["problems"]
    assert problem.startswith("no-such-trl: trl.trainer: ValueError: xxx")
    assert len(problem) == 500
