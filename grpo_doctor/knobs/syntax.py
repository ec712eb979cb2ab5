"""How each framework's settings are written, and where they are found again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_doctor.knobs.model import Kind, Spelling, Syntax
from grpo_doctor.knobs.values import off, ours, parse, spelled, theirs

_OVERRIDE = re.compile(r"^(?:\+{0,2}|~)([A-Za-z_][\w.@/-]*)=(.*)$", re.DOTALL)


def say(syntax: Syntax, spelling: Spelling, kind: Kind, value: Any) -> str | None:
    """Return the setting as text; None where this option can't say this value."""
    if spelling.item is not None:
        return None
    gate = spelling.gate
    if gate is not None and value == off(kind):
        return _WORDS[syntax](gate.key, False, "bool", False)
    mapped = theirs(spelling, value)
    if mapped is None:
        return None
    content = json.dumps({spelling.inside: mapped[0]}) if spelling.inside else mapped[0]
    if spelling.inside and syntax == "python":
        content = {spelling.inside: mapped[0]}
    words = [_WORDS[syntax](spelling.key, content, kind, spelling.new)]
    if gate is not None:
        words.insert(0, _WORDS[syntax](gate.key, True, "bool", False))
    if value:
        words += [
            _WORDS[syntax](key, extra, "str", False) for key, extra in spelling.beside.items()
        ]
    return (", " if syntax == "python" else " ").join(words)


def read(syntax: Syntax, spelling: Spelling, kind: Kind, config: Mapping[str, Any]) -> Any:
    """Return the canonical value that `config` holds under this name; None where it holds none."""
    gate = spelling.gate
    value = ours(spelling, kind, _raw(syntax, spelling.key, kind, config))
    if gate is None:
        return value
    switch = parse("bool", _raw(syntax, gate.key, "bool", config))
    if switch is None and value is None:
        return None
    if not (gate.on if switch is None else switch):
        return off(kind)
    return gate.value if value is None else value


def _raw(syntax: Syntax, key: str, kind: Kind, config: Mapping[str, Any]) -> Any:
    value = look_up(config, key)
    if value is None and kind == "bool" and syntax in ("flags", "cli"):
        refused = parse("bool", config.get(f"no_{key}"))
        return None if refused is None else not refused
    return value


def look_up(config: Mapping[str, Any], key: str) -> Any:
    """Return the value under a dotted key, be the dots in the key or levels of the mapping."""
    if key in config:
        return config[key]
    head, dot, tail = key.partition(".")
    while dot:
        if isinstance(inner := config.get(head), Mapping):
            return look_up(inner, tail)
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"
    return None


def options_of(argv: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line such as `swift rlhf --use_vllm true --reward_funcs a b`.

    Returns the option's name without dashes, and its text; a list where it takes several, True
    where it takes none. Words before the first option are left out.
    """
    options: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            current = options[name.replace("-", "_")] = [value] if equals else []
        elif current is not None:
            current.append(word)
    return {
        name: True if not words else words[0] if len(words) == 1 else words
        for name, words in options.items()
    }


def overrides_of(argv: Sequence[str]) -> dict[str, Any]:
    """Hydra's overrides in a command line: `trainer.save_freq=20`, `++data.x=1`."""
    matches = (_OVERRIDE.match(word) for word in argv if not word.startswith("-"))
    return {match[1]: match[2].strip("'\"") for match in matches if match}


def _flag(key: str, value: Any, kind: Kind, _new: bool) -> str:
    return f"--{key} {_quoted(value, kind)}"


def _switch(key: str, value: Any, kind: Kind, new: bool) -> str:
    if value is True:
        return f"--{key}"
    return f"(remove --{key})" if value is False else _flag(key, value, kind, new)


def _command_line(key: str, value: Any, kind: Kind, new: bool) -> str:
    key = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{key}" if value else f"--no-{key}"
    return _flag(key, value, kind, new)


def _override(key: str, value: Any, _kind: Kind, new: bool) -> str:
    # `++` adds the key or changes it; a plain `+` is refused where the launch already has it.
    return shlex.quote(f"{'++' * new}{key}={spelled(value)}")


def _entry(key: str, value: Any, _kind: Kind, _new: bool) -> str:
    return f'"{key}": {json.dumps(value)}'


def _argument(key: str, value: Any, kind: Kind, _new: bool) -> str:
    if kind == "words":
        value = [parse("float", word) or word for word in spelled(value).split()]
    return f"{key}={json.dumps(value) if isinstance(value, str) else repr(value)}"


def _quoted(value: Any, kind: Kind) -> str:
    return spelled(value) if kind == "words" else shlex.quote(spelled(value))


_WORDS: dict[Syntax, Callable[[str, Any, Kind, bool], str]] = {
    "flags": _flag,
    "switches": _switch,
    "cli": _command_line,
    "hydra": _override,
    "json": _entry,
    "python": _argument,
}
