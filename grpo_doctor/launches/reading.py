"""From the arguments of a user to a launch: the one way in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grpo_doctor.errors import UsageError
from grpo_doctor.knobs.model import version_of
from grpo_doctor.knobs.option_lists import option_list
from grpo_doctor.launches.canonical import settings
from grpo_doctor.launches.commands import Candidate, Reading, candidates_in, rank
from grpo_doctor.launches.files import UnreadableFileError, located, read_text
from grpo_doctor.launches.model import SUPPORTED, Launch, Problem, Source, Trainer
from grpo_doctor.launches.naming import Known, check, of_older_library
from grpo_doctor.launches.option_values import check_values
from grpo_doctor.launches.processes import Processes, processes
from grpo_doctor.launches.programs import Program
from grpo_doctor.launches.raw_settings import (
    CHECKOUTS,
    RawSettings,
    collect,
    told_twice,
    unset_words,
)
from grpo_doctor.launches.tables import TABLES
from grpo_doctor.launches.words import Word
from grpo_doctor_probes.record.redact import redact_command

_ALGORITHMS = (
    "rlhf_type", "algorithm.adv_estimator", "algo.advantage.estimator", "advantage_estimator",
)  # fmt: skip
_PREFIXES = ("CUDA_", "NCCL_", "PYTORCH_", "VLLM_", "SWIFT_", "RAY_", "MASTER_", "OMP_", "TORCH_")
_VARIABLES = (
    "NPROC_PER_NODE NNODES NODE_RANK MAX_PIXELS MIN_PIXELS IMAGE_MAX_TOKEN_NUM VIDEO_MAX_PIXELS "
    "FPS_MAX_FRAMES WORLD_SIZE LOCAL_WORLD_SIZE"
)
_NAMES = frozenset(_VARIABLES.split())
_COMMANDS = "swift rlhf, trl grpo, python -m verl.trainer.main_ppo, python -m openrlhf.cli..."


def read(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    versions: Mapping[str, str] | None = None,
) -> Launch:
    """Return what a command line, a script or the bundled trainer's arguments launch.

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
    reading = Reading()
    candidates = list(candidates_in(arguments, dict(environment or {}), folder, reading))
    if not candidates:
        raise UsageError(_nothing_known(arguments, reading.problems))
    chosen = min(candidates, key=rank)
    launch, oldest = _launch(chosen, inherited, dict(versions or {}))
    remaining = [c for c in candidates if c is not chosen]
    served = [c for c in remaining if c.program.role == "rollout server"]
    servers = [_launch(c, inherited, dict(versions or {}))[0] for c in served]
    older = {**(versions or {}), launch.framework: oldest} if oldest else None
    trains = sum(rank(c) == rank(chosen) for c in remaining)
    more = (f"only the first of {trains + 1} training commands is judged",) if trains else ()
    return replace(
        launch,
        companions=tuple(servers) if launch.role == "train" else (),
        oldest=_launch(chosen, inherited, older)[0] if older else None,
        assumptions=(*launch.assumptions, *more),
        problems=(*reading.problems, *launch.problems),
    )


def _matters(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)


def _nothing_known(arguments: Sequence[str], problems: Sequence[Problem]) -> str:
    if problems:
        return f"{problems[0].text}. {problems[0].fix}"
    shown = " ".join(redact_command(arguments))[:80]
    first = next((text for text in arguments if "=" not in text), "")
    close = difflib.get_close_matches(first, ["swift", "trl", "torchrun", "accelerate"], n=1)
    hint = f" Did you mean {close[0]}?" if close and close[0] != first else ""
    said = f"no training command in `{shown}`: known are {_COMMANDS}, and servers.{hint}"
    if len(arguments) == 1 and first.endswith((".sh", ".slurm", ".sbatch")):
        said += f" If it takes arguments, give them too: grpo-doctor check {first} ARGUMENTS"
    return said


