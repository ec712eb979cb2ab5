"""Settings of training frameworks under one canonical name each.

`canonical` reads what a job said, `from_command` what a command line says, `spell` writes a
setting the way one version of one framework takes it, and `default` knows what holds where nothing
was said. A new framework is a table of `Spelling` rows in a file of its own, named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_doctor.knobs import bundled, deepspeed, swift
from grpo_doctor.knobs.model import Knob, Spelling, version_of
from grpo_doctor.knobs.names import BY_NAME, KNOBS
from grpo_doctor.knobs.values import options_of, parse, spelled

__all__ = [
    "FRAMEWORKS",
    "KNOBS",
    "Knob",
    "Spelling",
    "canonical",
    "default",
    "from_command",
    "spell",
]

FRAMEWORKS: Mapping[str, tuple[Spelling, ...]] = {
    "bundled": bundled.SPELLINGS,
    "ms-swift": swift.SPELLINGS,
}


def canonical(framework: str, version: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that `config` sets, parsed; what it leaves out or sets to nothing is absent.

    Args:
        framework: `bundled`, `ms-swift`, ...; an unknown one gives an empty result.
        version: its version. Of several names in `config`, one that this version knows wins.
        config: values under the framework's own names, typed or as text.
    """
    known = version_of(version)
    names = FRAMEWORKS.get(framework, ())
    result: dict[str, Any] = {}
    for name in sorted(names, key=lambda s: known is not None and s.covers(known)):
        value = parse(BY_NAME[name.knob].kind, config.get(name.key))
        if value is not None:
            result[name.knob] = value
    if any(name.knob == "deepspeed.preset" for name in names):
        result.update(deepspeed.read(config.get("deepspeed")))
    return {knob.name: result[knob.name] for knob in KNOBS if knob.name in result}


def from_command(framework: str, version: str | None, argv: Sequence[str]) -> dict[str, Any]:
    """The knobs that a command line sets; see `canonical`."""
    return canonical(framework, version, options_of(argv))


def default(framework: str, version: str | None, knob: str) -> Any:
    """The value that holds where the job did not set the knob; None where that is unknown."""
    names = _names(framework, knob)
    known = version_of(version)
    if known is not None:
        names = [name for name in names if name.covers(known)]
    return names[-1].default(known) if names else None


def spell(framework: str, version: str | None, knob: str, value: Any) -> str | None:
    """`--offload_optimizer false`: the setting as this version's command line takes it.

    Returns None where this version has no such option. With an unknown version only names that
    never changed are given, so that no printed flag is refused.
    """
    spelling = _valid(framework, version, knob)
    return None if spelling is None else f"--{spelling.key} {spelled(value)}"


def _valid(framework: str, version: str | None, knob: str) -> Spelling | None:
    names = _names(framework, knob)
    known = version_of(version)
    if known is None:
        return names[0] if len(names) == 1 and names[0].until is None else None
    return next((name for name in names if name.covers(known)), None)


def _names(framework: str, knob: str) -> list[Spelling]:
    return [name for name in FRAMEWORKS.get(framework, ()) if name.knob == knob]
