"""Calls back after the import of modules that are waited for."""

from __future__ import annotations

import sys

from grpo_doctor_probes.record import recorder

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# Records its phases itself.
_BUNDLED = "grpo_doctor_trainer"


class ImportWatcher:
    """A finder that finds nothing itself: it asks the others, and adds a call after the import.

    The loader stays the one that Python would use, of its own class: only this object's
    `exec_module` is replaced, for one call.

    Args:
        packages: their names.
        modules_of: gives the names of a package's modules that are waited for. Called at the
            package's first import, so that adapters of what a job never imports are never loaded.
        imported: called with each such module once it is ready.
    """

    def __init__(
        self,
        packages: Collection[str],
        modules_of: Callable[[str], set[str]],
        imported: Callable[[ModuleType], None],
    ) -> None:
        self._packages = packages
        self._modules_of = modules_of
        self._modules: dict[str, set[str]] = {}
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As in `importlib.abc.MetaPathFinder`."""
        if sys.meta_path and sys.meta_path[0] is not self:
            self._go_first()
        package = name.partition(".")[0]
        if package not in self._packages or _BUNDLED in sys.modules:
            return None
        try:
            if package not in self._modules:
                self._modules[package] = self._modules_of(package)
            if name not in self._modules[package]:
                return None
            spec = self._ask_others(name, path, target)
            if spec is not None:
                self._watch(spec)
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()
            return None
        return spec

    def _go_first(self) -> None:
        """What a job puts before us later would hide its modules; those after us stay in order,
        so that the continuing import asks the same ones."""
        try:
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)
        except ValueError:  # the job has taken us out
            return

    def _ask_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is self or isinstance(finder, ImportWatcher):
                continue
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None

    def _watch(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own again
            execute(module)
            # A lazy package puts another object in its own place.
            self._imported(sys.modules.get(module.__name__, module))

        loader.exec_module = exec_module  # type: ignore[method-assign]


def install(watcher: ImportWatcher) -> ImportWatcher:
    """Put the watcher before all finders; give the one that is there already, if there is."""
    for finder in sys.meta_path:
        if isinstance(finder, ImportWatcher):
            return finder
    sys.meta_path.insert(0, watcher)
    return watcher
