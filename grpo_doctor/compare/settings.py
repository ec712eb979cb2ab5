"""What was set differently: settings by canonical name, and the framework's own options.

Whether two runs can be compared at all, and what to keep in mind if so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

import numpy as np

from grpo_doctor import knobs
from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.knobs.provenance import Provenance, Setting
from grpo_doctor.trace.model import Run
from grpo_doctor_reports.schema.compare import SettingChange

# Where a run writes, what it is called and how long it goes on leave each step as it is.
_LEAVE_STEPS_ALONE = (
    *("train.max_steps", "checkpoint.directory", "checkpoint.save_total_limit"),
    *("vllm.server_*", "vllm.group_port", "reward.timeout_s", "run.collective_timeout_s"),
    *("*output_dir", "*_dir", "*run_name", "*_name", "*seed", "*_port", "*timeout*", "ddp_*"),
    *("log_level*", "logging_*", "*logger", "report_to", "project", "hub_*", "trackio_*"),
    *("max_steps", "num_train_epochs", "*total_epochs", "*total_training_steps"),
    *("resume_from_checkpoint", "disable_tqdm", "push_to_hub"),
)
_LEVELS = 8


def changed_knobs(before: ComparedRun, after: ComparedRun) -> dict[str, tuple[Setting, Setting]]:
    """Return canonical name to (before, after), for settings that differ and both runs have."""
    changed = {}
    for knob in knobs.KNOBS:
        first, second = _said(before.trace.run, knob.name), _said(after.trace.run, knob.name)
        if first is None and second is not None:
            first = _not_given(before.trace.run, after.trace.run, knob.name)
        elif second is None and first is not None:
            second = _not_given(after.trace.run, before.trace.run, knob.name)
        if first is None or second is None or first.value == second.value:
            continue
        if (first.active or second.active) and not _same_file(first.value, second.value):
            changed[knob.name] = first, second
    return changed


def _said(run: Run, knob: str) -> Setting | None:
    """What the run itself says; that a job whose whole configuration was read leaves one of its
    framework's settings out says something too."""
    setting = run.setting(knob)
    if setting.provenance.is_fact:
        return setting
    keys = {row.key for row in knobs.FRAMEWORKS.get(run.framework, ()) if row.knob == knob}
    if (
        run.settings.provenance is not Provenance.READ
        or not keys & dict(options_of(run.config)).keys()
    ):
        return None
    return Setting(setting.value, Provenance.READ, setting.active)


def _not_given(run: Run, other: Run, knob: str) -> Setting | None:
    """The default, marked as one, of a command that leaves out what another of its kind gives."""
    commands = {run.settings.provenance, other.settings.provenance} == {Provenance.GIVEN}
    alike = run.framework == other.framework and bool(run.knobs)
    return run.setting(knob) if commands and alike else None


def setting_changes(before: ComparedRun, after: ComparedRun) -> list[SettingChange]:
    """Settings first, then options without a canonical name, then versions; in each what can change
    a step's time first."""
    rows = [
        SettingChange(
            knob=name,
            name=name,
            before=first.value if first.active else None,
            after=second.value if second.active else None,
            before_from=_where(first),
            after_from=_where(second),
            affects_step=affects_step(name),
        )
        for name, (first, second) in changed_knobs(before, after).items()
    ]
    rows += option_changes(before, after)
    rows.sort(key=lambda row: not row.affects_step)
    return rows + _versions(before.trace.run.versions, after.trace.run.versions)


def _where(setting: Setting) -> str:
    return setting.provenance.value if setting.active else "without effect"


def affects_step(name: str) -> bool:
    """Return whether a setting can change the time of a step."""
    return not any(fnmatchcase(name, glob) for glob in _LEAVE_STEPS_ALONE)


def option_changes(before: ComparedRun, after: ComparedRun) -> list[SettingChange]:
    """The framework's options without a canonical name that both jobs have and that differ."""
    first, second = before.trace.run, after.trace.run
    if first.framework != second.framework:
        return []
    canonical = {spelling.key for spelling in knobs.FRAMEWORKS.get(first.framework, ())}
    one, other = dict(options_of(first.config)), dict(options_of(second.config))
    return [
        SettingChange(
            knob=None,
            name=name,
            before=one[name],
            after=other[name],
            before_from=Provenance.READ.value,
            after_from=Provenance.READ.value,
            affects_step=affects_step(name),
        )
        for name in sorted((one.keys() & other.keys()) - canonical)
        if one[name] != other[name] and not _same_file(one[name], other[name])
    ]


