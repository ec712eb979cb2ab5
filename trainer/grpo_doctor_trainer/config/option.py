"""How one option is declared on a dataclass field: default, help, command line, and its limits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, cast

from grpo_doctor_trainer.errors import ConfigError

_T = TypeVar("_T")


@dataclass(frozen=True)
class Limits:
    """Which values of a number can work, whatever the other options say.

    Attributes:
        ge: the least; none: no limit.
        gt: what it has to be above.
        le: the most.
        multiple_of: what divides it; it is above 0 then.
        special: a value outside of the limits that can be given too, and what it is for.
        reason: what a value outside of them would do, where that is not plain.
        only_if: the property of the configuration that says whether they matter; empty: always.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    multiple_of: int | None = None
    special: tuple[float, str] | None = None
    reason: str = ""
    only_if: str = ""

    def allow(self, value: float) -> bool:
        """Whether a value can work."""
        if self.special is not None and value == self.special[0]:
            return True
        if self.multiple_of is not None and (value <= 0 or value % self.multiple_of):
            return False
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
        )

    def describe(self) -> str:
        """Says what is allowed, to be read after "must be"."""
        text = self._range()
        if self.special is not None:
            text = f"{text}, or {self.special[0]:g} {self.special[1]}"
        return f"{text}: {self.reason}" if self.reason else text

    def _range(self) -> str:
        if self.multiple_of is not None:
            return f"a multiple of {self.multiple_of}"
        if self.le is not None:
            return (
                f"between {self.ge} and {self.le}"
                if self.gt is None
                else f"above {self.gt} and at most {self.le}"
            )
        if self.gt is not None:
            return f"above {self.gt}"
        return f"at least {self.ge}" if self.ge else "0 or more"


class Options:
    """Options under one heading of `--help`; a class that only joins such classes gives none."""

    def __init_subclass__(cls, heading: str = "") -> None:
        super().__init_subclass__()
        for declared in vars(cls).values():
            if isinstance(declared, dataclasses.Field):
                metadata = {**declared.metadata, "group": heading}
                declared.metadata = MappingProxyType(metadata)


def option(
    default: _T,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    embedded: Any = None,
    **limits: Any,
) -> _T:
    """Declares one option, in a class of `Options`.

    Args:
        default: its value when a `--model` is given.
        text: its help.
        choices: the only valid values, when there are few.
        embedded: its default with the embedded tiny model, where that differs.
        **limits: those of `Limits`, if it has some.
    """
    metadata = {
        "help": text,
        "limits": Limits(**limits) if limits else None,
        "choices": choices,
        "embedded": embedded,
    }
    if isinstance(default, list):
        return cast("_T", field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)


def check_limits(config: Any) -> None:
    """Holds each option of a configuration against its own limits; none is within all of them.

    Raises:
        ConfigError: names the first option outside of its limits, its value and what is allowed.
    """
    for declared in dataclasses.fields(config):
        limits, value = declared.metadata["limits"], getattr(config, declared.name)
        if limits is None or value is None:
            continue
        if limits.only_if and not getattr(config, limits.only_if):
            continue
        if not limits.allow(value):
            raise ConfigError(f"--{declared.name} {value} must be {limits.describe()}")
