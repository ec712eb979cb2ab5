"""Runs pairs, predicts from the first of each alone, and measures the change."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor import knobs
from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.trace.read import load
from grpo_doctor.whatif import Prediction, Withheld, build_model, predict_settings, replay
from grpo_doctor.whatif.models.cost_model import knob
from tests.accuracy.fixes import Fix, Flags, arguments
from tests.recorded import Workshop


@dataclass(frozen=True)
class Pair:
    """One paired run of a fix: seconds per step, the prediction in percent, what a replay of the
    unchanged run is off by (of its mean step)."""

    fix: str
    seed: int
    before_s: float
    after_s: float
    low: float
    mid: float
    high: float
    replay_off: float
    reason: str = ""

    @property
    def measured(self) -> float:
        """The change of the step time in percent."""
        return 100 * (self.after_s / self.before_s - 1)


def run_pair(shop: Workshop, fix: Fix, inputs: Path, folder: Path, seed: int) -> Pair:
    """Runs a fix's run, predicts, applies the fix and runs it again."""
    analysis = _run(shop, fix, fix.before, inputs, folder / "before", seed)
    predicted = predict_fix(analysis, fix)
    flags = after(fix, analysis)
    changed = _run(shop, fix, flags, inputs, folder / "after", seed)
    shutil.rmtree(folder, ignore_errors=True)
    model = build_model(analysis)
    off = abs(float(replay(model).mean()) / model.step_s - 1)
    low, mid, high, reason = float("nan"), float("nan"), float("nan"), ""
    if isinstance(predicted, Withheld):
        reason = predicted.reason
    else:
        low, mid, high = predicted.low, predicted.mid, predicted.high
    before_s, after_s = analysis.step_s or 0.0, changed.step_s or 0.0
    return Pair(fix.name, seed, before_s, after_s, low, mid, high, off, reason)


def after(fix: Fix, analysis: Analysis) -> Flags:
    """The flags with the fix applied: by the spelling that a finding prints."""
    flags = {**fix.before, **fix.after_flags}
    run = analysis.trace.run
    for name, value in fix.settings.items():
        spelled = knobs.spell(run.framework, run.framework_version, name, value)
        assert spelled is not None, name
        key, _, text = spelled.removeprefix("--").partition(" ")
        flags[key] = text
    return flags


def predict_fix(analysis: Analysis, fix: Fix) -> Prediction | Withheld:
    """What is said of a fix from the run before it alone."""
    if fix.rule:
        return _predicted_by_rule(analysis, fix.rule)
    before = {name: knob(analysis, name) for name in fix.settings}
    return predict_settings(analysis, build_model(analysis), before, fix.settings)


def _predicted_by_rule(analysis: Analysis, name: str) -> Prediction | Withheld:
    """What a rule would change: the straggler's whether it finds enough to say so or not."""
    from grpo_doctor.findings.engine import run_rules
    from grpo_doctor.findings.rules import gd004_straggler_rank
    from grpo_doctor.findings.selection import find
    from grpo_doctor.findings.view import RunView

    view = RunView(analysis)
    if name == "GD004":
        return view.gain(gd004_straggler_rank.change_of(view))
    found = run_rules(view, find(name)).findings
    remedy = found[0][1].remedy if found else None
    return Withheld(f"{name} finds nothing") if remedy is None else view.gain(remedy.change)


def _run(shop: Workshop, fix: Fix, flags: Flags, inputs: Path, folder: Path, seed: int) -> Analysis:
    words = arguments({**flags, "output_dir": str(folder / "out")}, inputs, seed)
    return analyse(load(shop.train(words, folder, environment=dict(fix.environment))))


def run_all(
    shop: Workshop, fixes: Sequence[Fix], inputs: Path, folder: Path, seeds: Sequence[int]
) -> Iterator[Pair]:
    """Every fix with every seed, one after the other, seeds outermost: a slow minute of the
    machine falls on all fixes."""
    for seed in seeds:
        for fix in fixes:
            yield run_pair(shop, fix, inputs, folder / f"{seed}", seed)


def line(pair: Pair) -> str:
    """A pair in one line, as it is printed when it is done."""
    prediction = pair.reason or f"{pair.low:+.1f} {pair.mid:+.1f} {pair.high:+.1f}%"
    return (
        f"seed {pair.seed} {pair.fix}: {pair.before_s:.3f} s -> {pair.after_s:.3f} s, "
        f"measured {pair.measured:+.1f}%, predicted {prediction}"
    )
