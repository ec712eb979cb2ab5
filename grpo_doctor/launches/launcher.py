"""What starts the processes of a job: wrappers are taken off until the program itself is left."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from grpo_doctor.launches.files import json_object
from grpo_doctor.launches.tables import TABLES
from grpo_doctor.launches.words import Word

_TABLE = TABLES["launcher"]
_WRAPPERS, _RUNS_MODULES, _PROGRAMS, _TAKE_VALUES = (
    frozenset(_TABLE[name].split())
    for name in ("wrappers", "run modules", "programs", "options with a value")
)
_NEXT: Mapping[str, str] = _TABLE["next word"]
_OF_PRIME_RL = ("rl", "trainer", "orchestrator")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# What a variable without a value may have said.
_COUNTS = {"torchrun": ("nproc_per_node", "nnodes")}
# Options of the launchers that take no value; every other one takes the word that follows.
_SWITCHES: Mapping[str, str] = _TABLE["switches"]


@dataclass(frozen=True, slots=True)
class Started:
    """A program with its arguments, and the options of its launcher.

    `name` is a program, a module or a path of Python; `options` are the launcher's own.
    """

    name: str
    words: tuple[Word, ...]
    launcher: str = ""
    options: Mapping[str, Word] = field(default_factory=dict)
    environment: Mapping[str, Word] = field(default_factory=dict)
    at: Word | None = None


def unwrap(words: tuple[Word, ...]) -> Started | None:
    """The program that a command starts in the end; None for a command that starts no training."""
    environment: dict[str, Word] = {}
    while words:
        if _is_unknown(words[0]) and len(words) > 1:
            words = words if words[1].text == "-m" else words[1:]
        name = "python" if _is_unknown(words[0]) else _base(words[0].text)
        peel = _python if name.startswith("python") else _PEELERS.get(name)
        if peel is not None:
            started = peel(words)
            if started is None:
                return None
            return replace(started, environment={**environment, **started.environment})
        if name.endswith(".py"):
            return Started(words[0].text, words[1:], environment=environment, at=words[0])
        if name in _OF_PRIME_RL and len(words) > 1 and words[1].text.startswith("@"):
            return Started(name, words[1:], environment=environment, at=words[0])
        if name not in _WRAPPERS:
            return None
        words = _unwrapped(words, environment)
    return None


def _unwrapped(words: tuple[Word, ...], environment: dict[str, Word]) -> tuple[Word, ...]:
    """Return what a wrapper starts; the variables that it sets go into `environment`."""
    name, words = _base(words[0].text), words[1:]
    while words and not _begins_program(words):
        if (
            name in _TABLE["run modules"].split()
            and words[0].text in ("-m", "--module")
            and words[1:]
        ):
            return (words[0].with_text("python"), words[0].with_text("-m"), *words[1:])
        if words[0].text in _TAKE_VALUES and len(words) > 1:
            words = words[1:]
        key, equals, value = words[0].text.partition("=")
        if equals and key.isidentifier():
            environment[key] = words[0].with_text(value)
        words = words[1:]
    return words


def _base(text: str) -> str:
    return PurePosixPath(text).name


def _begins_program(words: tuple[Word, ...]) -> bool:
    name = _base(words[0].text)
    if name in _OF_PRIME_RL:
        return len(words) > 1 and words[1].text.startswith("@")
    if name in _NEXT:
        return len(words) > 1 and re.match(_NEXT[name], words[1].text) is not None
    return name in _PROGRAMS or name.startswith("python") or name.endswith(".py")


def _options(words: tuple[Word, ...], kind: str) -> tuple[dict[str, Word], tuple[Word, ...]]:
    """Return the launcher's options, and the words from the program on."""
    options: dict[str, Word] = {}
    while words and (re.match("-.", words[0].text) or _is_unknown(words[0])):
        if _is_unknown(words[0]):
            options |= dict.fromkeys(_COUNTS.get(kind, ()), words[0])
            words = words[1:]
            continue
        name, equals, value = words[0].text.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if equals:
            options[name] = words[0].with_text(value)
        elif name in _SWITCHES[kind].split() or len(words) == 1 or words[1].text.startswith("--"):
            options[name] = words[0].with_text("true")
        else:
            options[name] = words[1]
            words = words[1:]
        words = words[1:]
    return options, words


def _is_unknown(word: Word) -> bool:
    """Return whether nothing stands here but a variable that has no value: it may say anything."""
    return bool(word.unset) and not word.text


def _python(words: tuple[Word, ...]) -> Started | None:
    remaining = words[1:]
    while remaining and remaining[0].text.startswith("-") and remaining[0].text != "-m":
        remaining = remaining[2:] if remaining[0].text in ("-X", "-W") else remaining[1:]
    if len(remaining) > 1 and remaining[0].text == "-m":
        module, remaining = remaining[1], remaining[2:]
        if module.text in _TORCHRUN_MODULES:
            return _launched("torchrun", remaining)
        if module.text in ("accelerate.commands.launch", "accelerate"):
            remaining = remaining[1:] if remaining and remaining[0].text == "launch" else remaining
            return _launched("accelerate", remaining)
        if module.text.startswith("deepspeed.launcher") or module.text == "deepspeed":
            return _launched("deepspeed", remaining)
        return Started(module.text, remaining, at=module)
    if remaining and remaining[0].text.endswith(".py"):
        return Started(remaining[0].text, remaining[1:], at=remaining[0])
    return None


def _launched(launcher: str, words: tuple[Word, ...]) -> Started | None:
    options, program_words = _options(words, launcher)
    # `-m module`: argparse takes the module as the program's name.
    if not program_words:
        return None
    first = program_words[0]
    base = _base(first.text)
    if base.startswith("python"):  # accelerate launch python train.py
        inner = _python(program_words)
        return replace(inner, launcher=launcher, options=options) if inner else None
    name = base if base in ("swift", "megatron", "trl") else first.text
    return Started(name, program_words[1:], launcher, options, at=first)


def _accelerate(words: tuple[Word, ...]) -> Started | None:
    is_launch = len(words) > 1 and words[1].text == "launch"
    return _launched("accelerate", words[2:]) if is_launch else None


def _ray(words: tuple[Word, ...]) -> Started | None:
    texts = [word.text for word in words]
    if texts[1:3] != ["job", "submit"]:
        return None
    starts = (i for i in range(3, len(words)) if _begins_program(words[i:]))
    at = texts.index("--") if "--" in texts else next(starts, len(words)) - 1
    environment: dict[str, Word] = {}
    options, _ = _options(words[3:at], "torchrun")
    if (runtime := options.get("runtime_env_json")) is not None:
        variables = json_object(runtime.text).get("env_vars")
        if isinstance(variables, dict):
            environment = {k: runtime.with_text(str(v)) for k, v in variables.items()}
    words = words[at + 1 :]
    if words and "=" in words[0].text:  # Ray gives a shell what follows
        words = (words[0].with_text("env"), *words)
    inner = unwrap(words)
    if inner is None:
        return None
    return replace(inner, launcher="ray", environment={**environment, **inner.environment})


_PEELERS: Mapping[str, Callable[[tuple[Word, ...]], Started | None]] = {
    "accelerate": _accelerate,
    "torchrun": lambda words: _launched("torchrun", words[1:]),
    "deepspeed": lambda words: _launched("deepspeed", words[1:]),
    "ray": _ray,
    **dict.fromkeys(
        ("swift", "megatron", "trl", "vllm", "sglang"),
        lambda words: Started(_base(words[0].text), words[1:], at=words[0]),
    ),
}
