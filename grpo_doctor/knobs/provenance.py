"""Where the value of a setting comes from, and whether it has any effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Needs
from grpo_doctor.knobs.tables import KNOBS, NEEDS


class Provenance(str, Enum):
    """Only what was given or read is a fact of a run."""

    GIVEN = "given"
    """By the command line, a configuration file or a script."""
    READ = "read"
    """From the running job, which reports its whole configuration."""
    DEFAULT = "default"
    """Of that version of the framework."""
    ASSUMED = "assumed"
    """By grpo-doctor: it was not set, and the framework has no such default."""

    @property
    def is_fact(self) -> bool:
        """Whether a header, a difference or a finding may rest on it alone."""
        return self in (Provenance.GIVEN, Provenance.READ)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, None where nothing is known; `active` is False where another setting, such as
    `vllm.use`, takes its effect away."""

    value: Any
    provenance: Provenance
    active: bool = True

    @property
    def fact(self) -> Any:
        """The value if it was given or read and has an effect, else None."""
        return self.value if self.active and self.provenance.is_fact else None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known of the settings of one launch or run: `said`, all of one provenance."""

    framework: str
    version: str | None
    said: Mapping[str, Any]
    provenance: Provenance

    def __getitem__(self, knob: str) -> Setting:
        active = is_active(knob, self)
        if knob in self.said:
            return Setting(self.said[knob], self.provenance, active)
        value = knobs.default(self.framework, self.version, knob)
        return Setting(value, Provenance.DEFAULT, active)

    @property
    def facts(self) -> dict[str, Any]:
        """Every setting that was given or read and has an effect."""
        return {knob: value for knob, value in self.said.items() if is_active(knob, self)}

    def is_known(self, knob: str) -> bool:
        """Whether it is settled: set, or missing from a job that reports everything."""
        return knob in self.said or self.provenance is Provenance.READ

    def settled(self, knob: str) -> Any:
        """Return what holds where it is known."""
        if knob in self.said:
            return self.said[knob]
        return knobs.default(self.framework, self.version, knob)


_NEEDS_OF: Mapping[str, tuple[Needs, ...]] = {
    knob.name: tuple(
        need for need in NEEDS if any(fnmatchcase(knob.name, name) for name in need.settings)
    )
    for knob in KNOBS
}


def is_active(knob: str, settings: Settings) -> bool:
    """Return whether a setting may have an effect: no setting that it needs is known to be off."""
    return not any(_is_missing(need, settings) for need in _NEEDS_OF.get(knob, ()))


def _is_missing(need: Needs, settings: Settings) -> bool:
    values = [settings.settled(name) for name in need.parents if settings.is_known(name)]
    is_off = [value not in need.on if need.on else value in need.off for value in values]
    return len(values) == len(need.parents) and all(is_off)
