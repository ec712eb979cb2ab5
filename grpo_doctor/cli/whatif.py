"""`grpo-doctor whatif`: what other settings would do to a recorded run's step time."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpo_doctor.cli.output import STDOUT, document_json, given_path, write_bytes
from grpo_doctor.errors import UsageError

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis
    from grpo_doctor.whatif import Prediction, StepModel, Withheld
    from grpo_doctor_reports.schema.findings import WhatifDocument

NAME = "whatif"
SUMMARY = "predict the step time of a recorded run with other settings"
DESCRIPTION = """\
Replays a recorded run's own steps with changed settings, and predicts the step time with an
interval. If the run has no data for a change, it prints the reason and no number. RECORDING is a
run directory or a trace.json[.gz].
"""
EPILOG = """\
examples:
  grpo-doctor whatif trace.json --set offload.optimizer=false
  grpo-doctor whatif trace.json --set offload_optimizer=false --set dataloader_num_workers=4
                                          the framework's own flags, several at once
  grpo-doctor whatif trace.json --set train.micro_batch=8 --set train.grad_accumulation=2 --json

Settings are named as in docs/knobs.md; docs/whatif.md lists those that have a model.

exit codes: 0 answered, also with "Unknown"; 2 wrong usage, an unknown setting; 3 the
recording can't be read; 4 the answer can't be written.
"""
_UNSET = ("", "none", "null")
_TAKES = {"bool": "true or false", "int": "a whole number", "float": "a number"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "recording", metavar="RECORDING", type=given_path, help="a run directory or a trace"
    )
    parser.add_argument(
        "--set",
        metavar="SETTING=VALUE",
        action="append",
        required=True,
        dest="settings",
        help="a setting, by its canonical name or the framework's flag; can be given several times",
    )
    parser.add_argument("--json", action="store_true", help="as JSON (schema 1)")


def execute(options: argparse.Namespace) -> int:
    """Read, replay, print; return the exit code."""
    pairs = [_pair(text) for text in options.settings]

    from grpo_doctor.analysis import analyse  # noqa: PLC0415 - after usage errors
    from grpo_doctor.importers.load import load  # noqa: PLC0415
    from grpo_doctor.whatif import build_model, predict_settings  # noqa: PLC0415
    from grpo_doctor.whatif.models.cost_model import knob  # noqa: PLC0415

    analysis = analyse(load(options.recording))
    after = _settings(analysis, pairs)
    run = analysis.trace.run
    # Of a log without settings the framework's defaults say nothing.
    silent = run.origin and not (run.command or run.config or run.knobs)
    before = {
        name: None if silent and not run.settings.is_known(name) else knob(analysis, name)
        for name in after
    }
    model = build_model(analysis)
    outcome = predict_settings(analysis, model, before, after)
    answer = _answer(analysis, model, before, after, outcome)
    if options.json:
        write_bytes(document_json(answer), STDOUT)
    else:
        write_bytes("".join(line + "\n" for line in _lines(answer)).encode(), STDOUT)
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set {text}: give SETTING=VALUE, such as offload.optimizer=false.")
    return name.strip().removeprefix("--"), value.strip()


def _settings(analysis: Analysis, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in pairs:
        knob, value = _setting(analysis, name, text)
        if knob in values:
            raise UsageError(f"--set {name}={text}: {knob} is set twice; give one value.")
        values[knob] = value
    return values


def _setting(analysis: Analysis, name: str, text: str) -> tuple[str, Any]:
    """Return the setting's canonical name and its parsed value."""
    from grpo_doctor import knobs  # noqa: PLC0415
    from grpo_doctor.knobs.values import parse  # noqa: PLC0415
    from grpo_doctor.whatif.models import BY_KNOB, NONE_IS_A_VALUE  # noqa: PLC0415

    kinds = {setting.name: setting.kind for setting in knobs.KNOBS}
    run = analysis.trace.run
    table = knobs.table_of(run.framework, run.knobs)
    keys = {row.key: row.knob for row in knobs.TABLES.get(table, ())}
    canonical = name if name in kinds else keys.get(name.replace("-", "_"))
    if canonical is None:
        close = difflib.get_close_matches(name, [*kinds, *keys], n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]}?" if close else "docs/knobs.md lists all."
        raise UsageError(f"--set {name}: no setting of that name is known. {hint}")
    takes = _TAKES.get(kinds[canonical], "a text")
    may_be_unset = takes == "a text" or canonical in NONE_IS_A_VALUE
    value = None
    if name not in kinds:  # the framework's own flag: some take other values than the setting has
        key = name.replace("-", "_")
        said = knobs.canonical(table, run.framework_version, {key: text})
        value = said.get(canonical)
    value = parse(kinds[canonical], text) if value is None else value
    if value is None and not (may_be_unset and text.lower() in _UNSET):
        raise UsageError(f"--set {name}={text}: {canonical} takes {takes}.")
    if isinstance(value, int | float) and value < 0 and canonical in BY_KNOB:
        raise UsageError(f"--set {name}={text}: {canonical} takes no number below 0.")
    return canonical, value


