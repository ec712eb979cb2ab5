"""Settings of training frameworks under one canonical name each.

`canonical` reads what a job said, `from_command` what a command line says, `spell` writes a
setting the way one version of one framework takes it, and `default` knows what holds where nothing
was said. A new framework is a table of `Spelling` rows in a file of its own, named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_doctor.knobs import (
    bundled,
    deepspeed,
    megatron,
    openrlhf,
    servers,
    swift,
    trl,
    verl,
    verl_megatron,
    vllm,
)
from grpo_doctor.knobs.model import Knob, Spelling, version_of
from grpo_doctor.knobs.names import BY_NAME, KNOBS
from grpo_doctor.knobs.syntax import Syntax, options_of, overrides_of, read, say

__all__ = [
    "FRAMEWORKS",
    "KNOBS",
    "TABLES",
    "Knob",
    "Spelling",
    "canonical",
    "default",
    "from_command",
    "spell",
    "syntax_of",
]

FRAMEWORKS: Mapping[str, tuple[Spelling, ...]] = {
    "bundled": bundled.SPELLINGS,
    "ms-swift": swift.SPELLINGS,
    "trl": trl.SPELLINGS,
    "verl": verl.SPELLINGS,
    "openrlhf": openrlhf.SPELLINGS,
}
"""The trainers."""
TABLES: Mapping[str, tuple[Spelling, ...]] = {
    **FRAMEWORKS,
    "deepspeed": deepspeed.SPELLINGS,
    "vllm": vllm.SPELLINGS,
    "bundled server": servers.BUNDLED,
    "ms-swift server": servers.SWIFT,
    "trl server": servers.TRL,
    "sglang": servers.SGLANG,
    "ms-swift megatron": megatron.SPELLINGS,
    "verl megatron": verl_megatron.SPELLINGS,
}
"""The trainers, and what runs with them: DeepSpeed's JSON, servers for rollouts."""
_SYNTAX: Mapping[str, Syntax] = {
    "verl": "hydra",
    "verl megatron": "hydra",
    "openrlhf": "switches",
    "deepspeed": "json",
    "vllm": "cli",
    "sglang": "cli",
}


def syntax_of(framework: str) -> Syntax:
    """How this framework's settings are written."""
    return _SYNTAX.get(framework, "flags")


def canonical(framework: str, version: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that `config` sets, parsed; what it leaves out or sets to nothing is absent.

    Args:
        framework: `bundled`, `ms-swift`, ...; an unknown one gives an empty result.
        version: its version. Of several names in `config`, one that this version knows wins.
        config: values under the framework's own names, typed or as text; dotted names may also be
            levels of mappings.
    """
    known = version_of(version)
    names = TABLES.get(framework, ())
    result: dict[str, Any] = {}
    for name in sorted(names, key=lambda s: known is not None and s.covers(known)):
        value = read(syntax_of(framework), name, BY_NAME[name.knob].kind, config)
        if value is not None:
            result[name.knob] = value
    if any(name.knob == "deepspeed.preset" for name in names):
        result.update(deepspeed.read(config.get("deepspeed")))
    return {knob.name: result[knob.name] for knob in KNOBS if knob.name in result}


def from_command(framework: str, version: str | None, argv: Sequence[str]) -> dict[str, Any]:
    """The knobs that a command line sets; see `canonical`."""
    overrides = syntax_of(framework) == "hydra"
    return canonical(framework, version, overrides_of(argv) if overrides else options_of(argv))


def default(framework: str, version: str | None, knob: str) -> Any:
    """The value that holds where the job did not set the knob; None where that is unknown."""
    names = _names(framework, knob)
    known = version_of(version)
    if known is not None:
        names = [name for name in names if name.covers(known)]
    return names[-1].default(known) if names else None


def spell(framework: str, version: str | None, knob: str, value: Any) -> str | None:
    """`--offload_optimizer false`: the setting as this version's command line takes it.

    Switches that are false by absence read `(leave out --adam_offload)`. Returns None where this
    version has no such option, or the option no such value. With an unknown version only names
    that never changed are given, so that no printed flag is refused.
    """
    names = _names(framework, knob)
    known = version_of(version)
    if known is not None:
        names = [name for name in names if name.covers(known)]
    elif not _unbroken(names):
        return None
    texts = {say(syntax_of(framework), name, BY_NAME[knob].kind, value) for name in names}
    return texts.pop() if len(texts) == 1 else None


def _unbroken(names: Sequence[Spelling]) -> bool:
    """Whether each row begins where the one before ends, and the last has no end."""
    ends = [name.until for name in names]
    return bool(names) and ends == [*(name.since for name in names[1:]), None]


def _names(framework: str, knob: str) -> list[Spelling]:
    return [name for name in TABLES.get(framework, ()) if name.knob == knob]
