"""The command line, made from `TrainerConfig`: parsing, defaults, help, and errors that help."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import types
import typing
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.commandline import Parser, boolean
from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig
from grpo_doctor_trainer.validation import validate

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_NONE = "none"
_LAUNCH = "python -m torch.distributed.run --nproc_per_node 2 -m grpo_doctor_trainer"
_DESCRIPTION = """\
GRPO, as one explicit loop (see loop.py). Without flags it trains an embedded tiny model on
generated arithmetic, on any machine, in about a minute. Flags are spelled as in ms-swift."""
_EXAMPLES = f"""\
examples:
  the demo, on two CPU ranks
    {_LAUNCH}

  a real model with LoRA on eight GPUs
    python -m torch.distributed.run --nproc_per_node 8 -m grpo_doctor_trainer \\
      --model Qwen/Qwen2.5-7B-Instruct --train_type lora --dataset math.jsonl \\
      --reward_funcs accuracy format --deepspeed zero2 --per_device_train_batch_size 4 \\
      --num_generations 8 --max_completion_length 1024

  your own reward: def brevity(completions, **columns): return [-len(c) for c in completions]
    {_LAUNCH} --reward_funcs accuracy rewards.py:brevity --reward_weights 1 0.01
"""


def parse(arguments: Sequence[str], world_size: int) -> TrainerConfig:
    """Turns a command line into a checked configuration.

    Raises:
        ConfigError: an unknown flag or a value that cannot work.
        SystemExit: after `--help`, with code 0.
    """
    parser = build_parser()
    options = parser.given(arguments, [option.name for option in dataclasses.fields(TrainerConfig)])
    options.pop("local_rank", None)
    config = TrainerConfig(**with_defaults(options))
    validate(config, world_size)
    return config


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Adds what was not given and is not the same for every run to what was given."""
    # `--report_to none`, as for options of one value.
    values = {name: [] if value == [_NONE] else value for name, value in given.items()}
    if values.get("model") in {None, EMBEDDED_VL}:
        for option in dataclasses.fields(TrainerConfig):
            if option.metadata["embedded"] is not None:
                values.setdefault(option.name, option.metadata["embedded"])
    if not values.get("reward_funcs"):
        generated = not values.get("dataset")
        values["reward_funcs"] = ["accuracy", "arithmetic"] if generated else ["accuracy"]
    return values


def build_parser() -> Parser:
    """Builds the argument parser; absent flags leave no attribute."""
    parser = Parser(prog="grpo_doctor_trainer", description=_DESCRIPTION, epilog=_EXAMPLES)
    # DeepSpeed's launcher adds it to every command; the environment says the same.
    parser.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    hints = typing.get_type_hints(TrainerConfig)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in dataclasses.fields(TrainerConfig):
        title = option.metadata["group"]
        group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
        group.add_argument(f"--{option.name}", **_argument(option, hints[option.name]))
    return parser


def _argument(option: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    kind, optional, many = _unwrap(hint)
    keywords: dict[str, Any] = {
        "help": _help(option),
        "type": _converter(kind, optional, option.metadata["choices"]),
        "metavar": _metavar(kind, option.metadata["choices"]),
    }
    if many:
        keywords["nargs"] = "+"
    elif kind is bool:
        keywords.update(nargs="?", const=True)
    return keywords


def _unwrap(hint: Any) -> tuple[type, bool, bool]:
    """Splits `int | None` and `list[int]` into the type, whether None is allowed, whether many."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kind = next(part for part in typing.get_args(hint) if part is not type(None))
        return kind, True, False
    if typing.get_origin(hint) is list:
        return typing.get_args(hint)[0], False, True
    return hint, False, False


def _converter(kind: type, optional: bool, choices: tuple[str, ...]) -> Any:
    def convert(text: str) -> Any:
        if optional and text.lower() == _NONE:
            return None
        if choices and text not in choices:
            close = difflib.get_close_matches(text, choices, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}{hint}")
        if kind is bool:
            return boolean(text)
        noun = {int: "a whole number", float: "a finite number"}.get(kind)
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun}") from None
        if kind is float and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun}")
        return value

    return convert


def _metavar(kind: type, choices: tuple[str, ...]) -> str:
    if choices:
        return "{" + ",".join(choices) + "}"
    return {bool: "true|false", int: "N", float: "X", str: "TEXT"}[kind]


def _help(option: dataclasses.Field[Any]) -> str:
    default = option.default
    shown = _NONE if default is dataclasses.MISSING or default is None else _spelled(default)
    embedded = option.metadata["embedded"]
    extra = "" if embedded is None else f"; {_spelled(embedded)} with the embedded model"
    return f"{option.metadata['help']} (default {shown}{extra})".replace("%", "%%")


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
