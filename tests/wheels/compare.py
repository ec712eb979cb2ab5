"""The table of knobs against the options that a version of a framework really has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Spelling, Version, version_of
from grpo_doctor.knobs.tables import BY_NAME
from grpo_doctor.knobs.values import ours
from tests.wheels.definitions import UNKNOWN, Option, Options

# Options that are there before or after the versions in which they mean this knob.
OTHER_MEANING = {
    ("trl", "use_liger_kernel"): "before 0.25 it changes the model, not the loss",
    ("trl", "use_liger_loss"): "0.25 to 0.27 take it and name use_liger_kernel instead",
    ("trl", "vllm_importance_sampling_cap"): "1.6 and later take it and name _clip_max instead",
    ("ms-swift", "use_liger_kernel"): "before 3.5 it changes the model, not the loss",
    ("ms-swift", "tensor_parallel_size"): "3.5 to 3.9 know it as another command's option",
    ("ms-swift", "train_type"): "4.0 takes it and names tuner_type instead",
    ("verl", "actor_rollout_ref.actor.grad_clip"): "no engine reads it from 0.8 on",
    ("verl", "actor_rollout_ref.actor.optim.clip_grad"): "0.6 and 0.7 read the actor's own key",
    ("verl", "actor_rollout_ref.actor.optim.warmup_style"): "0.6 and later name lr_scheduler_type",
    ("verl", "actor_rollout_ref.actor.policy_loss.loss_mode"): "0.5 has no gspo",
    ("verl", "algorithm.filter_groups.enable"): "0.9.0 needs a metric that only the user knows",
    ("verl", "reward_model.num_workers"): "0.8 and later keep it for old configurations",
    ("trl", "torch_dtype"): "0.23 to 0.27 take it and name dtype instead",
    ("openrlhf", "max_len"): "before 0.9.8 it is for other commands",
    ("openrlhf", "vllm_is_truncated_threshold"): "one number in 0.9, two from 0.10 on",
}
_SWITCHES = {"openrlhf"}
_TYPES = {"bool": "bool", "int": "int|float", "float": "float", "str": "", "words": ""}


def mismatches(framework: str, version: str, options: Options) -> Iterator[str]:
    """What the table says and this version does not, one sentence each."""
    parsed = version_of(version)
    assert parsed is not None
    rows = knobs.FRAMEWORKS[framework]
    valid = [row for row in rows if row.covers(parsed)]
    for row in valid:
        yield from (
            f"{framework} {version}: {text}" for text in _row(framework, row, parsed, options)
        )
    keys = {key for row in valid for key in keys_of(row)}
    for row in rows:
        if row.key not in keys and row.key in options and (framework, row.key) not in OTHER_MEANING:
            yield f"{framework} {version}: {row.key} exists outside its versions ({row.knob})"


def keys_of(row: Spelling) -> Sequence[str]:
    """Every name that a printed setting may hold."""
    gate = (row.gate.key,) if row.gate else ()
    return (row.key, *gate, *row.beside)


def _row(framework: str, row: Spelling, version: Version, options: Options) -> Iterator[str]:
    for key in keys_of(row):
        if (key in options) == row.new:
            yield f"{key} {'exists already' if row.new else 'does not exist'} ({row.knob})"
            return
    if row.new:
        return
    option = options[row.key]
    if row.gate is not None:
        if options[row.gate.key].default is not row.gate.on:
            yield f"{row.gate.key} defaults to {options[row.gate.key].default} ({row.knob})"
        yield from _default(row, row.gate.value, option)
    elif row.inside is None:
        yield from _default(row, row.default_in(version), option)
    if framework in _SWITCHES and option.switch != _is_switch(row):
        yield f"{row.key} is {'a' if option.switch else 'no'} switch ({row.knob})"
    yield from _takes(row, option)


def _is_switch(row: Spelling) -> bool:
    if row.values:
        return all(isinstance(text, bool) for _, text in row.values)
    return BY_NAME[row.knob].kind == "bool"


def _default(row: Spelling, expected: Any, option: Option) -> Iterator[str]:
    """None in the source is a default made at start, which the table may know."""
    raw = option.default
    if raw is UNKNOWN or raw is None or raw in ("???", []):
        return
    default = ours(row, BY_NAME[row.knob].kind, raw)
    if default != expected:
        yield f"{row.key} defaults to {default!r}, not {expected!r} ({row.knob})"


def _takes(row: Spelling, option: Option) -> Iterator[str]:
    """Whether the values that would be written are of the option's type and among its choices."""
    allowed = option.choices or tuple(_literals(option.takes))
    for _, text in row.values:
        if allowed and text not in allowed and not isinstance(text, bool):
            yield f"{row.key} takes {allowed}, not {text!r} ({row.knob})"
    kind = _TYPES[BY_NAME[row.knob].kind]
    if row.values or row.inside or option.switch or not option.takes or not kind:
        return
    if not re.search(rf"\b({kind})\b", option.takes):
        yield f"{row.key} takes {option.takes}, not {BY_NAME[row.knob].kind} ({row.knob})"


def _literals(annotation: str) -> Iterator[Any]:
    """The texts of a `Literal[...]`, and of nothing else."""
    if "Literal" in annotation and "str" not in annotation.replace("'str'", ""):
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Constant):
                yield node.value
