"""Micro-batches: the fixed cost of each pass, fitted to this run's own passes.

seconds of a pass = a + b * padded tokens. Each token counts with its share of attention, which
grows with the width of a pass, not with its number of completions.
If all passes of a run have one size, a and b are
unknown, and the model says so. The error of a fit comes from leaving out each step in turn: in
simulated runs its interval holds 90% of the time. Log-probs are computed in passes of the same
size, so they change with them. transformers' trainers load a batch for each pass, and if the first
fed the rollout of the whole step, each other batch is as large: fewer passes load less. Packing
removes padded tokens.
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.models.engine import GENERATE
from grpo_doctor.whatif.models.passes import BATCH, PLACES, WHOLE, fit, measured_passes, pass_of
from grpo_doctor.whatif.prediction import Spread
from grpo_doctor.whatif.step_model import Change, Edit

TOKENS = "train/tokens"
_PASSES, _FREE = "train.grad_accumulation", "train.padding_free"
_ERROR = 0.20
# Passes up to so much larger or smaller than those measured: caches and kernels change beyond.
_MOST_GROWTH = 8


def _micro_batch(case: Case) -> Effect:
    batch, passes = case.knob(BATCH), case.knob(_PASSES)
    new_batch = case.after.get(BATCH, batch)
    new_passes = case.after.get(_PASSES, passes)
    if not batch or not passes or not new_batch or not new_passes:
        lacking = "size" if not batch or not new_batch else "number"
        raise UnsupportedError(f"the {lacking} of the micro-batches was not recorded")
    if batch * passes != new_batch * new_passes:
        raise UnsupportedError(
            f"a rank's batch would have {new_batch * new_passes} rows instead of {batch * passes}"
        )
    ratio = new_batch / batch
    if ratio == 1:
        return NOTHING
    if not 1 / _MOST_GROWTH <= ratio <= _MOST_GROWTH:
        raise UnsupportedError(
            f"passes {ratio:.3g} times as large are too far from the measured ones"
        )
    if case.has_gpu:
        raise UnsupportedError(
            "kernels run outside the host's spans, so a pass's own time is unknown"
        )
    line = fit(measured_passes(case.analysis))
    if line is None:
        raise UnsupportedError(
            "this run's passes have one size, so the fixed cost of a pass is unknown"
        )
    now, part = line.seconds, pass_of(case.analysis)
    # What is fixed is paid once per pass: the fewer passes, the less of it.
    loading = (Edit(("dataload",), 1 / ratio),) if _loads_for_each_pass(case) else ()

    def changes(fixed: float) -> tuple[Change, ...]:
        return (Edit((part, "logprob"), (fixed / ratio + (now - fixed)) / now), *loading)

    few, many = changes(line.fixed_low), changes(line.fixed_high)
    middle = changes(line.fixed)
    return Effect(
        middle,
        f"a pass costs {1e3 * line.fixed:.3g} ms and {1e6 * line.slope:.3g} us per padded token, "
        f"and memory has room for larger passes",
        _ERROR,
        spreads=(Spread(middle, few, many) if ratio > 1 else Spread(middle, many, few),),
    )


def _loads_for_each_pass(case: Case) -> bool:
    """Whether each pass has a batch of the loader, of which one feeds the step's whole rollout."""
    spans, names = case.analysis.trace.spans, case.analysis.trace.names
    if pass_of(case.analysis) != WHOLE or GENERATE not in names:
        return False
    rows = np.concatenate([main.rows for main in case.analysis.mains])
    name = spans.name[rows[spans.kind[rows] == Kind.SPAN]]
    passes, rollouts = (int((name == names.index(span)).sum()) for span in (WHOLE, GENERATE))
    return rollouts > 0 and round(passes / rollouts) == case.knob(_PASSES)


def padding_changes(case: Case, share: float) -> Effect:
    """Pass with only `share` of their places."""
    line = fit(measured_passes(case.analysis))
    if line is None:
        return Effect(
            (Edit(("train",), (1 + share) / 2),),
            "a pass takes time in proportion to its tokens, or half of that",
            2 * _ERROR,
            at_least=(Edit(("train",), 1.0),),
            at_most=(Edit(("train",), share),),
        )
    part = pass_of(case.analysis)
    many, middle, few = ((Edit((part,), factor),) for factor in line.shares_of_narrower(share))
    assumes = "a pass's time depends on its padded tokens"
    return Effect(middle, assumes, _ERROR, spreads=(Spread(middle, shy=many, bold=few),))


def _padding(case: Case) -> Effect:
    if any(value is not True for value in case.after.values()):
        raise UnsupportedError("the padding after the change was not recorded")
    if case.knob(_FREE) is True:
        return NOTHING
    return padding_changes(case, tokens_share(case))


def tokens_share(case: Case) -> float:
    """Return which share of the passes' places holds tokens."""
    tokens, places = case.per_step(TOKENS), case.per_step(PLACES)
    if not tokens or not places:
        raise UnsupportedError("the share of padding in training was not recorded")
    return min(1.0, tokens / places)


MODELS = (
    CostModel("micro-batch", (BATCH, _PASSES), _micro_batch),
    CostModel("no padding", (_FREE,), _padding),
)
