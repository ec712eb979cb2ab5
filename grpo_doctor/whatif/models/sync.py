"""Weights sent to vLLM in fewer parts: each part has a fixed cost.

One run can't separate a part's fixed cost from that of its bytes, so both are bounds.
"""

from __future__ import annotations

from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.step_model import Edit

_KNOB, GATHER = "sync.move_model_batches", "sync/gather"
_ERROR = 0.25


def _fewer_parts(case: Case) -> Effect:
    part = GATHER if case.work_s(GATHER) else "sync"
    if not case.work_s(part):
        raise UnsupportedError("no weight sync was recorded")
    before, after = case.before.get(_KNOB) or _gathers(case), case.after[_KNOB] or 1
    if not before:
        raise UnsupportedError("the number of parts was not recorded")
    if after == before:
        return NOTHING
    if after > before:
        raise UnsupportedError(
            "the cost of one more part was not measured here; it saves memory, not time"
        )
    ratio = after / before
    return Effect(
        (Edit((part,), (1 + ratio) / 2),),
        f"{after} instead of {before} parts take between as long as now and {100 * ratio:.0f}% "
        "of it, and memory has room for larger ones",
        _ERROR,
        at_least=(Edit((part,), 1.0),),
        at_most=(Edit((part,), ratio),),
    )


def _gathers(case: Case) -> int | None:
    """Return the gathers per sync, as recorded on one rank; None without any."""
    trace, spans = case.analysis.trace, case.analysis.trace.spans
    if GATHER not in trace.names or not case.analysis.mains:
        return None
    main, steps = case.analysis.mains[0], len(case.analysis.steps.numbers)
    code = trace.names.index(GATHER)
    count = int(((spans.name[main.rows] == code) & (spans.kind[main.rows] == Kind.SPAN)).sum())
    return round(count / steps) if steps and count else None


MODELS = (CostModel("parts of a weight sync", (_KNOB,), _fewer_parts),)
