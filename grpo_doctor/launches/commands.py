"""The commands in what a user gave, and which of them train or serve rollouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_doctor.bounded import SCRIPT, Budget
from grpo_doctor.launches import shell
from grpo_doctor.launches.files import UnreadableFileError, located, read_text, resolved
from grpo_doctor.launches.launcher import Started, unwrap
from grpo_doctor.launches.model import Problem
from grpo_doctor.launches.programs import Program, bundled, recognize
from grpo_doctor.launches.words import Command, Word, from_arguments

_SHELLS = ("bash", "sh", "source", ".", "zsh")
_STARTS_SCRIPTS = (*_SHELLS, "nohup", "sbatch", "exec", "time", "sudo", "setsid")
_BROKEN = re.compile(r"--[A-Za-z]|[+~]{0,2}[A-Za-z_]\w*(?:\.\w+)+=")
_BACKSLASH = (
    "end the line before it with a backslash, with nothing after the backslash and no comment "
    "between"
)
_MAX_DEPTH = 4  # of scripts that start scripts


@dataclass(frozen=True, slots=True)
class Candidate:
    """A command of a framework that is known here."""

    command: Command
    started: Started
    program: Program
    folder: Path
    """Where it is started."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one launch may still cost, and what of it can't be read."""

    problems: list[Problem] = field(default_factory=list)
    budget: Budget = field(default_factory=lambda: Budget(SCRIPT))


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
    reading: Reading,
    depth: int = 0,
) -> Iterator[Candidate]:
    """Each command that trains or serves, scripts that scripts start included; what can't be read
    goes into its problems."""
    if not depth and (not arguments or arguments[0].startswith("-")):
        words = from_arguments(arguments)
        yield Candidate(Command(words), Started("bundled", words), bundled(words), cwd)
        return
    launched = False
    for command in _commands(arguments, environment, cwd, reading):
        nested = _inline(command.words)
        given: Sequence[str] = [nested] if nested is not None else ()
        if nested is None:
            cwd = _moved(command, cwd)
            script = _script_in(command.words)
            if script is not None and (cwd / script.text).is_file():
                given = [script.text, *(w.text for w in _after(command.words, script))]
        if given and depth < _MAX_DEPTH:
            set_ = {k: w.text for k, w in command.environment.items() if not w.unset}
            inner = {**environment, **set_}
            yield from candidates_in(given, inner, cwd, reading, depth + 1)
            continue
        started = unwrap(command.words)
        program = recognize(started, cwd) if started is not None else None
        if started is not None and program is not None and _is_training(started, program, cwd):
            launched = True
            yield Candidate(command, started, program, cwd)
        elif launched and _BROKEN.match(command.words[0].text):
            word = command.words[0]
            text = (
                f"{word.source} begins a command with {word.text}: the line before it ends the "
                "launch, so this and what follows is not part of it"
            )
            reading.problems.append(
                Problem("broken-line", text, _BACKSLASH, word.source, ends=True)
            )


def _moved(command: Command, cwd: Path) -> Path:
    """Return the folder after a `cd`."""
    if command.words[0].text != "cd" or len(command.words) < 2 or command.words[1].unset:
        return cwd
    target = resolved(cwd, command.words[1].text)
    return target if target.is_dir() else cwd


def _is_training(started: Started, program: Program, cwd: Path) -> bool:
    """A script that a launcher starts is; of others, one whose source says so, or which is not
    here and was named by the user."""
    if program.script is None or started.launcher or program.trainer != "unknown":
        return True
    if program.framework not in ("trl", "unknown"):
        return True
    path = located(program.script.text, cwd, program.script.source)
    return not path.is_file() and program.script.source.argument is not None


def _commands(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    reading: Reading,
) -> Iterator[Command]:
    if len(arguments) == 1 and " " in arguments[0].strip():
        yield from shell.commands(arguments[0], None, environment, cwd, budget=reading.budget)
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
            text = read_text(resolved(cwd, script.text))
        except UnreadableFileError as problem:
            reading.problems.append(
                Problem("unreadable", str(problem), "Give a script that exists on this machine.")
            )
            return
        inner = {**environment, **{name: word.text for name, word in own.items()}}
        given = _after(words, script)
        for command in shell.commands(text, script.text, inner, cwd, given, reading.budget):
            yield replace(command, environment={**own, **command.environment})
    else:
        yield Command(words, own)


def _inline(words: Sequence[Word]) -> str | None:
    """The text of `bash -c TEXT`, `sbatch --wrap=TEXT` or `eval TEXT`, wherever that stands."""
    texts = [word.text for word in words]
    for name, flag, text in zip(texts, texts[1:], texts[2:], strict=False):
        if name in _SHELLS and re.fullmatch(r"-[a-z]*c", flag) and " " in text:
            return text
    wrapped = next((text for text in texts if text.startswith("--wrap=")), None)
    if wrapped is not None:
        return wrapped.partition("=")[2]
    if texts[0] in ("eval", "ssh", "sbatch") and " " in texts[-1]:
        return " ".join(texts[1:]) if texts[0] == "eval" else texts[-1]
    return None


def _script_in(words: Sequence[Word]) -> Word | None:
    """The script that a command starts, `bash -x run.sh 8`, also by way of `nohup` or `sbatch`."""
    plain = [word for word in words if not word.text.startswith("-")]
    while plain and plain[0].text in _STARTS_SCRIPTS:
        plain = plain[1:]
    if plain and plain[0].text.endswith((".sh", ".bash", ".slurm", ".sbatch")):
        return plain[0]
    wrapped = words[0].text in ("srun", "env", "timeout", "docker", "ssh", "mpirun", "numactl")
    start = next((i for i in range(1, len(words)) if words[i].text in _SHELLS), None)
    return _script_in(words[start:]) if wrapped and start is not None else None


def _after(words: Sequence[Word], word: Word) -> tuple[Word, ...]:
    return tuple(words[next(i for i, each in enumerate(words) if each is word) + 1 :])
