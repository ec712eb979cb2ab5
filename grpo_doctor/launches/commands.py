"""The commands in what a user gave, and which of them train or serve rollouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor.launches import shell
from grpo_doctor.launches.files import UnreadableFileError, located, read_text, resolved
from grpo_doctor.launches.launcher import Started, unwrap
from grpo_doctor.launches.model import Problem
from grpo_doctor.launches.programs import Program, bundled, recognize
from grpo_doctor.launches.words import Command, Word, from_arguments

_SHELLS = ("bash", "sh", "source", ".", "zsh")
_BROKEN = re.compile(r"--[A-Za-z]")
_MAX_DEPTH = 4  # of scripts that start scripts


@dataclass(frozen=True, slots=True)
class Candidate:
    """A command of a framework that is known here."""

    command: Command
    started: Started
    program: Program
    folder: Path
    """Where it is started."""


def rank(candidate: Candidate) -> int:
    """A framework's own command before a script of the user's, a known one before an unknown, and
    training before serving."""
    if candidate.program.role != "train":
        return 3
    if candidate.program.framework == "unknown":
        return 2
    return 0 if candidate.program.script is None else 1


def candidates_in(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    problems: list[Problem],
    depth: int = 0,
) -> Iterator[Candidate]:
    """Each command that trains or serves, scripts that scripts start included; what can't be read
    goes into `problems`."""
    if not arguments or arguments[0].startswith("-"):
        words = from_arguments(arguments)
        yield Candidate(Command(words), Started("bundled", words), bundled(words), cwd)
        return
    for command in _commands(arguments, environment, cwd, problems):
        nested = _inline(command.words)
        if nested is None:
            cwd = _moved(command, cwd)
            script = _script_in(command.words)
            nested = script if script is not None and (cwd / script).is_file() else None
        if nested is not None and depth < _MAX_DEPTH:
            inner = {**environment, **{k: w.text for k, w in command.environment.items()}}
            yield from candidates_in([nested], inner, cwd, problems, depth + 1)
            continue
        started = unwrap(command.words)
        program = recognize(started, cwd) if started is not None else None
        if started is not None and program is not None and _is_training(started, program, cwd):
            yield Candidate(command, started, program, cwd)
        elif _BROKEN.match(command.words[0].text):
            problems.append(_broken_line(command))


def _moved(command: Command, cwd: Path) -> Path:
    """The folder after a `cd`."""
    if command.words[0].text != "cd" or len(command.words) < 2 or command.words[1].unset:
        return cwd
    target = resolved(cwd, command.words[1].text)
    return target if target.is_dir() else cwd


def _is_training(started: Started, program: Program, cwd: Path) -> bool:
    """A script that a launcher starts is; of others, one whose source says so, or which is not
    here and was named by the user."""
    if program.script is None or started.launcher or program.trainer != "unknown":
        return True
    path = located(program.script.text, cwd, program.script.source)
    return not path.is_file() and program.script.source.argument is not None


def _broken_line(command: Command) -> Problem:
    word = command.words[0]
    return Problem(
        "broken-line",
        f"{word.source} begins a command with {word.text}: the line before it ends the launch, so "
        "this and what follows is not part of it",
        "end the line before it with a backslash, with nothing after that and no comment between",
        word.source,
        ends=True,
    )


def _commands(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, problems: list[Problem]
) -> Iterator[Command]:
    if len(arguments) == 1 and " " in arguments[0].strip():
        yield from shell.commands(arguments[0], None, environment)
        return
    words = from_arguments(arguments)
    own: dict[str, Word] = {}
    while words and (pair := words[0].text.partition("="))[1] and pair[0].isidentifier():
        own[pair[0]] = words[0].with_text(pair[2])
        words = words[1:]
    if not words:
        return
    script = _script_in(words)
    if script is not None:
        try:
            text = read_text(resolved(cwd, script))
        except UnreadableFileError as problem:
            problems.append(Problem("unreadable", str(problem), "Give a script that is here."))
            return
        inner = {**environment, **{name: word.text for name, word in own.items()}}
        for command in shell.commands(text, script, inner):
            yield replace(command, environment={**own, **command.environment})
    else:
        yield Command(words, own)


def _inline(words: Sequence[Word]) -> str | None:
    """The text of `bash -c TEXT`, wherever in the command that stands."""
    texts = [word.text for word in words]
    for name, flag, text in zip(texts, texts[1:], texts[2:], strict=False):
        if name in _SHELLS and flag in ("-c", "-lc") and " " in text:
            return text
    return None


def _script_in(words: Sequence[Word]) -> str | None:
    texts = [word.text for word in words if not word.text.startswith("-")]
    if texts and texts[0] in _SHELLS:
        texts = texts[1:]
    elif len(texts) > 1 and texts[0] == "nohup":
        return _script_in([word for word in words if word.text != "nohup"])
    return texts[0] if texts and texts[0].endswith((".sh", ".bash", ".slurm", ".sbatch")) else None
