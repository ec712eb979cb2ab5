"""What was set differently: settings by canonical name, and the framework's own options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

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
