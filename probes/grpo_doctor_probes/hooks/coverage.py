"""Which hooks of which frameworks took effect in this process; written into its rank file."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any

    from grpo_doctor_probes.hooks.table import Adapter, Hook


class Coverage:
    """Spans by framework: those with a hook in this version, and those without any."""

    def __init__(self) -> None:
        self._wrapped: dict[str, set[str]] = {}
        self._absent: dict[str, set[str]] = {}
        self._problems: list[str] = []

    def note_hook(self, adapter: Adapter, hook: Hook, *, wrapped: bool) -> None:
        """Notes whether a hook's function was there."""
        noted = self._wrapped if wrapped else self._absent
        noted.setdefault(adapter.distribution, set()).add(hook.span)

    def note_problem(self, adapter: Adapter, module: str, problem: Exception) -> None:
        """Notes a patch that failed."""
        kind = type(problem).__name__
        self._problems.append(f"{adapter.distribution}: {module}: {kind}: {problem}"[:500])

    def facts(self) -> dict[str, Any]:
        """For the rank file; {} where nothing was hooked."""
        distributions = {*self._wrapped, *self._absent}
        if not distributions:
            return {}
        return {
            "packages": {
                name: {
                    "version": version_of(name),
                    "spans": sorted(self._wrapped.get(name, ())),
                    "absent": sorted(
                        self._absent.get(name, set()) - self._wrapped.get(name, set())
                    ),
                }
                for name in sorted(distributions)
            },
            "problems": self._problems,
        }


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution; None where it is unknown."""
    from importlib import metadata  # noqa: PLC0415 - costs 20 ms; once per process

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


COVERAGE = Coverage()
