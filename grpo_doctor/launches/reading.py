"""From the arguments of a user to a launch: the one way in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor.errors import UsageError
from grpo_doctor.knobs.names import BY_NAME
from grpo_doctor.launches import shell
from grpo_doctor.launches.canonical import settings
from grpo_doctor.launches.files import UnreadableFileError, read_python, read_text, resolved
from grpo_doctor.launches.known import known
from grpo_doctor.launches.launcher import Started, unwrap
from grpo_doctor.launches.model import Launch, Problem, Source
from grpo_doctor.launches.naming import check
from grpo_doctor.launches.processes import ONE_EACH, processes
from grpo_doctor.launches.programs import Program, bundled, recognize
from grpo_doctor.launches.said import Said, collect, located
from grpo_doctor.launches.words import Command, Word, from_arguments

_SHELLS = ("bash", "sh", "source", ".", "zsh")
_BROKEN = re.compile(r"--?[A-Za-z]")
_MAX_DEPTH = 4  # of scripts that start scripts
_PREFIXES = ("CUDA_", "NCCL_", "PYTORCH_", "VLLM_", "SWIFT_", "RAY_", "MASTER_", "OMP_", "TORCH_")
_NAMED = (
    "NPROC_PER_NODE NNODES NODE_RANK MAX_PIXELS MIN_PIXELS IMAGE_MAX_TOKEN_NUM VIDEO_MAX_PIXELS "
    "FPS_MAX_FRAMES WORLD_SIZE LOCAL_WORLD_SIZE"
)
_NAMES = frozenset(_NAMED.split())
_COMMANDS = "swift rlhf, trl grpo, python -m verl.trainer.main_ppo, python -m openrlhf.cli..."


@dataclass(frozen=True, slots=True)
class _Candidate:
    command: Command
    started: Started
    program: Program


def read(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    versions: Mapping[str, str] | None = None,
) -> Launch:
    """What a command line, a script or the bundled trainer's arguments launch.

    Args:
        arguments: as a shell has divided them; one argument with spaces is a command as text, and
            a script's name stands for the commands in it.
        environment: what is set where it would be started; none where left out.
        cwd: the folder that it would be started in, for the files that it names.
        versions: of packages, such as `{"ms-swift": "4.6.0", "vllm": "0.31.0"}`.

    Raises:
        UsageError: there is no command that trains, or serves rollouts, that is known here.
    """
    folder = cwd or Path()
    inherited = {k: v for k, v in (environment or {}).items() if _matters(k)}
    problems: list[Problem] = []
    candidates = list(_candidates(arguments, dict(environment or {}), folder, problems, 0))
    if not candidates:
        raise UsageError(_nothing_known(arguments, problems))
    chosen = min(candidates, key=_rank)
    launch = _launch(chosen, inherited, folder, dict(versions or {}))
    others = [c for c in candidates if c is not chosen]
    servers = [_launch(c, inherited, folder, dict(versions or {})) for c in others if _serves(c)]
    trains = sum(_rank(c) == _rank(chosen) for c in others)
    more = (f"only the first of {trains + 1} training commands is judged",) if trains else ()
    return replace(
        launch,
        companions=tuple(servers) if launch.role == "train" else (),
        assumptions=(*launch.assumptions, *more),
        problems=(*problems, *launch.problems),
    )


def _rank(candidate: _Candidate) -> int:
    """A framework's own command before a script of the user's, and training before serving."""
    if candidate.program.role != "train":
        return 2
    return 0 if candidate.program.script is None else 1


def _serves(candidate: _Candidate) -> bool:
    return candidate.program.role == "rollout server"


def _matters(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)


def _nothing_known(arguments: Sequence[str], problems: Sequence[Problem]) -> str:
    if problems:
        return f"{problems[0].text}. {problems[0].fix}"
    shown = " ".join(arguments)[:80]
    first = next((text for text in arguments if "=" not in text), "")
    near = difflib.get_close_matches(first, ["swift", "trl", "torchrun", "accelerate"], n=1)
    hint = f" Did you mean {near[0]}?" if near and near[0] != first else ""
    return f"no training command in `{shown}`: known are {_COMMANDS}, and servers.{hint}"


# -- commands


def _candidates(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    problems: list[Problem],
    depth: int,
) -> Iterator[_Candidate]:
    if not arguments or arguments[0].startswith("-"):
        words = from_arguments(arguments)
        yield _Candidate(Command(words), Started("bundled", words), bundled(words))
        return
    for command in _commands(arguments, environment, cwd, problems):
        script = _script_in(command.words)
        if script is not None and depth < _MAX_DEPTH and (cwd / script).is_file():
            inner = {**environment, **{k: w.text for k, w in command.environment.items()}}
            yield from _candidates([script], inner, cwd, problems, depth + 1)
            continue
        started = unwrap(command.words)
        program = recognize(started) if started is not None else None
        if started is not None and program is not None and _is_training(started, program, cwd):
            yield _Candidate(command, started, program)
        elif _BROKEN.match(command.words[0].text):
            problems.append(_broken_line(command))


def _is_training(started: Started, program: Program, cwd: Path) -> bool:
    """A script that a launcher starts is; of others, one that makes GRPO's configuration."""
    if program.script is None or started.launcher:
        return True
    path = located(program.script.text, cwd, program.script.source)
    try:
        return bool(read_python(path, program.script.text).values)
    except UnreadableFileError:
        return program.script.source.argument is not None


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
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    problems: list[Problem],
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


