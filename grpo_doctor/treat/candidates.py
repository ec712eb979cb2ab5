"""Which changes of a command a recording speaks for, and which of them may be tried."""

from __future__ import annotations

from msgspec.structs import replace

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding, Fix, Rule
from grpo_doctor.trace.model import Trace
from grpo_doctor.treat.decision import ALGORITHM, LEAST_GAIN_PCT
from grpo_doctor.treat.edits import SCRIPTS
from grpo_doctor_reports.formatting import signed_percent
from grpo_doctor_reports.schema.treat import ChangeEntry, Percent


def changes_in(trace: Trace, *, first: int = 0, algorithm: bool = False) -> list[ChangeEntry]:
    """Return each fix of the findings once, or their next step; what can't be tried as refused.

    Args:
        trace: a recording.
        first: the number of the first change.
        algorithm: whether changes of the algorithm may be tried.
    """
    changes: dict[str, ChangeEntry] = {}
    view = RunView.of(trace)
    for rule, finding in run_rules(view).findings:
        for fix in finding.to_paste or finding.next_steps[:1]:
            text = fix.typed or fix.spelling
            if text not in changes:
                change = _change(rule, finding, fix, algorithm, view.lacks_vllm)
                changes[text] = replace(change, index=first + len(changes))
    return list(changes.values())


def _change(
    rule: Rule, finding: Finding, fix: Fix, algorithm: bool, lacks_vllm: bool
) -> ChangeEntry:
    predicted = fix.predicted
    why = _misplaced(fix) or _worthless(finding, fix)
    if lacks_vllm and (fix.knob or "").startswith("vllm."):
        why = "vLLM is not installed where the job runs"
    if not why and fix.safety == ALGORITHM and not algorithm:
        why = "it changes the algorithm; --allow algorithm tries it"
    return ChangeEntry(
        finding=rule.id,
        title=finding.headline or rule.title,
        text=fix.typed or fix.spelling,
        math=fix.safety,
        risk=fix.risk,
        cost_pct=100 * finding.cost,
        predicted=Percent(low=predicted.low, mid=predicted.mid, high=predicted.high)
        if predicted
        else None,
        unpredicted=fix.unpredicted,
        state="refused" if why else "untried",
        why=why,
    )


def _misplaced(fix: Fix) -> str:
    """Return why a fix does not go into the job's own command; empty where it does."""
    if not fix.pasted or fix.safety == "needs-code":
        return "it is a change of code or of another program"
    in_script = fix.where.startswith("in ") and fix.where.endswith(SCRIPTS)
    if fix.knob is None or fix.form != "flag" or (fix.where and not in_script):
        return f"it does not go into the command: {fix.where or fix.form}"
    return ""


def _worthless(finding: Finding, fix: Fix) -> str:
    if fix.predicted is None:
        unknown = "its gain is not predicted, and its finding costs under 2% of a step"
        return unknown if 100 * finding.cost < LEAST_GAIN_PCT else ""
    if fix.predicted.mid > -LEAST_GAIN_PCT:
        return f"predicted {signed_percent(fix.predicted.mid)}: no gain above 2%"
    return ""
