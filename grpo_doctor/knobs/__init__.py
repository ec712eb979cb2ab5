"""Settings of training frameworks under one canonical name each.

`canonical` reads what a job said, `from_command` what a command line says, `spell` writes a
setting the way one version of one framework takes it, and `default` knows what holds where nothing
was set. The table is `settings.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_doctor.knobs import deepspeed
from grpo_doctor.knobs.model import Knob, Spelling, Syntax, version_of
from grpo_doctor.knobs.syntax import options_of, overrides_of, read, say
from grpo_doctor.knobs.tables import BY_NAME, FRAMEWORKS, KNOBS, TABLES, syntax_of
from grpo_doctor.knobs.values import parse

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
    "written",
]


def canonical(framework: str, version: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in `config`, parsed; what it leaves out or sets to nothing is absent.

    Args:
        framework: `bundled`, `ms-swift`, ...; an unknown one gives an empty result.
        version: its version. Of several names in `config`, one that this version knows wins.
        config: values under the framework's own names, typed or as text; dotted names may also be
            levels of mappings.
    """
    number = version_of(version)
    rows = TABLES.get(framework, ())
    result: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: number is not None and row.covers(number)):
        value = read(syntax_of(framework), row, BY_NAME[row.knob].kind, config)
        if value is not None:
            result[row.knob] = value
    if any(row.knob == "deepspeed.preset" for row in rows):
        # A job that accelerate's own file gives DeepSpeed says the stage alone.
        stage = parse("int", config.get("zero_stage"))
        result.update({} if stage is None else {"deepspeed.stage": stage})
        result.update(deepspeed.read(config.get("deepspeed")))
    engine = {"parallel.strategy": config.get("model_engine"), **result}
    if (table := table_of(framework, engine)) != framework:
        return canonical(table, version, config)
    return {knob.name: result[knob.name] for knob in KNOBS if knob.name in result}


def table_of(framework: str, settings: Mapping[str, Any]) -> str:
    """Return the table that has a job's settings: of verl under Megatron another one."""
    megatron = f"{framework} megatron"
    if settings.get("parallel.strategy") == "megatron" and framework == "verl":
        return megatron
    return framework


def from_command(framework: str, version: str | None, argv: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a command line; see `canonical`."""
    overrides = syntax_of(framework) == "hydra"
    return canonical(framework, version, overrides_of(argv) if overrides else options_of(argv))


def default(framework: str, version: str | None, knob: str) -> Any:
    """Return the value where the job did not set it; None where that is unknown."""
    number, rows = version_of(version), _rows(framework, version, knob)
    return rows[-1].default_in(number) if rows else None


def spell(
    framework: str, version: str | None, knob: str, value: Any, syntax: Syntax | None = None
) -> str | None:
    """`--offload_optimizer false`: the setting as this version's command line takes it, or as
    another `syntax` writes it.

    Switches that are false by absence read `(leave out --adam_offload)`. Returns None where this
    version has no such option, or the option no such value. With an unknown version only names
    that never changed are given, so that no printed flag is refused.
    """
    rows = _rows(framework, version, knob)
    ends = [row.until for row in rows]
    unbroken = bool(rows) and ends == [*(row.since for row in rows[1:]), None]
    if version_of(version) is None and not unbroken:
        return None
    texts = {written(framework, row, value, syntax) for row in rows}
    return texts.pop() if len(texts) == 1 else None


def written(framework: str, row: Spelling, value: Any, syntax: Syntax | None = None) -> str | None:
    """Return a setting under one of its names."""
    return say(syntax or syntax_of(framework), row, BY_NAME[row.knob].kind, value)


def _rows(framework: str, version: str | None, knob: str) -> list[Spelling]:
    """Return the setting's names in this version; all of them where it is unknown."""
    number = version_of(version)
    rows = [row for row in TABLES.get(framework, ()) if row.knob == knob]
    return [row for row in rows if number is None or row.covers(number)]
