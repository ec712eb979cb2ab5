"""What a wheel's own source says of its options: read as syntax and as YAML, never imported."""

from __future__ import annotations

import ast
import importlib.util
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

UNKNOWN: Final = object()
"""The default of an option whose default is made when the program runs."""
_STATED = ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.UnaryOp


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `switch` where it takes no value, `takes` is its annotation or type, as text."""

    name: str
    default: Any
    switch: bool = False
    takes: str = ""
    choices: tuple[Any, ...] = ()


Options = dict[str, Option]


def sources(wheel: Path) -> dict[str, str]:
    """Path in the package to text, of a wheel's Python and YAML files."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            re.sub(r"^[^/]+\.data/purelib/", "", name): archive.read(name).decode("utf-8")
            for name in archive.namelist()
            if name.endswith((".py", ".yaml"))
        }


def _literal(node: ast.expr | None) -> Any:
    if isinstance(node, _STATED):
        try:
            return ast.literal_eval(node)
        except ValueError:
            return UNKNOWN
    return UNKNOWN


# -- dataclasses: TRL, ms-swift, transformers, vLLM


_THEIRS = "transformers."


@dataclass(frozen=True, slots=True)
class _Class:
    """A class and the names of its bases, those of transformers with its name before theirs."""

    node: ast.ClassDef
    bases: tuple[str, ...]


def _classes(files: Mapping[str, str], prefix: str = "") -> dict[str, _Class]:
    classes: dict[str, _Class] = {}
    for text in files.values():
        tree = ast.parse(text)
        imported = dict(_imports(tree))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                bases = tuple(imported.get(name, prefix + name) for name in names)
                classes.setdefault(prefix + node.name, _Class(node, bases))
    return classes


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            theirs = (node.module or "").split(".")[0] == "transformers"
            for name in node.names:
                yield name.asname or name.name, _THEIRS * theirs + name.name


def fields_of(classes: Mapping[str, _Class], root: str) -> Options:
    """The dataclass fields of a class and its bases, nearest first as Python resolves them."""
    options: Options = {}
    for base in _linear(classes, root):
        for field in _own_fields(classes[base].node):
            options.setdefault(field.name, field)
    return options


def fields_in(source: str, name: str) -> Options:
    """The dataclass fields of one class in one file."""
    return fields_of(_classes({"": source}), name)


def _linear(classes: Mapping[str, _Class], root: str) -> list[str]:
    """Depth first, each class at its last place: the method order of every class met here."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in classes:
            return
        if name in order:
            order.remove(name)
        order.append(name)
        for base in classes[name].bases:
            visit(base)

    visit(root)
    return order


def _own_fields(node: ast.ClassDef) -> Iterator[Option]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield Option(
                line.target.id, _field_default(line.value), takes=ast.unparse(line.annotation)
            )


def _field_default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):
        stated = {word.arg: word.value for word in value.keywords}
        return _literal(stated.get("default"))
    return _literal(value)


_TRL = re.compile(r"^trl/(trainer/(grpo|base|model)_config|scripts/utils|trainer/utils|utils)\.py$")
_SWIFT = re.compile(
    r"^swift/(llm/argument|arguments|trainers|rlhf_trainers|utils|tuners|plugin|ray_utils)/"
)


def _trl(files: Mapping[str, str]) -> Options:
    own = {path: text for path, text in files.items() if _TRL.match(path)}
    classes = {**transformers_classes(), **_classes(own)}
    parts = ("GRPOConfig", "ModelConfig", "ScriptArguments")  # what `trl grpo` parses
    return {
        name: field for part in reversed(parts) for name, field in fields_of(classes, part).items()
    }


def _swift(files: Mapping[str, str]) -> Options:
    return fields_of({**transformers_classes(), **_classes(_swift_files(files))}, "RLHFArguments")


def _swift_server(files: Mapping[str, str]) -> Options:
    return fields_of(_classes(_swift_files(files)), "RolloutArguments")


def _swift_files(files: Mapping[str, str]) -> dict[str, str]:
    return {
        path: text
        for path, text in files.items()
        if path.endswith(".py") and _SWIFT.match(path) and "megatron" not in path
    }


# -- argparse: OpenRLHF


def _openrlhf(files: Mapping[str, str]) -> Options:
    options: Options = {}
    for node in ast.walk(ast.parse(files["openrlhf/cli/train_ppo_ray.py"])):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "add_argument":
            continue
        words = {word.arg: word.value for word in node.keywords}
        action = _literal(words.get("action"))
        default: Any = False if action == "store_true" else None
        default = True if action == "store_false" else default
        if "default" in words:
            default = _literal(words["default"])
        for flag in node.args:
            name = _flag(flag)
            options[name] = Option(
                name,
                default,
                switch=isinstance(action, str) and action.startswith("store_"),
                takes=ast.unparse(words["type"]) if "type" in words else "str",
                choices=tuple(_literal(words["choices"])) if "choices" in words else (),
            )
    return options


def _flag(node: ast.expr) -> str:
    """`--{prefix}.adam.lr` is said once for the actor and once for the critic: the actor's."""
    if isinstance(node, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else "actor" for p in node.values]
        return "".join(str(part) for part in parts)[2:]
    return str(_literal(node))[2:]


# -- Hydra: verl


def _verl(files: Mapping[str, str]) -> Options:
    folder = "verl/trainer/config/"
    text = files.get(folder + "_generated_ppo_trainer.yaml") or files[folder + "ppo_trainer.yaml"]
    return {name: Option(name, value) for name, value in _leaves("", yaml.safe_load(text))}


def _leaves(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if path:
        yield path, UNKNOWN if isinstance(node, str) and "${" in node else node
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), value)


READERS: dict[str, Callable[[Mapping[str, str]], Options]] = {
    "trl": _trl,
    "ms-swift": _swift,
    "ms-swift server": _swift_server,
    "openrlhf": _openrlhf,
    "verl": _verl,
}


@cache
def transformers_classes() -> dict[str, _Class]:
    """The training arguments of the installed transformers, which TRL and ms-swift inherit.

    Found without an import, which takes seconds.
    """
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    names = ("training_args.py", "training_args_seq2seq.py")
    files = {name: (root / name).read_text(encoding="utf-8") for name in names}
    return _classes(files, _THEIRS)


def options_of(framework: str, wheel: Path) -> Options:
    """All options that a training job of this wheel takes, by name."""
    return READERS[framework](sources(wheel))
