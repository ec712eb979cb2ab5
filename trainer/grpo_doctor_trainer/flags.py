"""The command lines of the trainer and of its server, made from their options.

Parsing, defaults, `--help`, and errors that name the flag, the value and what is allowed.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig
from grpo_doctor_trainer.config.option import check_limits
from grpo_doctor_trainer.config.server import ServeConfig
from grpo_doctor_trainer.config.validation import check_served_model, validate
from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NONE = "none"
_LAUNCH = "python -m torch.distributed.run --nproc_per_node 2 -m grpo_doctor_trainer"
_TRAINER_DESCRIPTION = """\
GRPO, as one explicit loop (see loop.py). Without flags it trains an embedded tiny model on
generated arithmetic, on any machine, in about a minute. Flags are spelled as in ms-swift."""
_TRAINER_EXAMPLES = f"""\
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
_SERVER_DESCRIPTION = """\
One vLLM engine behind HTTP, for the trainer's --use_vllm true --vllm_mode server. It gets new
weights from the trainer before each rollout. Ctrl-C ends it with its engine processes."""
_SERVER_EXAMPLES = """\
examples:
  the embedded tiny model, on any machine; train with it from another terminal
    python -m grpo_doctor_trainer.serve
    python -m torch.distributed.run --nproc_per_node 2 -m grpo_doctor_trainer \\
      --use_vllm true --vllm_mode server

  a real model on two GPUs of this machine, the trainer on the other six
    CUDA_VISIBLE_DEVICES=0,1 python -m grpo_doctor_trainer.serve \\
      --model Qwen/Qwen2.5-7B-Instruct --tensor_parallel_size 2 --max_model_len 4096
    CUDA_VISIBLE_DEVICES=2,3,4,5,6,7 python -m torch.distributed.run --nproc_per_node 6 \\
      -m grpo_doctor_trainer --model Qwen/Qwen2.5-7B-Instruct --dataset math.jsonl \\
      --use_vllm true --vllm_mode server

  for trainers on other machines (nothing asks for a password: only in a network you trust)
    python -m grpo_doctor_trainer.serve --host 0.0.0.0 --port 8000

exit codes: 1 the engine failed (see its log), 2 a mistake in the launch, 130 Ctrl-C, 143 SIGTERM"""


@dataclass(frozen=True)
class Program:
    """What is started from a command line.

    Attributes:
        name: its module.
        options: the dataclass of its options.
        description: begins `--help`.
        examples: ends `--help`.
    """

    name: str
    options: type[TrainerConfig] | type[ServeConfig]
    description: str
    examples: str

    def option_names(self) -> list[str]:
        """The flags without their dashes, in the order of `--help`."""
        return [option.name for option in dataclasses.fields(self.options)]


TRAINER = Program("grpo_doctor_trainer", TrainerConfig, _TRAINER_DESCRIPTION, _TRAINER_EXAMPLES)
SERVER = Program("grpo_doctor_trainer.serve", ServeConfig, _SERVER_DESCRIPTION, _SERVER_EXAMPLES)


def parse(arguments: Sequence[str], world_size: int) -> TrainerConfig:
    """Turns the trainer's command line into a checked configuration.

    Args:
        arguments: the command line without the program.
        world_size: how many ranks the job has.

    Raises:
        ConfigError: an unknown flag or a value that cannot work.
        SystemExit: after `--help`, with code 0.
    """
    values = build_parser(TRAINER).given(arguments, TRAINER.option_names())
    values.pop("local_rank", None)
    config = TrainerConfig(**with_defaults(values))
    validate(config, world_size)
    return config


def parse_server(arguments: Sequence[str]) -> ServeConfig:
    """Turns the server's command line into a checked configuration.

    Raises:
        ConfigError: an unknown flag or a value that cannot work.
        SystemExit: after `--help`, with code 0.
    """
    values = build_parser(SERVER).given(arguments, SERVER.option_names())
    config = ServeConfig(**_with_embedded_defaults(values, ServeConfig))
    check_served_model(config)
    check_limits(config)
    return config


def with_defaults(flags: dict[str, Any]) -> dict[str, Any]:
    """Adds what was not given to the trainer and is not the same for every run."""
    # `--report_to none`, as for options of one value.
    values = {name: [] if value == [_NONE] else value for name, value in flags.items()}
    values = _with_embedded_defaults(values, TrainerConfig)
    if not values.get("reward_funcs"):
        generated = not values.get("dataset")
        values["reward_funcs"] = ["accuracy", "arithmetic"] if generated else ["accuracy"]
    return values


def _with_embedded_defaults(flags: dict[str, Any], options: type) -> dict[str, Any]:
    if flags.get("model") not in {None, EMBEDDED_VL}:
        return flags
    declared = dataclasses.fields(options)
    embedded = {option.name: option.metadata["embedded"] for option in declared}
    return {name: value for name, value in embedded.items() if value is not None} | flags


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `ConfigError`s; absent flags leave no attribute."""

    def __init__(self, program: Program) -> None:
        super().__init__(
            prog=program.name,
            usage=f"python -m {program.name} [--flag value ...]",
            description=program.description,
            epilog=program.examples,
            formatter_class=_help_layout,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )

    def error(self, message: str) -> NoReturn:
        """Raises `ConfigError` instead of ending the process."""
        raise ConfigError(message.removeprefix("argument "))

    def given(self, arguments: Sequence[str], names: Collection[str]) -> dict[str, Any]:
        """Gives the values of the flags that are there.

        Args:
            arguments: the command line.
            names: names of flags, for the nearest match of one that does not exist.

        Raises:
            ConfigError: an unknown flag, or a value of another type or choice.
            SystemExit: after `--help`, with code 0.
        """
        values, unknown = self.parse_known_args(list(arguments))
        if unknown:
            raise ConfigError(_unknown_message(unknown[0], names))
        return vars(values)


def build_parser(program: Program = TRAINER) -> Parser:
    """Builds the parser of a program; absent flags leave no attribute."""
    parser = Parser(program)
    if program is TRAINER:
        # DeepSpeed's launcher adds it to every command; the environment says the same.
        parser.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    hints = typing.get_type_hints(program.options)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in dataclasses.fields(program.options):
        title, alias = option.metadata["group"], option.metadata["alias"]
        group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
        names = [f"--{name}" for name in (option.name, alias) if name is not None]
        group.add_argument(*names, **_argument(option, hints[option.name]))
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
            return _boolean(text)
        noun = {int: "a whole number", float: "a finite number"}.get(kind)
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun}") from None
        if kind is float and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun}")
        return value

    return convert


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


def _metavar(kind: type, choices: tuple[str, ...]) -> str:
    if choices:
        return "{" + ",".join(choices) + "}"
    return {bool: "true|false", int: "N", float: "X", str: "TEXT"}[kind]


def _help(option: dataclasses.Field[Any]) -> str:
    default, embedded = option.default, option.metadata["embedded"]
    shown = _NONE if default is dataclasses.MISSING or default is None else _spelled(default)
    text = option.metadata["default_text"] or f"default {shown}"
    if embedded is not None:
        text = f"{text}; {_spelled(embedded)} with the embedded model"
    return f"{option.metadata['help']} ({text})".replace("%", "%%")


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _help_layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=100)


def _unknown_message(argument: str, names: Collection[str]) -> str:
    if not argument.startswith("-"):
        return f"{argument!r} does not belong to a flag; see --help"
    name = argument.lstrip("-").split("=", 1)[0]
    close = difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=0.5)
    hint = f"did you mean --{close[0]}?" if close else "see --help for all flags"
    return f"unknown flag --{name}: {hint}"
