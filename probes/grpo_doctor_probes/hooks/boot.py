"""Begins to watch the imports of this process: with the first package that has an adapter."""

from __future__ import annotations

import os
import sys

from grpo_doctor_probes.hooks import importing
from grpo_doctor_probes.hooks.coverage import COVERAGE
from grpo_doctor_probes.hooks.table import HOOKED
from grpo_doctor_probes.record import recorder, sidecar
from grpo_doctor_probes.record.rundir import HOOKS_VARIABLE, RUN_DIR_VARIABLE

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from grpo_doctor_probes.hooks.table import Adapter, Hook

# Packages with an adapter, in a module of the same name in lower case; imported when they are.
ADAPTERS = (
    "transformers", "accelerate", "deepspeed", "trl", "swift", "verl", "openrlhf", "vllm",
    "sglang", "ray", "slime", "miles", "nemo_rl", "UnslothGRPOTrainer",
)  # fmt: skip
_APPLIED: set[str] = set()  # modules


def boot(run_dir: str = "", rank: str = "") -> importing.ImportWatcher | None:
    """Watch for the packages of `ADAPTERS`, if the environment asks for it.

    Args:
        run_dir: what it asked for when Python was started; it may have been emptied since.
        rank: what it reported of the rank then.
    """
    run_dir = os.environ.get(RUN_DIR_VARIABLE) or run_dir
    if os.environ.get(HOOKS_VARIABLE, "1") != "1" or not run_dir:
        return None
    recorder.remember(run_dir, int(rank) if rank.isdecimal() else 0)
    return _watch()


def boot_late() -> None:
    """Wrap what is imported already and watch for the rest: asked for by the job's own code.

    Does nothing to modules that were wrapped at their import.
    """
    _watch()
    for package in ADAPTERS:
        if package not in sys.modules:
            continue
        for name in adapter_of(package).modules() - _APPLIED:
            module = sys.modules.get(name)
            if module is not None:
                _imported(module)


def _watch() -> importing.ImportWatcher:
    sidecar.EXTRAS["hooks"] = COVERAGE.facts
    return importing.install(
        importing.ImportWatcher(ADAPTERS, lambda package: adapter_of(package).modules(), _imported)
    )


def adapter_of(package: str) -> Adapter:
    """Return the adapter of a top-level package. Raises ModuleNotFoundError for others."""
    name = f"grpo_doctor_probes.hooks.adapters.{package.lower()}"
    __import__(name)
    adapter: Adapter = sys.modules[name].ADAPTER
    return adapter


def _imported(module: ModuleType) -> None:
    try:
        _APPLIED.add(module.__name__)
        apply(adapter_of(module.__name__.partition(".")[0]), module)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()


def apply(adapter: Adapter, module: ModuleType) -> None:
    """Wrap what the adapter names in one module, and note what was there and what was not."""
    # A class that is a Ray actor's is hooked in the actor's process.
    owners = {_class_of(hook): vars(module).get(_class_of(hook)) for hook in adapter.hooks}
    actors = {name for name, made in owners.items() if hasattr(made, "__ray_metadata__")}
    _wrap(adapter, module, [hook for hook in adapter.hooks if _class_of(hook) not in actors])


def _class_of(hook: Hook) -> str:
    return hook.qualname.partition(".")[0]


def apply_to_actor(actor_class: type) -> None:
    """Wrap what adapters name in the class of a Ray actor, its bases' functions included.

    Ray gives it a copy of each function that it inherits, made before its module was wrapped.
    """
    own = {name: method for cls in reversed(actor_class.__mro__[:-1]) for name, method in _own(cls)}
    for module, name in dict.fromkeys((b.__module__, b.__name__) for b in actor_class.__mro__):
        package = module.partition(".")[0]
        if package not in ADAPTERS:
            continue
        adapter = adapter_of(package)
        shown, alone = type(name, (), own), type(sys)(module)
        setattr(alone, name, shown)
        _wrap(adapter, alone, [hook for hook in adapter.hooks if _class_of(hook) == name])
        for method, function in list(own.items()):
            wrapped = vars(shown)[method]
            if wrapped is not function:
                setattr(actor_class, method, wrapped)
                own[method] = wrapped


def _own(cls: type) -> list[tuple[str, Any]]:
    """Functions of a class that came with the actor, and were not wrapped where it comes from."""
    if vars(sys.modules.get(cls.__module__, sys)).get(cls.__name__) is cls:
        return []
    return [
        (name, function)
        for name, function in vars(cls).items()
        if hasattr(function, "__code__") and not hasattr(function, HOOKED)
    ]


def _wrap(adapter: Adapter, module: ModuleType, hooks: list[Hook]) -> None:
    from grpo_doctor_probes.hooks import wrapping  # noqa: PLC0415 - most processes: never

    for hook in hooks:
        if hook.module == module.__name__:
            COVERAGE.note_hook(adapter, hook, wrapped=wrapping.wrap_hook(module, hook))
    for qualname, around in adapter.patches.get(module.__name__, {}).items():
        try:
            wrapping.replace(module, qualname, around)
        except Exception as problem:  # noqa: BLE001 - a version from tomorrow
            COVERAGE.note_problem(adapter, module.__name__, problem)
