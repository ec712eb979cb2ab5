"""A reward function that nothing defines.

ms-swift takes its built-in rewards and those that a file of --external_plugins puts into `orms`;
`trl grpo` takes its own and dotted names. verl and OpenRLHF call a function of the given file. A
name that none of these has ends the job.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from grpo_doctor.launches.files import tree_of
from grpo_doctor.launches.local_files import local_files, registered, texts, top_level_names
from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_SWIFT = ("toolbench", "math", "accuracy", "format", "react_format", "cosine", "repetition",
          "soft_overlong")  # fmt: skip
_TRL = ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward",
        "get_soft_overlong_punishment")  # fmt: skip


def check(view: View) -> Flaw | None:
    """Names of rewards against what is built in and what files define."""
    launch = view.launch
    names = texts(launch.options.get("reward_funcs"))
    if launch.framework == "ms-swift":
        plugins = list(_from_plugins(view))
        known = [*_SWIFT, *(name for name in plugins if name)]
        strange = [name for name in names if name not in known]
        return _flaw(view, strange[0], known, None in plugins) if strange else None
    if launch.framework == "trl":
        strange = [name for name in names if name not in _TRL and "." not in name]
        own = not launch.complete or not strange
        return None if own else _flaw(view, strange[0], list(_TRL), unread=False)
    return _of_a_file(view)


def _from_plugins(view: View) -> Iterator[str | None]:
    """The rewards that plugins add; None where some of them can't be read."""
    for file in local_files(view.launch):
        if file.option in ("external_plugins", "custom_register_path"):
            tree = tree_of(file.path)
            names = registered(tree, "orms") if tree is not None else None
            yield from names if names is not None else (None,)


def _of_a_file(view: View) -> Flaw | None:
    """The function that verl calls by its name, or OpenRLHF by a fixed one."""
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
            return _flaw(view, name, close, False, file.text)
    return None


def _flaw(view: View, name: str, known: list[str], unread: bool, file: str = "") -> Flaw:
    where = f"{file} does not define" if file else f"{view.launch.framework} does not know"
    return Flaw(
        severity="medium" if unread else "high",
        headline=f"{where} the reward function {name}",
        evidence=("a plugin that may define it could not be read",) if unread else (),
        fixes=(f"one of {', '.join(known)}" if known else f"define {name} in it",),
        source=view.launch.option_sources.get("reward_funcs"),
        ends=not unread,
        unverified=unread,
    )
