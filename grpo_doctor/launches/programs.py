"""Which framework's command a program is, and whether it trains or serves rollouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor.launches.files import located
from grpo_doctor.launches.launcher import Started
from grpo_doctor.launches.model import Framework, Role, Trainer
from grpo_doctor.launches.scripts import by_name, by_source
from grpo_doctor.launches.tables import TABLES
from grpo_doctor.launches.words import Word


@dataclass(frozen=True, slots=True)
class Program:
    """A framework's command.

    `table` names its settings in `grpo_doctor.knobs`, `listed` its options in `options/`; `listed`
    is None where the program also takes options of its own.
    """

    framework: Framework
    role: Role
    table: str
    listed: str | None
    words: tuple[Word, ...]
    subcommand: str = ""
    script: Word | None = None
    trainer: Trainer = "unknown"
    """What the script of a user trains."""


_SERVER: Role = "rollout server"
_TABLE = TABLES["programs"]
_SWIFT_FILE = re.compile(r"(?:^|[./])swift[./]cli[./](?:_megatron[./])?(\w+?)(?:\.py)?$")
_TRL_FILE = re.compile(r"(?:^|[./])trl[./]scripts[./](\w+?)(?:\.py)?$")
_VERL = re.compile(
    r"(?:^|/|verl\.|\.(?!verl\.trainer\.))(verl[./]trainer[./](?:main_\w+|\w*sft_trainer\w*)|verl[./]experimental[./].*|recipe[./]\w+[./].*main\w*)$"
)
_OPENRLHF = re.compile(r"(?:^|[./])openrlhf[./]cli[./](train_\w+?)(?:\.py)?$")
_MODULES: Mapping[str, tuple[Framework, Role, str, str]] = _TABLE["modules"]


def recognize(started: Started, folder: Path | None = None) -> Program | None:
    """Return the framework's command that was started; None for an unknown program.

    Args:
        started: the program and its words.
        folder: where it is started, to read a script's source; without it a script is `unknown`.
    """
    name, words = started.name, started.words
    first = words[0].text if words else ""
    if name in ("swift", "megatron"):
        return _swift(first, words[1:], megatron=name == "megatron")
    if name == "trl":
        return _trl(first, words[1:])
    if name in ("vllm", "sglang"):
        framework: Framework = "vllm" if name == "vllm" else "sglang"
        made = Program(framework, _SERVER, framework, framework, words[1:], "serve")
        return made if first == "serve" else None
    return _module(name.removesuffix(".py"), words) or _own(started, words, folder)


def bundled(words: tuple[Word, ...]) -> Program:
    """Return the bundled trainer's own arguments."""
    return Program("bundled", "train", "bundled", "bundled", words)


def _module(name: str, words: tuple[Word, ...]) -> Program | None:
    if name in _MODULES:
        framework, role, table, listed = _MODULES[name]
        return Program(framework, role, table, listed, words)
    if match := _SWIFT_FILE.search(name):
        command = match[1]
        if command == "main":
            command, words = words[0].text if words else "", words[1:]
        return _swift(command, words, megatron="_megatron" in name)
    for pattern, make in ((_TRL_FILE, _trl), (_OPENRLHF, _openrlhf), (_VERL, _verl)):
        if match := pattern.search(name):
            return make(match[1], words)
    return None


def _own(started: Started, words: tuple[Word, ...], folder: Path | None) -> Program | None:
    """Return a script or module of the user's, or of a framework that is not supported."""
    is_script = started.name.endswith(".py")
    is_launched = started.launcher in ("torchrun", "accelerate", "deepspeed")
    at = started.at
    if at is not None and not is_script:
        at = at.with_text(f"{started.name.replace('.', '/')}.py")
    source = None
    if folder is not None and at is not None:
        source = by_source(located(at.text, folder, at.source))
    if source is not None and source.framework != "unknown":
        hydra = source.framework == "verl"
        table = source.framework if source.framework in ("trl", "verl") else ""
        subcommand = started.name if hydra else source.trainer
        script = None if hydra else at
        return Program(
            source.framework, "train", table, None, words, subcommand, script, source.trainer
        )
    named = by_name(started.name.removesuffix(".py"), words)
    if named is not None:
        stem = started.name.removesuffix(".py")
        subcommand = f"{stem}.py" if named == "verl" else stem.rpartition("/")[2]
        return Program(named, "train", named, None, words, subcommand)
    if not (is_script or is_launched):
        return None
    return Program("unknown", "train", "", None, words, script=at)


def _openrlhf(command: str, words: tuple[Word, ...]) -> Program:
    listed = "openrlhf" if command == "train_ppo_ray" else None
    return Program("openrlhf", "train", "openrlhf", listed, words, command)


def _swift(command: str, words: tuple[Word, ...], *, megatron: bool) -> Program | None:
    command = command.replace("_", "-")
    commands: Mapping[str, tuple[Role, str, str]] = _TABLE["megatron" if megatron else "swift"]
    if command not in commands:
        return None
    role, table, listed = commands[command]
    return Program("ms-swift", role, table, listed or None, words, command)


def _trl(command: str, words: tuple[Word, ...]) -> Program | None:
    if command in ("vllm-serve", "vllm_serve"):
        return Program("trl", _SERVER, "trl server", "trl-server", words, "vllm-serve")
    if not command or command.startswith("-") or command == "env":
        return None
    return Program("trl", "train", "trl", "trl" if command == "grpo" else None, words, command)


_STRATEGY = "actor_rollout_ref.actor.strategy=megatron"


def _verl(name: str, words: tuple[Word, ...]) -> Program:
    listed: str | None = "verl" if re.search(r"verl[./]trainer[./]main_ppo$", name) else None
    for index, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        if flag in ("--config-name", "-cn"):
            value = value if equals else words[index + 1].text if index + 1 < len(words) else ""
            configs = {"ppo_trainer": "verl", "ppo_megatron_trainer": "verl-megatron"}
            listed = configs.get(value.removesuffix(".yaml")) if listed else None
        elif flag in ("--config-path", "-cp", "--config-dir", "-cd") and "--config-name" not in (
            option.text.partition("=")[0] for option in words
        ):
            listed = None
        elif flag == "model_engine" and value != "dp":
            listed = "verl-megatron" if value == "megatron" and listed else None
    megatron = listed == "verl-megatron" or any(word.text == _STRATEGY for word in words)
    return Program("verl", "train", "verl megatron" if megatron else "verl", listed, words, name)