def _answer(
    analysis: Analysis,
    model: StepModel,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    outcome: Prediction | Withheld,
) -> WhatifDocument:
    from msgspec.structs import replace  # noqa: PLC0415 - after usage errors

    from grpo_doctor.knobs.advice import instruct  # noqa: PLC0415
    from grpo_doctor.trace.instructions import job_of, place_of_run  # noqa: PLC0415
    from grpo_doctor.whatif import Withheld  # noqa: PLC0415
    from grpo_doctor.whatif.step_model import by_phase  # noqa: PLC0415
    from grpo_doctor_reports.schema import findings as parts  # noqa: PLC0415

    run = analysis.trace.run
    job = job_of(run, place_of_run(analysis.trace))
    answer = parts.WhatifDocument(
        run=run.id,
        source=analysis.trace.source,
        steps=len(model.measured_s),
        step_time_s=analysis.step_s,
        settings=[
            parts.SettingChanged(
                knob=name,
                before=before[name],
                default=before[name] is not None and not run.settings.is_known(name),
                after=value,
                spelling=how.sentence if (how := instruct(job, name, value)) else None,
            )
            for name, value in after.items()
        ],
    )
    if isinstance(outcome, Withheld):
        return replace(answer, reason=outcome.reason)
    return replace(
        answer,
        predicted=parts.StepChange(
            low=round(outcome.low, 2), mid=round(outcome.mid, 2), high=round(outcome.high, 2)
        ),
        basis=outcome.basis,
        assumed=outcome.effect.assumes or None,
        phases={
            phase: parts.PhaseSeconds(before_s=_rounded(old, 6), after_s=_rounded(new, 6))
            for phase, (old, new) in by_phase(model, outcome.effect.changes).items()
        },
    )


def _lines(answer: WhatifDocument) -> list[str]:
    from grpo_doctor_reports import formatting  # noqa: PLC0415 - after usage errors

    steps = answer.steps
    lines = [f"{answer.source}, {steps} step{'' if steps == 1 else 's'}"]
    for setting in answer.settings:
        flag = f"  ({setting.spelling})" if setting.spelling else ""
        default = " (default)" if setting.default else ""
        now = "not recorded," if setting.before is None else f"{_text(setting.before)}{default}"
        change = f"{now} to {_text(setting.after)}{flag}"
        if setting.before == setting.after:
            change = f"{_text(setting.after)} already"
        lines.append(f"  {setting.knob}: {change}")
    if all(setting.before == setting.after for setting in answer.settings):
        return [*lines, "", "Nothing changes: the run has these values."]
    if answer.predicted is None:
        return [*lines, "", f"Unknown: {answer.reason}."]
    lines += ["", f"{'':14}{'now':>12}{'then':>12}{'change':>12}"]
    for phase, seconds in answer.phases.items():
        old, new = formatting.seconds(seconds.before_s), formatting.seconds(seconds.after_s)
        more = seconds.after_s - seconds.before_s
        change = ("+" if more > 0 else "") + formatting.seconds(more) if new != old else ""
        lines.append(f"{phase:14}{old:>12}{new:>12}{change:>12}".rstrip())
    predicted, step = answer.predicted, answer.step_time_s or 0.0
    then = step * (1 + predicted.mid / 100)
    low, mid, high = (
        formatting.signed_percent(value) for value in (predicted.low, predicted.mid, predicted.high)
    )
    lines += [
        f"{'step':14}{formatting.seconds(step):>12}{formatting.seconds(then):>12}{mid:>12}",
        "",
        f"Between {low} and {high} of the step time; {answer.basis}.",
    ]
    return [*lines, f"Assumed: {answer.assumed}."] if answer.assumed else lines


def _rounded(seconds: float, digits: int) -> float:
    return round(seconds, digits) + 0.0  # a wait of -0.0 s is none


def _text(value: Any) -> str:
    from grpo_doctor.knobs.values import spelled  # noqa: PLC0415

    return "unset" if value is None else spelled(value)