def _launch(
    candidate: Candidate, inherited: Mapping[str, str], versions: dict[str, str]
) -> tuple[Launch, str | None]:
    """Return a launch, and the oldest version that it may be for where an older one is assumed."""
    program, started = candidate.program, candidate.started
    if program.framework not in SUPPORTED:
        return _outside(candidate, inherited), None
    copy, allowed = _copy(candidate) if program.framework == "verl" else (None, None)
    raw = collect(started, program, candidate.folder, candidate.command.files, copy)
    file_environment = {k: w for k, w in raw.environment.items() if _matters(k)}
    environment = {**file_environment, **_environment(candidate, inherited)}
    version, oldest, assumptions = _version(raw, program, versions, copy)
    copied = version is not None and version == copy
    why = "the newest that setup.py of this copy allows"
    if not allowed and _BY_KEY in raw.copied and (version_of(copy) or ()) < (0, 3):
        allowed, why = "0.8.2", f"which verl used when it got {_BY_KEY}, as this copy has"
    if copied and allowed and "vllm" not in versions:
        versions = {**versions, "vllm": allowed}
        assumptions.append(f"vLLM {allowed}, {why}")
    known: Known = "stated" if program.framework in versions else "read" if copied else "assumed"
    too_old = _too_old(program, version)
    values, sources, open_ = settings(raw, program, version, environment)
    started_by = processes(started, program, raw, environment)
    if any(word.text in ("...", "…") for word in program.words):
        text, fix = "the command has ... in place of options", "give all of them"
        raw.problems.append(Problem("unreadable", text, fix))
    algorithm = _algorithm(raw, program)
    # ms-swift's name of its model before 4 (base_args.py: _handle_ckpt_dir).
    old_name = raw.values.get("ckpt_dir") if program.framework == "ms-swift" else None
    more_open = [f"no more options than these; {unset_words(raw.open)}"] if raw.open else []
    is_megatron = "megatron" in (program.listed or program.table)
    is_megatron = is_megatron or values.get("parallel.strategy") == "megatron"
    launch = replace(
        _started(candidate, started_by, environment),
        version=version,
        versions=versions,
        subcommand=program.subcommand,
        settings=values,
        sources=sources,
        copied=frozenset() if "defaults" in raw.copied else raw.copied,  # more are in other files
        options=dict(raw.values),
        option_sources=dict(raw.sources),
        not_exported={
            name: word.source
            for name, word in candidate.command.not_exported.items()
            if _matters(name) and name not in environment
        },
        processes_per_node=_per_node(values, program, started_by),
        nodes=int(values.get("run.nodes", started_by.nodes)),
        processes_known=started_by.known and not _left_open(raw, values),
        open=open_,
        complete=not raw.own_config
        and not raw.open
        and not any(p.kind == "unreadable" for p in raw.problems),
        algorithm=algorithm,
        trainer=_trainer(program, algorithm, raw),
        model=values.get("model.name", old_name if isinstance(old_name, str) else None),
        folder=candidate.folder,
        submitted=started.launcher == "ray",
        is_placed=started.launcher == "ray"
        or any(w.text in ("srun", "ssh") for w in candidate.command.words[:1]),
        backend="megatron" if is_megatron else "",
        assumptions=(*assumptions, *started_by.assumptions, *more_open),
        problems=(
            *(() if too_old else check(raw, program, version, known)),
            *check_values(raw, program, values),
            *raw.problems,
            *told_twice(started, environment),
        ),
        too_old=too_old,
    )
    return launch, oldest


def _environment(candidate: Candidate, inherited: Mapping[str, str]) -> dict[str, Word]:
    outer = {
        name: Word(text, Source(f"{name}={text}", file="the environment"))
        for name, text in inherited.items()
    }
    return outer | {k: w for k, w in candidate.command.environment.items() if _matters(k)}


def _outside(candidate: Candidate, inherited: Mapping[str, str]) -> Launch:
    """Return a launch of which nothing is known but how many processes it starts."""
    program, started = candidate.program, candidate.started
    environment = _environment(candidate, inherited)
    started_by = processes(started, program, RawSettings(), environment)
    word, missing = program.script, None
    if word is not None and not located(word.text, candidate.folder, word.source).is_file():
        text = f"{word.text} is not on this machine, so its framework is unknown"
        missing = Problem("unreadable", text, "run check where the script is", word.source)
    return replace(
        _started(candidate, started_by, environment),
        subcommand=program.script.text if program.script else started.name,
        complete=False,
        algorithm="",
        problems=(missing,) if missing is not None else (),
    )


def _started(candidate: Candidate, by: Processes, environment: Mapping[str, Word]) -> Launch:
    """Return how a launch is started, whatever its program is."""
    program, started = candidate.program, candidate.started
    return Launch(
        program.framework,
        None,
        program.role,
        environment={name: word.text for name, word in environment.items()},
        processes_per_node=by.per_node,
        nodes=by.nodes,
        processes_known=by.known,
        gpu_ids=by.gpu_ids,
        launcher=started.launcher or by.launcher,
        trainer=program.trainer,
        assumptions=by.assumptions,
    )


def _per_node(values: Mapping[str, object], program: Program, started_by: Processes) -> int:
    if program.framework not in ("verl", "openrlhf") or started_by.launcher != "ray":
        return started_by.per_node
    count = values.get("run.gpus_per_node")
    return count if isinstance(count, int) else 8


def _left_open(raw: RawSettings, values: Mapping[str, object]) -> bool:
    """Return whether Ray's number of hosts or GPUs is in a variable that is not set here."""
    keys = ("trainer.nnodes", "trainer.n_gpus_per_node", "actor.num_nodes", "actor_num_nodes")
    unset = any(key in raw.names and raw.names[key].unset for key in keys)
    return unset or bool(values and raw.values.get("use_ray"))


