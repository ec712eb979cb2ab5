"""The command line of the trainer, made from its options.

Parsing, defaults, `--help`, and errors that name the flag, the value and what is allowed.
`python -m grpo_doctor_trainer.flags FLAGS` says whether flags are right for WORLD_SIZE ranks: exit
code 0, or 2 with one message. It imports no torch and takes a moment: a launcher asks here first,
because torchrun shows a mistake in a flag as a page of tracebacks.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import os
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.validation import validate

_NONE = "none"
_WORDS = {"yes": "true", "no": "false"}
_METAVARS = {bool: "true|false", int: "N", float: "X", str: "TEXT"}
_PROGRAM = "grpo_doctor_trainer"
_LAUNCH = "python -m torch.distributed.run --nproc_per_node 2 -m grpo_doctor_trainer"
_DESCRIPTION = """\
GRPO, as one explicit loop (see loop.py). Without flags it trains an embedded tiny model on
generated arithmetic, on any machine, in about a minute. Flag names are those of ms-swift."""
_EXAMPLES = f"""\
examples:
  the demo, on two CPU ranks:
    {_LAUNCH}

  a real model with LoRA on eight GPUs:
    python -m torch.distributed.run --nproc_per_node 8 -m grpo_doctor_trainer \\
      --model Qwen/Qwen2.5-7B-Instruct --dataset math.jsonl --deepspeed zero2 --use_vllm true

  your own reward; def brevity(completions, **columns): return [-len(c) for c in completions]
    {_LAUNCH} \\
      --reward_funcs accuracy rewards.py:brevity --reward_weights 1 0.01
"""
_REMOVED = {
    "overlap_sync": "weights go to vLLM's own server in files; leave it out",
    "overlap_rewards": "make functions async, or raise --reward_num_workers",
    "report_to": "metrics.jsonl of a recorded run has every number; its report draws them",
    "run_name": "it named the run in --report_to, which is gone; leave it out",
    "logging_dir": "it was of --report_to, which is gone; leave it out",
    "on_bad_image": "an image that cannot be read stops the run; remove its row from the dataset",
    "ds3_gather_for_generation": "ZeRO-3 gathers all weights once per rollout; where that does not "
    "fit, --use_vllm true generates",
    "group_by_length": "--share_prompts true, the default, which leaves no padding",
    "vllm_tensor_parallel_size": "--vllm_mode server, whose command takes --tensor-parallel-size",
    "eval_steps": "a run with --model CHECKPOINT --dataset HELD_OUT --learning_rate 0 evaluates",
    "val_dataset": "a run with --model CHECKPOINT --dataset HELD_OUT --learning_rate 0 evaluates",
    "vllm_enable_lora": "adapters are merged into what vLLM gets; leave it out",
    "vllm_max_lora_rank": "adapters are merged into what vLLM gets; leave it out",
}
"""Flags of earlier versions, and what replaces them."""


def parse(arguments: Sequence[str], world_size: int) -> TrainerConfig:
    """Turn the trainer's command line into a checked configuration."""
    values = build_parser().given(arguments)
    values.pop("local_rank", None)
    config = TrainerConfig(**with_defaults(values))
    validate(config, world_size)
    return config


def with_defaults(flags: dict[str, Any]) -> dict[str, Any]:
    """Add what was not given and is not the same for every run."""
    # `--reward_weights none`, as for options of one value.
    values = {name: [] if value == [_NONE] else value for name, value in flags.items()}
    if values.get("model") in {None, EMBEDDED_VL}:
        embedded = {o.name: o.metadata["embedded"] for o in dataclasses.fields(TrainerConfig)}
        values = {name: value for name, value in embedded.items() if value is not None} | values
    if not values.get("reward_funcs"):
        generated = not values.get("dataset")
        values["reward_funcs"] = ["accuracy", "arithmetic"] if generated else ["accuracy"]
    return values


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `ConfigError`s; absent flags leave no attribute."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError` instead of ending the process."""
        raise ConfigError(message.removeprefix("argument "))

    def given(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the values of the flags that are there."""
        values, unknown = self.parse_known_args(list(arguments))
        if unknown:
            raise ConfigError(_unknown_message(unknown[0]))
        return vars(values)


def build_parser() -> Parser:
    """Build the trainer's parser; absent flags leave no attribute."""
    parser = Parser(
        prog=_PROGRAM,
        usage=f"python -m {_PROGRAM} [--flag value ...]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=_help_layout,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
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
    parts = [part for part in typing.get_args(hint) if part is not type(None)] or [hint]
    kind, many = parts[0], typing.get_origin(hint) is list
    choices = option.metadata["choices"]
    keywords: dict[str, Any] = {
        "help": _help(option),
        "type": _converter(option, kind, optional=hint == kind | None),
        "metavar": "{" + ",".join(choices) + "}" if choices else _METAVARS[kind],
    }
    if many:
        keywords["nargs"] = "+"
    elif kind is bool:
        keywords.update(nargs="?", const=True)
    return keywords


def _converter(
    option: dataclasses.Field[Any], kind: type, *, optional: bool
) -> Callable[[str], Any]:
    choices, reason = option.metadata["choices"], option.metadata["reason"]
    allowed: Any = typing.Literal[choices] if choices else kind
    if kind in {int, float}:
        allowed = typing.Annotated[kind, option.metadata["limits"]]

    def convert(text: str) -> Any:
        if optional and text.lower() == _NONE:
            return None
        try:
            value = msgspec.convert(_WORDS.get(text.lower(), text), allowed, strict=False)
        except msgspec.ValidationError as error:
            needed = f"one of {', '.join(choices)}" if choices else _needed(error)
            close = difflib.get_close_matches(text, choices, n=1)
            hint = f": {reason}" if reason else f"; did you mean {close[0]}?" if close else ""
            raise argparse.ArgumentTypeError(f"expected {needed}, got {text!r}{hint}") from None
        if kind is float and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"expected a finite number, got {text!r}")
        return value

    return convert


def _needed(error: msgspec.ValidationError) -> str:
    expected = str(error).removeprefix("Expected ").partition(", got")[0]
    return expected.replace("`", "").replace("bool", "true or false")


def _help(option: dataclasses.Field[Any]) -> str:
    default, embedded = option.default, option.metadata["embedded"]
    text, _, meaning = option.metadata["help"].partition("; none: ")
    if not meaning:  # of no value, if it has a meaning of its own
        meaning = _NONE if default in {dataclasses.MISSING, None} else _spelled(default)
    if embedded is not None:
        meaning = f"{meaning}; {_spelled(embedded)} with the embedded model"
    return f"{text} (default: {meaning})".replace("%", "%%")


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _help_layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=100)


def _unknown_message(argument: str) -> str:
    if not argument.startswith("-"):
        return f"{argument!r} does not belong to a flag; see --help"
    name = argument.lstrip("-").split("=", 1)[0]
    if name in _REMOVED:
        return f"--{name} is gone: {_REMOVED[name]}"
    names = [option.name for option in dataclasses.fields(TrainerConfig)]
    close = difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=0.5)
    hint = f"did you mean --{close[0]}?" if close else "see --help for all flags"
    return f"unknown flag --{name}: {hint}"


def main() -> int:
    """Check the command line of this process; returns the exit code."""
    try:
        parse(sys.argv[1:], int(os.environ.get("WORLD_SIZE", "1")))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - a command
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
