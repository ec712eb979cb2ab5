"""Writes `docs/knobs.md` from the tables: `python -m grpo_doctor.knobs.docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Kind, Knob, Spelling, version_of
from grpo_doctor.knobs.syntax import say
from grpo_doctor.knobs.values import theirs
from grpo_doctor.markdown import filled

FILE = Path("docs/knobs.md")
_COLUMNS: Mapping[str, str] = {
    "bundled": "bundled",
    "ms-swift": "ms-swift",
    "trl": "TRL",
    "verl": "verl",
    "openrlhf": "OpenRLHF",
    "deepspeed": "DeepSpeed JSON",
    "vllm": "vLLM",
}
_SAMPLES: Mapping[Kind, Any] = {"bool": True, "int": 2, "float": 0.5, "str": "X", "words": "1 0.5"}
_OF = "knobs/settings.json by `python -m grpo_doctor.knobs.docs`; edit that"


def updated(page: str) -> str:
    """Return the page with the settings as they are now."""
    lines: list[str] = []
    for subject, group in groupby(knobs.KNOBS, key=lambda knob: knob.name.partition(".")[0]):
        lines.append(f"\n## {subject}")
        lines += [text for knob in group for text in _knob(knob)]
    return filled(page, _OF, "\n".join(lines))


def _knob(knob: Knob) -> Iterator[str]:
    yield f"\n**`{knob.name}`** ({knob.kind}): {knob.meaning}\n"
    for framework, title in _COLUMNS.items():
        for row in knobs.TABLES[framework]:
            if row.knob == knob.name:
                yield f"- {title}: {_row(framework, row, knob)}"


def _row(framework: str, row: Spelling, knob: Knob) -> str:
    columns = (_sample(framework, row, knob), _range(framework, row), _default(row))
    return "; ".join(filter(None, columns))


def _sample(framework: str, row: Spelling, knob: Knob) -> str:
    value = _SAMPLES[knob.kind]
    if row.values and theirs(row, value) is None:
        value = row.values[0][0]
    text = say(knobs.syntax_of(framework), row, knob.kind, value)
    return f"`{row.key}`, only read" if text is None else f"`{text}`"


def _range(framework: str, row: Spelling) -> str:
    first = min(version_of(each.since) or () for each in knobs.TABLES[framework])
    since = "" if version_of(row.since) == first else f"from {row.since}"
    return f"{since} before {row.until}".strip() if row.until else since


def _default(row: Spelling) -> str:
    texts = [f"default {_plain(row.default)}"]
    texts += [f"{_plain(value)} from {version}" for version, value in row.later.items()]
    return "" if not row.later and row.default is None else ", ".join(texts)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def main(arguments: Sequence[str]) -> int:
    """Rewrite the file."""
    path = Path(arguments[0]) if arguments else FILE
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