_COPY = "verl/version/version"
_BY_KEY = "trainer.max_actor_ckpt_to_keep"
"""Of verl 0.2.0.dev, whose number stayed until 0.3."""
_PINNED = re.compile(r"\bvllm[^'\"]*<=(\d+(?:\.\d+)*)")


def _copy(candidate: Candidate) -> tuple[str | None, str | None]:
    """Return the version of the verl that `python -m` takes from the folder it is started in, and
    the newest vLLM that its setup.py allows."""
    at = candidate.started.at
    if at is None:
        return None, None
    places = (located(f"{folder}{_COPY}", candidate.folder, at.source) for folder in CHECKOUTS)
    try:
        if (copy := next((path for path in places if path.is_file()), None)) is None:
            return None, None
        setup = copy.parents[2] / "setup.py"
        pinned = _PINNED.search(read_text(setup)) if setup.is_file() else None
        return read_text(copy).strip()[:20] or None, pinned[1] if pinned else None
    except UnreadableFileError:
        return None, None


def _before(version: str) -> str | None:
    """Return the release before a version of verl in development, which may be as that."""
    known = option_list("verl")
    earlier = [v for v in known.read if known.version(v) < known.version(version)] if known else []
    return earlier[-1] if earlier else None


def _too_old(program: Program, version: str | None) -> str | None:
    listed = option_list(program.listed) if program.listed else None
    if listed is None or len(listed.read) == 1 or (number := version_of(version)) is None:
        return None
    if number >= listed.version(listed.read[0]):
        return None
    return f"{program.framework} {version} is older than {listed.read[0]}, the first known version"


def _version(
    raw: RawSettings, program: Program, versions: Mapping[str, str], copy: str | None
) -> tuple[str | None, str | None, list[str]]:
    """The version that was stated or that the folder has a copy of, else the newest that takes the
    options, and the oldest where the newest of all does not."""
    stated = versions.get(program.framework)
    if stated is not None or program.framework == "bundled":
        return stated, None, []
    listed = option_list(program.listed) if program.listed else None
    if copy is not None:
        oldest = _before(copy) if ".dev" in copy else None
        return copy, oldest, [f"verl {copy}, as the copy of verl here says ({_COPY})"]
    if listed is None or len(listed.read) == 1:
        return None, None, []
    plain = [name for name, option in raw.names.items() if option.sign in ("", "~")]
    taking = listed.that_take(n for n in plain if not of_older_library(program.framework, n))
    oldest, version = taking[0], taking[-1]
    if raw.values.get("actor_rollout_ref.rollout.mode") == "sync":
        version = min(version, "0.6.1", key=listed.version)  # the last that generates this way
    older = version != listed.read[-1]
    dashes = "" if program.framework == "verl" else "--"
    gone = [f"{dashes}{n}" for n in plain if listed.ever(n) and not listed.takes(n, None)]
    lacks = f" ({listed.read[-1]} has no {', '.join(gone[:3])})" if gone else ""
    why = f"that takes these options{lacks}" if older else "that check knows"
    sentence = f"{program.framework} {version}, the newest version {why}"
    sentence += f"; override with --version {program.framework}=X"
    return version, oldest if older and oldest != version else None, [sentence]


_KINDS: Mapping[str, Trainer] = {
    name: kind for kind, names in TABLES["trainings"]["algorithms"].items() for name in names
}


_TRAINS_VERL = re.compile(r"main(?!_(?:gen|eval))\w*$|\.py$")


def _trainer(program: Program, algorithm: str, raw: RawSettings) -> Trainer:
    """Return what kind of training a command of a known framework starts."""
    if program.role != "train":
        return "none"
    if str(raw.values.get("trainer.val_only")).lower() == "true":
        return "generation"  # verl's trainer ends after its validation
    if program.script is not None:
        return program.trainer
    command = program.subcommand.removeprefix("train_")
    if program.framework == "trl" or (program.framework == "openrlhf" and command != "ppo_ray"):
        return _KINDS.get(command, "unknown")
    if program.framework == "verl" and not _TRAINS_VERL.search(command):
        return "sft" if "sft" in command else "generation" if "main_gen" in command else "unknown"
    return _KINDS.get(algorithm, "unknown")


def _algorithm(raw: RawSettings, program: Program) -> str:
    for name in _ALGORITHMS:
        if name in raw.names and raw.names[name].unset:
            return ""
        if isinstance(text := raw.values.get(name), str):
            return text
    if program.subcommand in ("sft", "pt"):
        return program.subcommand
    if program.framework in ("verl", "openrlhf"):
        return "gae"  # what both do where nobody says
    if program.subcommand == "rlhf":
        return "" if any(problem.kind == "unreadable" for problem in raw.problems) else "dpo"
    return "grpo"
