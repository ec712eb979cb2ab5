"""Where a recorded job's settings are written: its command, a shell script or its Python."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.knobs.advice import Place
from grpo_doctor.knobs.syntax import options_of
from grpo_doctor.launches.commands import Candidate, Reading, candidates_in, rank
from grpo_doctor.launches.files import UnreadableFileError, parsed, read_text, resolved

_SHELL = (".sh", ".bash", ".slurm", ".sbatch")
# The configuration that a script of one's own makes, and what makes it from a command line.
_CONFIGS = {"trl": "GRPOConfig", "ms-swift": "RLHFArguments"}
_PARSERS = ("HfArgumentParser", "H4ArgumentParser", "TrlParser", "YamlConfigParser")


def place_of(
    command: Sequence[str], framework: str, folders: Sequence[Path], until_ns: int
) -> Place:
    """Return where to change a setting of this job.

    Args:
        command: as it was recorded; empty if it was not.
        framework: whose settings they are.
        folders: where the job may have been started; its script is looked for there.
        until_ns: when the job ended, in Unix time; a script that was changed since says nothing.
    """
    config = _CONFIGS.get(framework)
    candidate = _candidate(command, folders) if command else None
    if candidate is None:
        if framework == "trl":
            return Place("python argument", f"as an argument of {config}")
        script = next((word for word in command if word.endswith(_SHELL)), None)
        return Place("flag", f"for the command that {script} starts" if script else "")
    if candidate.program.script is None:
        file = candidate.command.words[0].source.file if candidate.command.words else None
        return Place("flag", f"in {file}" if file else "")
    script = candidate.program.script.text
    given = frozenset(options_of([word.text for word in candidate.program.words]))
    return _in_script(resolved(candidate.folder, script), framework, given, until_ns)


def _in_script(path: Path, framework: str, given: frozenset[str], until_ns: int) -> Place:
    tree, config = _parsed(path, until_ns), _CONFIGS.get(framework)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    if config is None:
        hydra = any(ast.unparse(call.func) == "hydra.main" for call in calls)
        return Place("flag", "" if hydra else f"if {path.name} takes options of {framework}", given)
    names = {config} | {
        node.name
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.ClassDef) and config in map(_last_name, node.bases)
    }
    if any(_last_name(call.func) in _PARSERS and _mentions(call, names) for call in calls):
        return Place("flag", "", given)
    lines = [call.lineno for call in calls if _last_name(call.func) in names]
    at = f", {path.name}:{lines[0]}" if len(lines) == 1 else ""
    return Place("python argument", f"in {config}(...){at}", given)


def _candidate(command: Sequence[str], folders: Sequence[Path]) -> Candidate | None:
    for folder in folders:
        try:
            found = sorted(candidates_in(command, {}, folder, Reading()), key=rank)
        except (GrpoDoctorError, UnreadableFileError, OSError, ValueError, RecursionError):
            continue
        if found and (
            found[0].program.script is None or len(folders) == 1
            or resolved(found[0].folder, found[0].program.script.text).is_file()
        ):  # fmt: skip
            return found[0]
    return _candidate(command, folders[:1]) if len(folders) > 1 else None


def _parsed(path: Path, until_ns: int) -> ast.Module | None:
    try:
        if path.stat().st_mtime_ns > until_ns:
            return None
        return parsed(read_text(path), str(path))
    except (UnreadableFileError, OSError):
        return None


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _mentions(call: ast.Call, names: set[str]) -> bool:
    return any(
        isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) in names
        for argument in (*call.args, *(word.value for word in call.keywords))
        for node in ast.walk(argument)
    )
