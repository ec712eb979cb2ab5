"""The document's what-if part: each predicted fix, and every set of them replayed together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.document.numbers import PERCENT_DIGITS, number
from grpo_doctor.findings import Results, RunView
from grpo_doctor.findings.priority import foremost
from grpo_doctor.findings.rule import Finding, Fix, Rule
from grpo_doctor.knobs.values import spelled
from grpo_doctor.whatif import Ground, Prediction, ground, together
from grpo_doctor_reports.schema.findings import WhatifEntry, WhatifFix, WhatifSet, WhatifUnknown

MOST_FIXES = 7
# Replays of all sets take as long as one of so many rows: some 2 s.
_ROWS_OF_ALL_SETS = 20_000_000
NOTE = (
    "Each value is the predicted change in mean step time, from replaying this run's own steps. "
    "The interval is a 90% prediction interval, if the models are right. If work is only removed, "
    "it ends at no change."
)


@dataclass(frozen=True, slots=True)
class _Candidate:
    rule: Rule
    finding: Finding
    position: int
    fix: Fix
    predicted: Prediction

    def excludes(self, other: _Candidate) -> bool:
        """Return whether both set one thing to different values."""
        same = self.fix.knob is not None and self.fix.knob == other.fix.knob
        return same and self.fix.after != other.fix.after


def whatif_entry(view: RunView, results: Results) -> WhatifEntry:
    """The fixes that have a prediction, those that have none, and the sets; never fails for want
    of steps: then there is nothing in it."""
    base = ground(view.model)
    fixes = _candidates(results) if isinstance(base, Ground) else []
    named = [found for found in [foremost(results.findings)] if found]
    severe = [found for found in results.findings if found[1].is_severe and found[1].gain > 0]
    several = _remedies(severe, fixes) if len(severe) > 1 else []
    return WhatifEntry(
        step_time_s=number(view.analysis.step_s),
        steps=len(view.model.measured_s),
        law_error_pct=number(100 * base.off, PERCENT_DIGITS) if isinstance(base, Ground) else None,
        fixes=[
            WhatifFix(
                index=index,
                finding=candidate.rule.id,
                fix=candidate.position,
                next_step=not candidate.fix.pasted,
                label=_label(candidate.rule, candidate.finding, candidate.fix),
                spelling=candidate.fix.spelling if candidate.fix.pasted else "",
                **_rounded(candidate.predicted),
            )
            for index, candidate in enumerate(fixes)
        ],
        sets=_sets(base, fixes, several) if isinstance(base, Ground) else [],
        chosen=_remedies(named, fixes),
        together=several,
        unknown=[
            WhatifUnknown(finding=rule.id, label=_label(rule, finding, fix), reason=fix.unpredicted)
            for rule, finding in results.findings
            for fix in finding.to_paste
            if fix.predicted is None and fix.unpredicted and view.analysis.step_s
        ],
        note=NOTE if isinstance(base, Ground) else base.reason,
    )


def _candidates(results: Results) -> list[_Candidate]:
    """The predicted fixes and next steps that gain most, in the order of their findings; each
    change once. What the headline names is always among them."""
    candidates: dict[tuple[object, ...], _Candidate] = {}
    for rule, finding in results.findings:
        for offered in (finding.to_paste, finding.next_steps):
            for position, fix in enumerate(offered):
                if fix.predicted is not None:
                    candidate = _Candidate(rule, finding, position, fix, fix.predicted)
                    candidates.setdefault(_change(fix), candidate)
    named = foremost(results.findings)
    remedy = named[1].remedy if named else None
    best = sorted(candidates.values(), key=lambda c: (c.fix is not remedy, c.predicted.mid))
    return [candidate for candidate in candidates.values() if candidate in best[:MOST_FIXES]]


def _remedies(findings: Sequence[tuple[Rule, Finding]], fixes: Sequence[_Candidate]) -> list[int]:
    """Return the number of each finding's remedy that can be ticked with those before it."""
    places = {_change(candidate.fix): index for index, candidate in enumerate(fixes)}
    chosen: list[int] = []
    for _, finding in findings:
        index = places.get(_change(finding.remedy)) if finding.remedy else None
        if index is not None and not any(fixes[index].excludes(fixes[n]) for n in chosen):
            chosen.append(index)
    return sorted(set(chosen))


def _change(fix: Fix) -> tuple[object, ...]:
    return fix.knob, str(fix.after), fix.spelling


def _label(rule: Rule, finding: Finding, fix: Fix) -> str:
    """What is wrong; of several fixes also what this one sets, so that no two read the same."""
    title = finding.headline or rule.title
    if not fix.pasted:
        return f"{title}: once it is fixed"
    if len(finding.to_paste) == 1:
        return title
    if fix.knob is None:
        return f"{title}: {fix.spelling}"
    alone = sum(other.knob == fix.knob for other in finding.to_paste) == 1
    return f"{title}: {fix.knob}" if alone else f"{title}: {fix.knob} {spelled(fix.after)}"


def _rounded(predicted: Prediction) -> dict[str, float]:
    ends = {"low": predicted.low, "mid": predicted.mid, "high": predicted.high}
    return {name: round(value, PERCENT_DIGITS) for name, value in ends.items()}


def _sets(base: Ground, fixes: Sequence[_Candidate], severe: Sequence[int]) -> list[WhatifSet]:
    rows = max(1, len(base.model.seconds))
    largest = len(fixes)
    while largest > 1 and rows << largest > _ROWS_OF_ALL_SETS:
        largest -= 1
    sets = []
    for size in range(1, largest + 1):
        for chosen in itertools.combinations(range(len(fixes)), size):
            several = [fixes[index] for index in chosen]
            if any(a.excludes(b) for a, b in itertools.combinations(several, 2)):
                continue
            sets.append(_set(base, chosen, [candidate.predicted for candidate in several]))
    if len(severe) > largest:
        sets.append(_set(base, tuple(severe), [fixes[index].predicted for index in severe]))
    return sets


def _set(base: Ground, chosen: tuple[int, ...], predicted: Sequence[Prediction]) -> WhatifSet:
    joint = predicted[0] if len(predicted) == 1 else together(base, predicted, "with these fixes")
    return WhatifSet(fixes=list(chosen), **_rounded(joint))
