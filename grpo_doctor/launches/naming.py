"""Options that a framework's version does not take: what they are called now, or what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from grpo_doctor import knobs
from grpo_doctor.knobs.option_lists import OptionList, option_list
from grpo_doctor.knobs.tables import RENAMED
from grpo_doctor.launches.flags import Option
from grpo_doctor.launches.model import Problem
from grpo_doctor.launches.programs import Program
from grpo_doctor.launches.raw_settings import RawSettings
from grpo_doctor.launches.tables import TABLES

# Options that a command takes in addition to those of its dataclasses.
_BESIDE: Mapping[str, str] = TABLES["options"]["next to the listed"]
# Where the new option takes another kind of value.
_OTHER_VALUES = frozenset({"vllm_mode"})
_OF_A_VERSION = ("renamed-flag", "removed-flag", "newer-flag")
_KEYS_OF_A_FORK = 3  # who mistypes does so once or twice
Known = Literal["stated", "read", "assumed"]
"""Where a version is from: the user, a copy of the framework in the folder, or its options."""
_OLDER = ("verl", "openrlhf")  # their GRPO is older than the first version that was read
_TYPED_WRONG = 0.9
_OPEN = ("hydra.", "ray_kwargs.", "ray_init.", "actor_rollout_ref.model.override_config.")
# `--no_x` is for booleans that are true by default; argparse takes any beginning that is one's own.
_ABBREVIATES = ("ms-swift", "trl", "openrlhf")


def check(
    raw: RawSettings, program: Program, version: str | None, known: Known
) -> Iterator[Problem]:
    """A problem for each option on the command line that this version refuses; of a version that
    not given, only what no version takes ends the launch."""
    listed = option_list(program.listed) if program.listed else None
    if listed is None or raw.own_config:
        return
    problems = list(_refusals(listed, raw, program, version))
    strange = sum(problem.kind == "unknown-flag" for problem in problems)
    fork = program.framework in _OLDER and strange >= _KEYS_OF_A_FORK
    ignored = str(raw.values.get("ignore_args_error")).lower() == "true"
    for problem in problems:
        if ignored and problem.kind == "unknown-flag":
            text = f"{problem.text}; --ignore_args_error true lets it pass"
            yield replace(problem, text=text, ends=False)
        elif fork and problem.kind == "unknown-flag":
            text = f"{problem.text} (or is it a fork of {program.framework}?)"
            yield replace(problem, text=text, fix=f"none in a fork, else {problem.fix}", ends=False)
        elif known == "assumed" and program.framework in _OLDER and _is_strange(problem):
            span = f"no version from {listed.read[0]} to {listed.read[-1]} has it"
            yield replace(
                problem, text=f"{problem.text} ({span}: an older one, a fork?)", ends=False
            )
        elif known != "stated" and problem.kind in _OF_A_VERSION:
            text = f"{problem.text}; no known version accepts all of these options"
            yield replace(problem, text=text, ends=False)
        else:
            yield problem


def _is_strange(problem: Problem) -> bool:
    """Return whether no version has the option, nor one with a similar name."""
    if problem.kind != "unknown-flag" or problem.source is None:
        return False
    names = (text.split("=")[0].split()[0] for text in (problem.source.text, problem.fix))
    given, fix = (name.lstrip("+-").rpartition(".") for name in names)
    alike = difflib.SequenceMatcher(None, given[2], fix[2]).ratio() >= _TYPED_WRONG
    return given == fix or not alike  # the same name: as a new key, with +


def _refusals(
    listed: OptionList, raw: RawSettings, program: Program, version: str | None
) -> Iterator[Problem]:
    for name, option in raw.names.items():
        if name in _BESIDE.get(program.framework, "").split() or name.startswith("__"):
            continue
        if program.framework == "verl":
            yield from _override(listed, option, version, raw)
        elif not _takes(listed, program.framework, name, version):
            yield _refused(listed, program, option, version, raw.names)


def _takes(listed: OptionList, framework: str, name: str, version: str | None) -> bool:
    if listed.takes(name, version) or listed.takes(name.removeprefix("no_"), version):
        return True
    if of_older_library(framework, name):
        return True
    if framework not in _ABBREVIATES:
        return False
    completions = [full for full in listed.ranges if full.startswith(name)]
    return sum(listed.takes(full, version) for full in completions) == 1


def of_older_library(framework: str, name: str) -> bool:
    """Return whether transformers 4 takes the option: which one is installed is not known here."""
    older = option_list("transformers4") if framework in ("ms-swift", "trl") else None
    return older is not None and older.ever(name)


def _refused(
    listed: OptionList, program: Program, option: Option, version: str | None, given: Container[str]
) -> Problem:
    name, shown = option.name, f"--{option.name}"
    owner = f"{program.framework} {version or listed.read[-1]}"
    new = _renamed(listed, program, name, version)
    if new is not None:
        text = f"{shown} is --{new} in {owner}"
        value = "" if new in _OTHER_VALUES else f" {option.source.text.partition(' ')[2]}"
        return Problem("renamed-flag", text, f"--{new}{value}", option.source, ends=True)
    if (removed := listed.removed_in(name, version)) is not None:
        text = f"{shown} is gone since {program.framework} {removed}"
        return Problem("removed-flag", text, f"remove {shown}", option.source, ends=True)
    if (added := listed.added_in(name, version)) is not None:
        text = f"{shown} came with {program.framework} {added}; {owner} refuses it"
        fix = f"remove {shown}, or use {program.framework} {added}"
        return Problem("newer-flag", text, fix, option.source, ends=True)
    nearest = listed.nearest(name, version)
    nearest = None if nearest in given else nearest
    fix = f"--{nearest}" if nearest else f"remove {shown}"
    hint = f"; did you mean --{nearest}?" if nearest else ""
    strict = program.framework not in ("vllm", "sglang")  # of these one version alone was read
    text = f"{owner} has no {shown}{hint}"
    return Problem("unknown-flag", text, fix, option.source, ends=strict)


def _renamed(listed: OptionList, program: Program, name: str, version: str | None) -> str | None:
    """What this version calls the option: by the table of settings, else by the list of renames."""
    rows = knobs.TABLES[program.table]
    number = listed.version(version)
    for old in (row for row in rows if row.key == name):
        for row in rows:
            if row.knob == old.knob and row.covers(number) and row.key != name:
                return row.key
    new = RENAMED[program.table].get(name) or RENAMED[program.framework].get(name)
    return new if new is not None and listed.takes(new, version) else None


def _override(
    listed: OptionList, option: Option, version: str | None, raw: RawSettings
) -> Iterator[Problem]:
    """Nothing is proposed that the launch sets already."""
    name, sign = option.name, option.sign
    if sign == "++" or "@" in name or name.startswith(_OPEN) or name == "model_engine":
        return
    exists = listed.takes(name, version) or name in raw.copied
    owner = f"verl {version or listed.read[-1]}"
    if sign == "+":
        # Hydra lets + set a key that is null or missing.
        knobs_of = [row.knob for row in knobs.TABLES["verl"] if row.key == name]
        known = [knobs.default("verl", version, knob) for knob in knobs_of]
        if exists and any(value is not None for value in known):
            text = f"{owner} has {name} already, and Hydra refuses to add it again"
            yield Problem("contradiction", text, f"{name}={option.value}", option.source, ends=True)
        return
    if exists:
        return
    new = _renamed(listed, _VERL, name, version)
    if new is not None:
        text = f"{name} is {new} in {owner}"
        yield Problem("renamed-flag", text, f"{new}={option.value}", option.source, ends=True)
        return
    if (removed := listed.removed_in(name, version)) is not None:
        text = f"{name} is gone since verl {removed}"
        yield Problem("removed-flag", text, f"remove {name}", option.source, ends=True)
    elif (added := listed.added_in(name, version)) is not None:
        text = f"{name} came with verl {added}; {owner} has no such key"
        fix = f"remove {name}, or use verl {added}"
        yield Problem("newer-flag", text, fix, option.source, ends=True)
    elif (
        sibling := listed.nearest_sibling(name, version)
    ) is not None and sibling not in raw.names:
        text = f"{owner} has no {name}; did you mean {sibling}?"
        yield Problem("unknown-flag", text, f"{sibling}={option.value}", option.source, ends=True)
    else:
        text = f"{owner} has no {name}: Hydra takes a new key with + alone"
        fix = f"+{name}={option.value}"
        yield Problem("unknown-flag", text, fix, option.source, ends=True)


_VERL = Program("verl", "train", "verl", "verl", ())