def _script_in(words: Sequence[Word]) -> str | None:
    texts = [word.text for word in words if not word.text.startswith("-")]
    if texts and texts[0] in _SHELLS:
        texts = texts[1:]
    elif len(texts) > 1 and texts[0] == "nohup":
        return _script_in([word for word in words if word.text != "nohup"])
    return texts[0] if texts and texts[0].endswith((".sh", ".bash", ".slurm", ".sbatch")) else None


# -- one launch


def _launch(
    candidate: _Candidate, inherited: Mapping[str, str], cwd: Path, versions: dict[str, str]
) -> Launch:
    program, started = candidate.program, candidate.started
    said = collect(started, program, cwd)
    outer = {
        name: Word(text, Source(f"{name}={text}", file="the environment"))
        for name, text in inherited.items()
    }
    own = {k: w for k, w in candidate.command.environment.items() if _matters(k)}
    file_environment = {k: w for k, w in said.environment.items() if _matters(k)}
    environment = {**file_environment, **outer, **own}
    version, assumptions = _version(said, program, versions)
    values, sources = settings(said, program, version, environment)
    started_by = processes(started, program, said, environment)
    return Launch(
        framework=program.framework,
        version=version,
        role=program.role,
        versions=versions,
        subcommand=program.subcommand,
        settings=values,
        sources=sources,
        options=dict(said.values),
        option_sources=dict(said.sources),
        environment={name: word.text for name, word in environment.items()},
        processes_per_node=_per_node(values, program, started_by.per_node),
        nodes=int(values.get("run.nodes", started_by.nodes)),
        processes_known=started_by.known and not _left_open(said, values),
        complete=not said.own_config and not any(p.kind == "unreadable" for p in said.problems),
        visible_gpus=len(started_by.gpu_ids) if started_by.gpu_ids is not None else None,
        gpu_ids=started_by.gpu_ids,
        launcher=started.launcher or started_by.launcher,
        algorithm=_algorithm(said, program),
        model=values.get("model.name"),
        backend="megatron" if _is_megatron(program, values) else "",
        assumptions=(*assumptions, *started_by.assumptions),
        problems=(*check(said, program, version), *_values(said, program, values), *said.problems),
    )


def _per_node(values: Mapping[str, object], program: Program, per_node: int) -> int:
    if program.framework not in ("verl", "openrlhf"):
        return per_node
    said = values.get("run.gpus_per_node")
    return said if isinstance(said, int) else 8 if program.framework == "verl" else ONE_EACH or 8


def _left_open(said: Said, values: Mapping[str, object]) -> bool:
    """Whether Ray's number of hosts or GPUs is said by a variable that is not set here."""
    keys = ("trainer.nnodes", "trainer.n_gpus_per_node", "actor.num_nodes", "actor_num_nodes")
    named = [key for key in keys if key in said.names and said.names[key].unset]
    return bool(named) or bool(values and said.values.get("use_ray"))


def _is_megatron(program: Program, values: Mapping[str, object]) -> bool:
    return (
        "megatron" in (program.listed or program.table)
        or values.get("parallel.strategy") == "megatron"
    )


def _version(
    said: Said, program: Program, versions: Mapping[str, str]
) -> tuple[str | None, list[str]]:
    """The version that was stated, else the newest that takes the options."""
    stated = versions.get(program.framework)
    if stated is not None or program.framework == "bundled":
        return stated, []
    listed = known(program.listed) if program.listed else None
    if listed is None or len(listed.read) == 1:
        return None, []
    plain = [name for name, option in said.names.items() if option.sign in ("", "~")]
    added = [name for name, option in said.names.items() if option.sign == "+"]
    version = listed.newest_that_takes(plain, added)
    older = version != listed.read[-1]
    why = ", the newest that takes these options" if older else ", the newest that is known here"
    sentence = f"{program.framework} {version}{why}; state --version {program.framework}=X"
    return version, [sentence]


def _algorithm(said: Said, program: Program) -> str:
    named = (
        "rlhf_type",
        "algorithm.adv_estimator",
        "algo.advantage.estimator",
        "advantage_estimator",
    )
    for name in named:
        if isinstance(text := said.values.get(name), str):
            return text
    if program.subcommand in ("sft", "pt"):
        return program.subcommand
    if program.framework in ("verl", "openrlhf"):
        return "gae"  # what both do where nobody says
    return "grpo"


def _values(said: Said, program: Program, values: Mapping[str, object]) -> Iterator[Problem]:
    """Options whose value is missing, or not of the option's kind."""
    from grpo_doctor.knobs import TABLES  # noqa: PLC0415

    for row in TABLES[program.table]:
        option = said.names.get(row.key)
        if option is None or option.unset or row.knob in values or row.inside or row.item:
            continue
        kind = BY_NAME[row.knob].kind
        if option.value is True and kind != "bool":
            text = f"{option.source.text} has no value: a shell variable that is not set?"
            fix = f"give {option.source.text} a value, or leave it out"
            yield Problem("missing-value", text, fix, option.source, ends=True)
        elif kind in ("int", "float", "bool") and not row.values and _is_text(option.value):
            text = f"{option.source.text}: {row.key} takes {_TAKES[kind]}"
            yield Problem("bad-value", text, f"give it {_TAKES[kind]}", option.source, ends=True)


_TAKES = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def _is_text(value: object) -> bool:
    text = str(value).strip().lower()
    return text not in ("", "none", "null") and not isinstance(value, (list, bool))