def options_of(config: Mapping[str, Any], level: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each option by its dotted name: some frameworks nest them."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value and level < _LEVELS:
            yield from ((f"{name}.{key}", inner) for key, inner in options_of(value, level + 1))
        else:
            yield str(name), value


def _same_file(first: Any, second: Any) -> bool:
    """Return whether two values name a file of one name, reached by other folders."""
    if isinstance(first, list) and isinstance(second, list):
        pairs = list(zip(first, second, strict=False))
        return len(first) == len(second) and all(a == b or _same_file(a, b) for a, b in pairs)
    if not (isinstance(first, str) and isinstance(second, str)):
        return False
    one, other = PurePath(first), PurePath(second)
    is_path = one.suffix or other.suffix
    return bool(is_path) and one.name == other.name and one != other


def _versions(before: Mapping[str, str], after: Mapping[str, str]) -> list[SettingChange]:
    """Packages of another version; none where one of the runs did not say which it has."""
    if not before or not after:
        return []
    return [
        SettingChange(knob=None, name=name, before=before.get(name), after=after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


# Batches that differ by more than this do different work per step.
_TOKENS_TOLERANCE = 0.10
# Long completions and checkpoints make a step some times longer, not twenty.
_LONG_STEP = 20.0
_BATCH = ("train.micro_batch", "train.grad_accumulation")
_GENERATIONS = "rollout.num_generations"
_NO_PHASES = "GD075"


def obstacles(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Reasons why their step times can't be compared; none where they can."""
    reasons = []
    for name, run in (("BEFORE", before), ("AFTER", after)):
        if not len(run.analysis.steps.numbers):
            unmarked = any(rule.id == _NO_PHASES for rule, _ in run.results.findings)
            what = f"no step markers (see {_NO_PHASES})" if unmarked else "no step"
            logged = run.trace.run.origin and len(run.trace.metrics.steps)
            reasons.append(f"{name} {'has no step times' if logged else f'contains {what}'}")
        elif not len(run.step_seconds):
            reasons.append(f"{name} has no step that ended on all ranks")
    return reasons


def differences_of_jobs(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Return what makes the two runs different jobs, as far as both runs say it."""
    first, second = before.trace.run, after.trace.run
    pairs = (
        ("the model", before.model, after.model),
        ("the size of the model", before.model_size, after.model_size),
        ("the number of ranks", first.world_size or None, second.world_size or None),
        ("the framework", _known(first.framework), _known(second.framework)),
    )
    return [
        f"{what} changed from {a} to {b}"
        for what, a, b in pairs
        if a is not None and b is not None and a != b
    ]


def cautions(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Return what else differs, and so may be the reason of a difference."""
    first, second = before.trace.run, after.trace.run
    causes = differences_of_jobs(before, after)
    for what, a, b in (
        ("the framework version", first.framework_version, second.framework_version),
        ("the GPUs", before.side().gpus, after.side().gpus),
        ("the hosts", _hosts(before), _hosts(after)),
    ):
        if (
            a
            and b
            and a != b
            and not (what.endswith("version") and first.framework != second.framework)
        ):
            causes.append(f"{what} changed from {a} to {b}")
    kinds = [run.origin.what if run.origin else "a recording" for run in (first, second)]
    if kinds[0] != kinds[1]:
        causes.append(f"{kinds[0]} and {kinds[1]} do not count the same work as a step's time")
    causes += _not_recorded(before, after)
    causes += _other_work(before, after)
    causes += _tokens(before, after)
    for name, run in (("BEFORE", before), ("AFTER", after)):
        if run.trace.run.exit.state not in ("finished", "running", "unknown"):
            causes.append(f"{name} {run.trace.run.exit.state}")
        if run.trace.loss.any:
            causes.append(f"the recording of {name} is incomplete")
        causes += _broken_steps(name, run)
    return causes


def _known(framework: str) -> str | None:
    return None if framework == "unknown" else framework


def _broken_steps(name: str, run: ComparedRun) -> list[str]:
    """Steps that ranks did not all end, ranks without any, and one that took as long as many."""
    broken, steps, seconds = [], run.analysis.steps, run.step_seconds
    open_steps = int((~steps.closed[:, steps.stepping].all(axis=1)).sum())
    if open_steps:
        broken.append(
            f"{name} has {open_steps} of {len(steps.numbers)} steps that did not end on "
            "all ranks; they are excluded"
        )
    silent = int((~steps.stepping).sum())
    if silent and steps.stepping.any():
        broken.append(f"{name} has no steps on {silent} of {len(steps.stepping)} ranks")
    usual = float(np.median(seconds)) if len(seconds) else 0.0
    if usual and seconds.max() > _LONG_STEP * usual:
        broken.append(
            f"one step of {name} took {seconds.max() / usual:.0f} times as long as usual: "
            "the machine paused, or its clock jumped; means depend on that step"
        )
    return broken


def _other_work(before: ComparedRun, after: ComparedRun) -> Iterator[str]:
    """Settings of both runs that make a step another piece of work: a batch that is only split
    differently is the same batch."""
    batches = before.batch, after.batch
    same_batch = batches[0] is not None and batches[0] == batches[1]
    first, second = before.trace.run.facts, after.trace.run.facts
    for name in (_GENERATIONS,) if same_batch else (*_BATCH, _GENERATIONS):
        a, b = first.get(name), second.get(name)
        if a is not None and b is not None and a != b:
            yield f"steps are not comparable: {name} changed from {a} to {b}"


def _not_recorded(before: ComparedRun, after: ComparedRun) -> Iterator[str]:
    """What only one run says of the work of a step, so whether it changed is unknown."""
    one, two = _of_the_work(before.trace.run), _of_the_work(after.trace.run)
    for name, own, other in (("BEFORE", one, two), ("AFTER", two, one)):
        missing = [what for what in own if own[what] is None and other[what] is not None]
        if missing:
            yield f"not recorded of {name}: {', '.join(missing)}"


def _of_the_work(run: Run) -> dict[str, Any]:
    """Return what decides the work of a step, None where it was not recorded."""
    return {
        "the framework": _known(run.framework),
        "the number of ranks": run.world_size or None,
        **{name: run.facts.get(name) for name in (*_BATCH, _GENERATIONS)},
    }


def _tokens(before: ComparedRun, after: ComparedRun) -> list[str]:
    tokens = before.step_tokens, after.step_tokens
    if tokens[0] is None or tokens[1] is None:
        return []
    ratio = float(tokens[1].mean() / tokens[0].mean())
    if abs(ratio - 1) <= _TOKENS_TOLERANCE:
        return []
    more = f"{abs(100 * (ratio - 1)):.0f}% {'more' if ratio > 1 else 'fewer'}"
    return [f"AFTER generates {more} tokens per step; compare time per token instead"]


def _hosts(run: ComparedRun) -> str:
    return ", ".join(sorted({process.host for process in run.trace.processes}))
