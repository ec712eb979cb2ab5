"""The files of the user's own that a launch names: data, plugins, rewards, models."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor.launches.files import located, resolved
from grpo_doctor.launches.model import Launch, Source
from grpo_doctor.launches.tables import TABLES

_DATA = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".txt")
_OPTIONS: Mapping[str, list[str]] = TABLES["inputs"]["files"]
_CODE = ("external_plugins", "custom_register_path", "agent_func_path")
# `hf::path:subset#500` of ms-swift, `path@folder` of OpenRLHF; both are about what is in the path.
_AROUND = re.compile(r"^(?:hf|ms)::|#\d+$|:[\w/]+$|@.*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A path that an option gives, and where that is on this machine."""

    option: str
    text: str
    path: Path
    source: Source | None


def local_files(launch: Launch) -> Iterator[LocalFile]:
    """Every path that is one for certain: names on a hub, addresses and unset variables are not."""
    unset = {problem.source for problem in launch.problems if problem.kind == "unset-variable"}
    for option in _OPTIONS.get(launch.framework, ()):
        source = launch.option_sources.get(option)
        for text in texts(launch.options.get(option)) if source not in unset else ():
            bare = _AROUND.sub("", text)
            code = option.endswith(_CODE) or text.endswith(".py")
            local = code or bare.startswith(("/", "./", "../", "~")) or bare.endswith(_DATA)
            if local and "://" not in text and not set(text) & set("$*{"):
                place = located(bare, launch.folder, source or Source(""))
                exact = resolved(launch.folder, text)
                yield LocalFile(option, bare, exact if exact.exists() else place, source)


def texts(value: Any) -> list[str]:
    """Return the words of an option: several words, a list as Hydra takes it, or commas."""
    if isinstance(value, (list, tuple)):
        return [part for entry in value for part in texts(entry)]
    if not isinstance(value, str):
        return []
    return [part for part in re.split(r"[\s,'\"\[\]]+", value) if part]


def top_level_names(tree: ast.Module) -> set[str] | None:
    """Return the names that a file defines for importers; None if only running it shows them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("globals", "setattr"):
            return None
    return None if "*" in names else names


def registered(tree: ast.Module, table: str) -> set[str] | None:
    """The keys that `table['x'] = ...` adds; None where some can't be read, or none is there."""
    keys: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(table):
            if isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant):
                keys.add(str(node.slice.value))
            elif isinstance(node.ctx, ast.Store):
                return None
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(f"{table}.update"):
            return None
    return keys or None
