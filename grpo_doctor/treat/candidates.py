"""Which changes of a command a recording speaks for, and which of them may be tried."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding, Fix, Rule
from grpo_doctor.trace.model import Trace
from grpo_doctor.treat.decision import ALGORITHM, LEAST_GAIN_PCT
from grpo_doctor.whatif import Prediction
from grpo_doctor_reports.formatting import signed_percent
from grpo_doctor_reports.schema.treat import ChangeEntry, Percent


def changes_in(trace: Trace, *, first: int = 0, algorithm: bool = False) -> list[ChangeEntry]:
    """Return every fix of the recording's findings, those that can't be tried as refused.

    Args:
        trace: a recording.
        first: the number of the first.
        algorithm: whether changes of the algorithm may be tried.
    """
    results = run_rules(RunView.of(trace))
    seen: set[str] = set()
    changes: list[ChangeEntry] = []
    for rule, finding in results.findings:
        for fix in _worth_a_word(finding):
            text = fix.typed or fix.spelling
            if text not in seen:
                seen.add(text)
                entry = _change(rule, finding, fix, text, first + len(changes))
                changes.append(_judged(entry, fix, algorithm))
    return changes


def _worth_a_word(finding: Finding) -> Iterator[Fix]:
    """What can be pasted; where nothing can, the next step."""
    yield from finding.to_paste or finding.next_steps[:1]


def _change(rule: Rule, finding: Finding, fix: Fix, text: str, index: int) -> ChangeEntry:
    return ChangeEntry(
        index=index,
        finding=rule.id,
        title=finding.headline or rule.title,
        text=text,
        math=fix.safety,
        risk=fix.risk,
        cost_pct=100 * finding.cost,
        predicted=_percent(fix.predicted) if fix.predicted else None,
        unpredicted=fix.unpredicted,
    )


def _percent(predicted: Prediction) -> Percent:
    return Percent(low=predicted.low, mid=predicted.mid, high=predicted.high)


def _judged(change: ChangeEntry, fix: Fix, algorithm: bool) -> ChangeEntry:
    why = _refusal(change, fix, algorithm)
    return replace(change, state="refused", why=why) if why else change


def _refusal(change: ChangeEntry, fix: Fix, algorithm: bool) -> str:
    """Return why a fix is not tried; empty where it may be."""
    return _misplaced(fix) or _worthless(change) or _of_the_algorithm(fix, algorithm)


def _misplaced(fix: Fix) -> str:
    if not fix.pasted or fix.safety == "needs-code":
        return "it is a change of code or of another program"
    if fix.knob is None:
        return "it is no setting of this command"
    if fix.form != "flag" or (fix.where and not _in_script(fix.where)):
        return f"it does not go into the command: {fix.where or fix.form}"
    return ""


def _of_the_algorithm(fix: Fix, algorithm: bool) -> str:
    if fix.safety != ALGORITHM or algorithm:
        return ""
    return "it changes the algorithm; --allow algorithm tries it"


def _worthless(change: ChangeEntry) -> str:
    if change.predicted is None:
        if change.cost_pct < LEAST_GAIN_PCT:
            return "its gain is not predicted, and it can gain 2% at most"
    elif change.predicted.mid > -LEAST_GAIN_PCT:
        return f"predicted {signed_percent(change.predicted.mid)}: no gain above 2%"
    return ""


def _in_script(where: str) -> bool:
    """Whether the place is a shell script: `in train.sh`."""
    return where.startswith("in ") and where.endswith((".sh", ".bash", ".slurm", ".sbatch"))
