"""Options whose value is missing, or not of the option's kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grpo_doctor.knobs import TABLES
from grpo_doctor.knobs.tables import BY_NAME
from grpo_doctor.launches.model import Problem
from grpo_doctor.launches.programs import Program
from grpo_doctor.launches.raw_settings import RawSettings

_FOR_HYDRA = re.compile(r"^(?:true|false)\Z|\$\{", re.IGNORECASE)
_TAKES = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def check_values(
    raw: RawSettings, program: Program, values: Mapping[str, object]
) -> Iterator[Problem]:
    """Yield a problem for each; `values` are the settings that could be read. Of verl's SFT, which
    has options of its own, nothing is known."""
    for row in () if "sft_trainer" in program.subcommand else TABLES[program.table]:
        option = raw.names.get(row.key)
        if option is None or option.unset or row.knob in values or row.inside or row.item:
            continue
        kind = BY_NAME[row.knob].kind
        if option.value is True and kind != "bool":
            text = f"{option.source.text} has no value: a shell variable that is not set?"
            fix = f"give {option.source.text} a value, or leave it out"
            yield Problem("missing-value", text, fix, option.source, ends=True)
        elif program.framework == "verl" and (
            kind == "float" or _FOR_HYDRA.search(str(option.value))
        ):
            continue  # right as text: a bool as a number, what another key holds, a range
        elif kind in ("int", "float", "bool") and not row.values and _is_text(option.value):
            given = f" ({option.value})" if "$" in option.source.text else ""
            text = f"{option.source.text}{given}: {row.key} takes {_TAKES[kind]}"
            ends = program.framework != "verl" or kind != "bool"
            if not ends:  # Hydra takes any text, and none but an empty one is false
                text += ", and this text counts as true"
            yield Problem("bad-value", text, f"give it {_TAKES[kind]}", option.source, ends=ends)


def _is_text(value: object) -> bool:
    text = str(value).strip().lower()
    return text not in ("", "none", "null") and not isinstance(value, (list, bool))
