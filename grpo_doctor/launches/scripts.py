"""Which framework a Python program is of, and what it trains: by its name, its options and what
its source imports and calls. It is parsed, never imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor.launches.files import tree_of
from grpo_doctor.launches.model import Framework, Trainer
from grpo_doctor.launches.tables import TABLES
from grpo_doctor.launches.words import Word

_TABLE = TABLES["scripts"]
# A script that imports several is of the first: Unsloth replaces TRL, SkyRL's examples use others.
_BY_MODULE: Mapping[str, Framework] = _TABLE["modules"]
_BY_NAME: list[tuple[str, Framework]] = _TABLE["names"]
# Options that no other framework has: copies of its programs keep them.
_BY_OPTION: list[tuple[str, Framework]] = _TABLE["options"]
_PRIME_RL = frozenset({"rl", "trainer", "orchestrator"})
_TRAINERS: Mapping[str, Trainer] = _TABLE["trainers"]
_PPO_OF_VERL = {"RayPPOTrainer", "run_ppo", "TaskRunner", "main_ppo", "core_algos"}
_OF_TRL = re.compile(
    r"(?:Async)?(GRPO|RLOO|SFT|OnlineDPO|DPO|KTO|ORPO|CPO|PPO|GKD|Reward)(?:Trainer|Config)"
)
_TRAINER = re.compile(rf"\w*?{_OF_TRL.pattern}")


@dataclass(frozen=True, slots=True)
class Script:
    """What a program is, as far as its source says it."""

    framework: Framework
    trainer: Trainer = "unknown"


def by_name(name: str, words: Sequence[Word]) -> Framework | None:
    """A framework that is recognized by what its program or module is called, or by options that
    no other one has."""
    for pattern, framework in _BY_OPTION:
        if any(re.match(pattern, word.text) for word in words):
            return framework
    if name in _PRIME_RL and words and words[0].text.startswith("@"):
        return "prime-rl"
    return next((framework for pattern, framework in _BY_NAME if re.search(pattern, name)), None)


def by_source(path: Path) -> Script | None:
    """Return what the source at `path` says; None where it can't be read."""
    tree = tree_of(path)
    if tree is None:
        return None
    imported = dict(_imported(tree))
    used = {*imported, *_used(tree)}
    modules = set(imported.values())
    if "trl" in modules and any(_is_own(name, module) for name, module in imported.items()):
        return Script("trl", "own")
    trainers = [_TRAINERS[match[1]] for name in used if (match := _TRAINER.fullmatch(name))]
    first: Trainer = min(trainers, default="unknown")
    trainer: Trainer = "grpo" if "grpo" in trainers else first
    framework = next((_BY_MODULE[name] for name in _BY_MODULE if name in modules), None)
    if framework is None and "hydra" in modules and _PPO_OF_VERL & set(imported):
        framework = "verl"
    made = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    if framework is None and any(_OF_TRL.fullmatch(n) for n in used - imported.keys() - made):
        framework = "trl"  # `from trl import *` under another name
    return Script(framework or "unknown", trainer)


def _is_own(name: str, module: str) -> bool:
    """Whether it is a GRPO trainer that is neither TRL's nor that of a library on top of it."""
    return name.endswith("GRPOTrainer") and module not in _BY_MODULE


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each imported name with the package that it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            package = "" if node.level else (node.module or "").partition(".")[0]
            for alias in node.names:
                yield alias.name, package


def _used(tree: ast.Module) -> Iterator[str]:
    """Yield the last names of all that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute):
                yield called.attr
            elif isinstance(called, ast.Name):
                yield called.id
