"""The files that a launch names: YAML and JSON with the line of each key, and Python as syntax."""

from __future__ import annotations

import ast
import functools
import json
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_doctor.bounded import JSON, PYTHON, SCRIPT, nests_deeper
from grpo_doctor.launches.conditions import negated
from grpo_doctor.launches.model import Source

# Calls whose keyword arguments are a run's settings, by the end of their name.
_CONFIGS = ("GRPOConfig", "RLOOConfig", "LoraConfig")
BY_TRANSFORMERS = "default"
"""The dtype of a model that a script loads itself without naming one."""
_DTYPES = ("auto", "bfloat16", "float16", "float32")
_LORA = {"r": "lora_r", "target_modules": "lora_target_modules"}
NO_YAML = "reading YAML needs PyYAML: pip install pyyaml"


class UnreadableFileError(Exception):
    """A file that a launch names and that can't be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A file's keys and values, and the line of each key, dotted where it lies deeper."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    computed: tuple[str, ...] = ()
    """Settings that a script gives by something other than a literal; `**` where it unpacks
    them."""
    said: Mapping[str, Source] = field(default_factory=dict)
    """Keys that the command line sets."""

    def source(self, key: str) -> Source:
        """Return where a key stands."""
        if key in self.said:
            return self.said[key]
        value = self.values.get(key)
        return Source(f"{key}: {value}", file=self.path, line=self.lines.get(key))


def resolved(cwd: Path, path: str) -> Path:
    """Return a path as the launch gives it, from the folder that it would be started in."""
    try:
        return cwd / Path(path).expanduser()
    except RuntimeError:  # `~name`, and there is nobody of that name
        return cwd / path


def located(path: str, cwd: Path, source: Source) -> Path:
    """Where a file is: in the folder of the launch, else in that of the script that names it or
    above, since many scripts are started from the top of their repository."""
    target = resolved(cwd, path)
    if target.exists() or source.file is None:
        return target
    above = (cwd / source.file).resolve().parents
    return next((folder / path for folder in above if (folder / path).is_file()), target)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        UnreadableFileError: it can't be read, or is too long to be a configuration.
    """
    try:
        # What is in a pipe is for the job to read, and opening one lets its writer go on.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableFileError(f"{path} is not a regular file: not read")
        with path.open("rb") as file:
            content = file.read(SCRIPT.bytes + 1)
    except OSError as problem:
        raise UnreadableFileError(f"{path}: {problem.strerror}") from problem
    if len(content) > SCRIPT.bytes:
        raise UnreadableFileError(f"{path} is larger than {SCRIPT.bytes >> 20} MiB")
    return content.decode("utf-8", "replace")


def tree_of(path: Path | None) -> ast.Module | None:
    """Return a Python file as syntax; None where it can't be read or is not Python."""
    try:
        return parsed(read_text(path), str(path)) if path is not None else None
    except UnreadableFileError:
        return None


@functools.lru_cache(maxsize=4)
def parsed(text: str, shown: str) -> ast.Module:
    """Python as syntax that is shallow enough to be walked and printed.

    Raises:
        UnreadableFileError: it is not Python, or larger or deeper than any script.
    """
    if len(text) > PYTHON.bytes:
        raise UnreadableFileError(f"{shown} is larger than {PYTHON.bytes >> 10} KiB")
    try:
        tree = ast.parse(text)
    except (RecursionError, MemoryError) as problem:  # the parser's own stack
        raise UnreadableFileError(_too_deep(shown, PYTHON.depth)) from problem
    except (SyntaxError, ValueError) as problem:
        raise UnreadableFileError(f"{shown} is not valid Python: {problem}") from problem
    if _expressions_nest_deeper(tree, PYTHON.depth):
        raise UnreadableFileError(_too_deep(shown, PYTHON.depth))
    return tree


def _expressions_nest_deeper(tree: ast.Module, depth: int) -> bool:
    nodes: list[ast.AST] = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for _ in range(depth):
        inner = (child for node in nodes for child in ast.iter_child_nodes(node))
        nodes = [child for child in inner if not isinstance(child, ast.stmt)]
        if not nodes:
            return False
    return True


def _too_deep(shown: str, depth: int) -> str:
    return f"{shown} nests more than {depth} levels: not read"


def json_object(text: str) -> dict[str, Any]:
    """Return what JSON says that stands on a command line; empty where it is not an object."""
    try:
        content = json.loads(text[: JSON.bytes])
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and not nests_deeper(content, JSON.depth) else {}


