"""What a launch needs to exist: options, files, rewards, versions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from grpo_doctor.knobs.model import Version, version_of
from grpo_doctor.launches.files import tree_of
from grpo_doctor.launches.local_files import local_files, registered, texts, top_level_names
from grpo_doctor.launches.rule import (
    EVERY_COMMAND,
    SAMPLES,
    TRAINS,
    Flaw,
    View,
    fatal_flaw,
    rule,
)
from grpo_doctor.launches.tables import TABLES

# framework, its versions from and before, package, versions of it that work: from, before.
_TABLE = TABLES["inputs"]
_PAIRS: list[list[str]] = _TABLE["versions"]


@rule("GL042", EVERY_COMMAND)
def versions_exclude_each_other(view: View) -> Flaw | None:
    """Incompatible versions.

    Each release works with a range of versions of the packages below it. Outside that range an
    import fails or a signature differs: ms-swift 4.6 with TRL 1.0 and later or transformers 5.20
    and later; TRL 1.16 with a vLLM above 0.31; verl 0.9.1 with a vLLM other than 0.24.
    """
    own = version_of(view.launch.version)
    if own is None or view.launch.framework not in view.launch.versions:
        return None
    for framework, since, until, package, lowest, below in _PAIRS:
        beside = view.package(package)
        if framework != view.launch.framework or beside is None:
            continue
        concerned = _version(since) <= own < _version(until)
        if not concerned or _version(lowest) <= beside < _version(below):
            continue
        has = view.launch.versions[package]
        return fatal_flaw(
            headline=f"{framework} {view.launch.version} does not work with {package} {has}",
            evidence=(f"it needs {package} from {lowest} on, before {below}",),
            fixes=(f"pip install '{package}>={lowest},<{below}'",),
        )
    return None


def _version(text: str) -> Version:
    return version_of(text) or ()


@rule("GL063", EVERY_COMMAND)
def not_exported(view: View) -> Flaw | None:
    """Variables are set, but not exported.

    `NPROC_PER_NODE=8` on a line of its own sets a variable of the shell, which the command on the
    next line does not see: ms-swift then starts one process. The line needs `export`, or a final
    backslash that makes it part of the command. A variable that the script itself uses
    (`$NPROC_PER_NODE`) is not reported.
    """
    sources = view.launch.not_exported
    if not sources:
        return None
    names = " and ".join([*filter(None, [", ".join([*sources][:-1])]), [*sources][-1]])
    plural = len(sources) > 1
    return Flaw(
        severity="medium",
        headline=f"{names} {'are' if plural else 'is'} set, but not exported",
        evidence=(f"the command does not see {'them' if plural else 'it'}",),
        fixes=(
            f"export {' '.join(sources)}",
            "or end each of these lines with a backslash, which makes it part of the command",
        ),
        source=next(iter(sources.values())),
    )


_REQUIRED: Mapping[str, Mapping[str, list[str]]] = _TABLE["required"]


@rule("GL065", replace(TRAINS, whole=True))
def required_option_missing(view: View) -> Flaw | None:
    """A required option is missing.

    ms-swift ends while it reads its arguments if there is no dataset, and before the first step if
    there is no reward. `trl grpo` ends without a dataset; OpenRLHF ends without a model or prompts.
    """
    launch, given = view.launch, view.launch.options
    if not given or any(problem.kind == "unset-variable" for problem in launch.problems):
        return None
    dotted = any("." in name for name in given)
    missing = [
        (what, next((name for name in names if dotted and "." in name), names[0]))
        for what, names in _REQUIRED.get(launch.framework, {}).items()
        if not any(full.startswith(name) for full in names for name in given)
        and not (what == "reward" and view.value("vllm.mode") == "server")  # the server may have it
    ]
    if not missing:
        return None
    return fatal_flaw(
        headline=f"{' and '.join(f'no {what}' for what, _ in missing)}: "
        f"pass {' and '.join(f'--{name}' for _, name in missing)}",
        evidence=(f"{launch.framework} ends at startup without it",),
        fixes=tuple(f"--{name} ..." for _, name in missing),
    )


@rule("GL066", SAMPLES)
def file_not_found(view: View) -> Flaw | None:
    """A file that the launch names is not there.

    Data, plugins, reward functions and models that are given as paths are looked up in the folder
    of the launch. The launch may be for another machine: with --gpus, or where not even the folder
    at the top of the path is here. Then a missing file is reported and not counted as an error.
    Names of a hub and addresses are not checked.
    """
    missing = [file for file in local_files(view.launch) if not file.path.exists()]
    if not missing:
        return None
    here = view.host.is_here and not all(_of_another_machine(file.path) for file in missing)
    state = "does not exist" if here else "is not on this machine"
    sentences = [f"{file.text} ({file.option}) {state}" for file in missing]
    return Flaw(
        severity="high" if here else "medium",
        headline=sentences[0],
        evidence=tuple(sentences[1:]),
        fixes=("correct the path", "or run check in the folder where the job starts"),
        source=missing[0].source,
        ends=here,
        unverified=not here,
    )


def _of_another_machine(path: Path) -> bool:
    """Return whether the folder at the top of a path is missing, or a user's or disk's below it."""
    folders = [*path.parents][::-1][1:3] if path.is_absolute() else []
    everywhere = ("/home", "/mnt", "/opt", "/media", "/srv", "/root", "/data")
    top = folders[1:] if folders and str(folders[0]) in everywhere else folders[:1]
    return bool(top) and not top[0].exists()


_SWIFT, _TRL = (_TABLE["rewards"][name] for name in ("ms-swift", "trl"))


@rule("GL067", SAMPLES)
def reward_not_known(view: View) -> Flaw | None:
    """A reward function that nothing defines.

    ms-swift takes its built-in rewards and those that a file of --external_plugins puts into
    `orms`; `trl grpo` takes its own and dotted names. verl and OpenRLHF call a function of the
    given file. A name that none of these has ends the job, but a changed copy of ms-swift may have
    it. A plugin that can't be read may have any name.
    """
    launch = view.launch
    names = texts(launch.options.get("reward_funcs"))
    if launch.framework == "ms-swift":
        plugins = list(_from_plugins(view))
        known = [*_SWIFT, *(name for name in plugins if name)]
        strange = [name for name in names if name not in known and None not in plugins]
        if not strange:
            return None
        flaw = _flaw(view, strange[0], known)  # early guides say to add one's own to its files
        return replace(flaw, severity="medium", ends=False, unverified=True)
    if launch.framework == "trl":
        strange = [name for name in names if name not in _TRL and "." not in name]
        return _flaw(view, strange[0], list(_TRL)) if strange and launch.complete else None
    return _of_a_file(view)


def _from_plugins(view: View) -> Iterator[str | None]:
    """Yield the rewards that plugins add; None where some of them can't be read."""
    for file in local_files(view.launch):
        if file.option in ("external_plugins", "custom_register_path"):
            tree = tree_of(file.path)
            names = registered(tree, "orms") if tree is not None else None
            yield from names if names is not None else (None,)


def _of_a_file(view: View) -> Flaw | None:
    """Return the function that verl calls by its name, or OpenRLHF by a fixed one."""
    for file in local_files(view.launch):
        parent = file.option.removesuffix(".path")
        if parent.endswith("custom_reward_function"):
            name = str(view.launch.options.get(f"{parent}.name") or "compute_score")
        elif file.option in ("remote_rm_url", "reward.remote_url"):
            name = "reward_func"
        else:
            continue
        tree = tree_of(file.path)
        names = top_level_names(tree) if tree is not None else None
        if names is not None and name not in names:
            close = difflib.get_close_matches(name, sorted(names))
            return _flaw(view, name, close, file.text)
    return None


def _flaw(view: View, name: str, known: list[str], file: str = "") -> Flaw:
    where = f"{file} does not define" if file else f"{view.launch.framework} does not know"
    return fatal_flaw(
        headline=f"{where} the reward function {name}",
        evidence=(),
        fixes=(f"one of {', '.join(known)}" if known else f"define {name} in it",),
        source=view.launch.option_sources.get("reward_funcs"),
    )