def read_mapping(path: Path, shown: str, text: str | None = None) -> Contents:
    """A YAML or JSON file that holds keys and values; `shown` is its name for the user, `text` what
    is in it where a script writes it.

    Raises:
        UnreadableFileError: it can't be read, is damaged, or is not a mapping.
    """
    text = read_text(path) if text is None else text
    if path.suffix == ".json":
        try:
            content, lines = json.loads(text), _json_lines(text)
        except ValueError as problem:
            raise UnreadableFileError(f"{shown} is not valid JSON: {problem}") from problem
        except RecursionError as problem:
            raise UnreadableFileError(_too_deep(shown, JSON.depth)) from problem
        if nests_deeper(content, JSON.depth):
            raise UnreadableFileError(_too_deep(shown, JSON.depth))
    else:
        content, lines = _yaml(text, shown)
    if not isinstance(content, dict):
        raise UnreadableFileError(f"{shown} has no keys and values")
    return Contents(shown, {str(key): value for key, value in content.items()}, lines)


def _yaml(text: str, shown: str) -> tuple[Any, dict[str, int]]:
    try:
        # It needs PyYAML, which training images have and the base install has not.
        from grpo_doctor.launches.yaml_text import read_yaml  # noqa: PLC0415
    except ImportError as missing:
        raise UnreadableFileError(f"{shown}: {NO_YAML}") from missing
    try:
        return read_yaml(text)
    except (ValueError, RecursionError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise UnreadableFileError(f"{shown} is not valid YAML: {reason}") from problem


def _json_lines(text: str) -> dict[str, int]:
    """Return the line of each key by its last name alone: enough to point to."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, colon, _ = line.strip().partition(":")
        if colon and key.startswith('"') and key.rstrip().endswith('"'):
            lines.setdefault(key.strip().strip('"'), number)
    return lines


def read_python(path: Path, shown: str, given: Mapping[str, Any]) -> Contents:
    """The literal arguments of `GRPOConfig(...)` and the like in a script, which is never run.

    Args:
        path: of the script.
        shown: the same, for people.
        given: options of its command, for a script with an `argparse` of its own.

    Raises:
        UnreadableFileError: it can't be read or is not Python.
    """
    tree = parsed(read_text(path), shown)
    constants = {**_constants(tree), **_arguments(tree, given)}
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    computed: list[str] = []
    made = False
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name not in _CONFIGS:
            continue
        made = made or name != "LoraConfig"
        keywords = _LORA if name == "LoraConfig" else {}
        if name == "LoraConfig":
            values["use_peft"], lines["use_peft"] = True, node.lineno
        for word in node.keywords:
            value, key = _literal(word.value, constants), word.arg or "**"
            key = keywords.get(key, key)
            if word.arg and value is not None:
                values[key], lines[key] = value, word.value.lineno
            elif not isinstance(word.value, ast.Constant):
                computed.append(key)
    values.update(_model_of_trainer(tree, constants, lines))
    source = ast.unparse(tree)
    said = {**(dict.fromkeys(_BITS, False) if "ModelConfig" in source else {}), **given}
    truth = functools.partial(_truth, constants=constants, given=said)
    computed += _take_quantization(tree, values, truth, "quantization_config" in source)
    if not made and "Parser" not in source:
        computed.append("**")
    return Contents(shown, values, lines, tuple(computed))


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return names that are set once, to a literal."""
    constants: dict[str, Any] = {}
    often: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                often |= {target.id} & constants.keys()
                constants[target.id] = _literal(node.value, {})
    return {name: value for name, value in constants.items() if name not in often}


_TYPES = {"int": int, "float": float, "str": str}


def _arguments(tree: ast.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `args.name` of a script's argparse: what its command gives, else a literal default."""
    names, arguments = {"args"}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith("parse_args()"):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument")):
            continue
        words = {word.arg: word.value for word in node.keywords}
        options = (str(_literal(argument, {})) for argument in node.args)
        option = next((text[2:] for text in options if text.startswith("--")), "")
        action = str(_literal(words["action"], {})) if "action" in words else ""
        default = _literal(words["default"], {}) if "default" in words else None
        default = {"store_true": False, "store_false": True}.get(action, default)
        kind = ast.unparse(words["type"]) if "type" in words else type(default).__name__
        name = option.replace("-", "_")
        said = given.get(option, given.get(name))
        if said is not None:
            try:
                default = (not default) if said is True else _TYPES[kind](said)
            except (ValueError, TypeError, KeyError):  # a type of its own, or several values
                default = None
        arguments[name] = default
    return {f"{holder}.{name}": value for holder in names for name, value in arguments.items()}


def _literal(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name | ast.Attribute):
        return constants.get(ast.unparse(node))
    try:
        return ast.literal_eval(node)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _model_of_trainer(
    tree: ast.Module, constants: Mapping[str, Any], lines: dict[str, int]
) -> dict[str, Any]:
    """The `model=` of `GRPOTrainer(...)`, or of the one `from_pretrained(...)` of a model, and
    what an asynchronous trainer implies."""
    always: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        words = {word.arg: word.value for word in node.keywords}
        if name.endswith("AsyncGRPOTrainer"):  # it has no other way to roll out
            always = {"use_vllm": True, "vllm_mode": "server"}
        if name.endswith("GRPOTrainer"):
            argument = words.get("model", node.args[0] if node.args else None)
        elif "Model" in name and name.endswith(".from_pretrained"):
            argument = node.args[0] if node.args else words.get("pretrained_model_name_or_path")
        else:
            continue
        value = _literal(argument, constants) if argument is not None else None
        if isinstance(value, str):
            lines["model_name_or_path"] = node.lineno
            loaded = {} if name.endswith("GRPOTrainer") else {"dtype": BY_TRANSFORMERS}
            return {**always, **loaded, **_loaded_in(tree), "model_name_or_path": value}
    return always


_BITS = ("load_in_4bit", "load_in_8bit")  # False by default in TRL's ModelConfig
Truth = Callable[[ast.expr], bool | None]


def _take_quantization(
    tree: ast.Module, values: dict[str, Any], truth: Truth, is_used: bool
) -> list[str]:
    """Add in how many bits a script loads its model, where that `is_used`; returns the name of what
    it computes."""
    for node, is_certain in _reached(tree, truth):
        if not (is_used or ast.unparse(node.func).endswith(".from_pretrained")):
            continue
        for word in (word for word in node.keywords if word.arg in _BITS):
            value = truth(word.value)
            if value is None or (value and not is_certain):
                return [str(word.arg)]
            if value:
                values[str(word.arg)] = True
    return []


def _truth(test: ast.expr, constants: Mapping[str, Any], given: Mapping[str, Any]) -> bool | None:
    """Return whether it holds; None where only running the script shows it."""
    if isinstance(test, ast.BoolOp):
        ends = isinstance(test.op, ast.Or)
        parts = [_truth(part, constants, given) for part in test.values]
        return ends if ends in parts else None if None in parts else not ends
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return negated(_truth(test.operand, constants, given))
    if ast.unparse(test) == "__name__ == '__main__'":
        return True
    value = _literal(test, constants)
    if value is None and isinstance(test, ast.Attribute):
        value = {"true": True, "false": False}.get(str(given.get(test.attr)).lower())
    return value if isinstance(value, bool) else None


def _reached(
    node: ast.AST, truth: Truth, is_certain: bool = True
) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the calls that may be reached, and whether they are for certain."""
    if isinstance(node, ast.Call):
        yield node, is_certain
    if not isinstance(node, ast.If | ast.IfExp):
        for child in ast.iter_child_nodes(node):
            yield from _reached(child, truth, is_certain)
        return
    held = truth(node.test)
    for branch, unless in ((node.body, False), (node.orelse, True)):
        for child in branch if isinstance(branch, list) else [branch]:
            if held is not unless:
                yield from _reached(child, truth, is_certain and held is not None)


def _loaded_in(tree: ast.Module) -> dict[str, str]:
    """Return the dtype in which a script loads its model; `auto` for one that it computes."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name, words = ast.unparse(node.func), {word.arg: word.value for word in node.keywords}
        init = words.get("model_init_kwargs")
        if isinstance(init, ast.Dict):
            words = {ast.unparse(k).strip("'"): v for k, v in zip(init.keys, init.values) if k}
        elif isinstance(init, ast.Call):
            words = {word.arg: word.value for word in init.keywords}
        elif not ("Model" in name and name.endswith(".from_pretrained")):
            continue
        if (value := words.get("dtype", words.get("torch_dtype"))) is not None:
            text = ast.unparse(value).strip("'").removeprefix("torch.")
            return {"dtype": text if text in _DTYPES else "auto"}
    return {}
