"""Documents at the edges of what they may hold, each by what it shows; `said.txt` has the words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo_doctor_reports import digest, time_words
from grpo_doctor_reports.schema.findings import FindingEntry
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from tests.demo_reports import DEMOS

Parts = dict[str, Any]


def summary(**given: Any) -> Parts:
    return {"summary": given}


def run(**given: Any) -> Parts:
    return {"run": given}


def found(**given: Any) -> Parts:
    return {"findings": [given]}


def rank(number: int, *spans: tuple[str, float | None]) -> Parts:
    return {"rank": number, "open": [{"name": n, "open_s": s} for n, s in spans]}


def inside(*spans: tuple[str, float | None]) -> Parts:
    return run(ranks=[rank(number, span) for number, span in enumerate(spans)])


def phase(**given: float) -> Parts:
    return summary(step_time_s=3.0, phases={"train": given})


def hung(state: str, *hangs: tuple[str, str]) -> Parts:
    return {"run": {"exit": {"state": state}},
            "hangs": [{"state": s, "headline": words} for s, words in hangs]}  # fmt: skip


def cost(share: float | None, mid: float | None) -> Parts:
    return found(cost={"share": share, "seconds_per_step": 0.298},
                 fixes=[{"spelling": "--a 1", "predicted": {"mid": mid, "unit": "step_time_pct"}}],
                 )  # fmt: skip


def path(*segments: Parts, **more: Any) -> Parts:
    return {"views": {"critical_path": {"segments": list(segments), **more}}}


def leg(start_s: float, end_s: float, **more: Any) -> Parts:
    return {"lane": "rank", "rank": 0, "start_s": start_s, "end_s": end_s, **more}


def bar(**given: Any) -> Parts:
    return {"summary": {"steps": 29, "phases": {"eval": given}}}


TWO: Parts = {"train": {"seconds": 3.0}, "rollout": {"seconds": 0.0}}
ONE: Parts = {"train": {"seconds": 3.0}}
REST: Parts = {**ONE, "unattributed": {"seconds": 1.0}}
TIMES: Parts = {"step_time_s": 2.0}
LOSS: Parts = {"dropped_events": 1_204, "missing_ranks": [3, 4], "truncated": True, "notes": ["n"]}
GATHER = ("train", 700.0), ("train/all_reduce", 690.0)
OPEN = [rank(0, *GATHER), rank(1, *GATHER[:1], ("train/all_reduce", 690.4)),
        rank(2, ("rollout/generate", 703.0)), rank(3)]  # fmt: skip
BUSY: Parts = {"gpu_busy_pct": 90.0, "gpu_truly_busy_pct": 40.0}
TRAINED: Parts = {"model": "m", "parallelism": "DP 2", "gpus": [{"name": "H100"}]}
KINDS: Parts = {
    "accounting": {"idle": 0.1, "work": 0.7, "made_up": 1.0, "wait": 0.2, "transfer": None},
    "set_apart": {"checkpoint": [50, 25], "eval": [], "warmup": [1]},
    "left_out": {"warm-up": [1], "unfinished": [60, 61]},
    "steady": {"first_step": 3, "reason": "compiled"},
    "gpu_busy_pct": 97.0, "gpu_truly_busy_pct": 41.0, "gpu_busy_by": "sm_active",
}  # fmt: skip
WORK: Parts = {"seconds": 10.0, "wait_seconds": 4.0, "transfer_seconds": 3.0, "idle_seconds": 9.0}
SEEN = [{"rank": 0}, {"rank": 1}]

CLOCKS: list[Parts] = [
    {"text": "one clock"}, {}, {"max_error_ms": None, "methods": []}, {"max_error_ms": 2.5},
    {"max_error_ms": 2.5, "methods": ["ntp", "same clock"]},
]  # fmt: skip

CASES: dict[str, Parts] = {
    "nothing": {},
    "a killed run": dict(DEMOS["killed"]()),
    # the bar of a step
    "a bar never overflows and ends with the rest": summary(
        step_time_s=10.0, unattributed={"seconds": 1.0},
        phases={"train": {"seconds": 8.0, "wait_seconds": 2.0}, "rollout": {"seconds": 4}}),
    "a bar of what its parts come to": summary(phases=TWO),
    "a bar of the step": summary(phases=TWO, step_time_s=4.0),
    "a bar with a rest": summary(phases=TWO, step_time_s=4.0, unattributed={"seconds": 1.0}),
    "a bar longer than the step": summary(
        phases=TWO, step_time_s=1.0, unattributed={"seconds": 3.0}),
    **{f"a rest of {rest}": summary(phases=ONE, unattributed=rest)
       for rest in ({"seconds": 0.0}, {"seconds": -1.0}, None)},
    "a rest alone": summary(unattributed={"seconds": 1.0}, step_time_s=1.0),
    "a rest that is a phase already": summary(phases=REST, unattributed={"seconds": 1.0}),
    "neither wait nor idle": phase(seconds=3.0, wait_seconds=0.0),
    "a wait": phase(seconds=3.0, wait_seconds=1.0),
    "idle": phase(seconds=3.0, idle_seconds=1.0),
    "the largest part first": summary(phases={"rollout": {"seconds": 1.0}, **ONE}),
    "kinds never exceed a phase's seconds": phase(**WORK),
    "kinds of less than nothing": phase(seconds=-1.0, wait_seconds=1.0),
    "a kind below nothing": phase(seconds=10.0, wait_seconds=-4.0, transfer_seconds=3.0),
    # how it ended and what was lost
    "stalls of a run that goes on": run(exit={"state": "running"}, ranks=OPEN),
    "stalls by the innermost open span": run(ranks=OPEN),
    "how long is a range where it differs": inside(("train", 5.0), ("train", 9.0)),
    "an unnamed span": inside(("", None)),
    **{f"{count} open spans": inside(*((f"phase {at}", float(at)) for at in range(count)))
       for count in (4, 5, 6)},
    "everything lost": run(loss=LOSS),
    "one lost": run(loss={"dropped_events": 1, "missing_ranks": [3], "notes": ["", "n"]}),
    **{f"the last verdict on a run that {state}": hung(
        state, ("stuck", "a"), ("dead", "b"), ("slow", "c"), ("stuck", ""))
       for state in ("failed", "killed", "interrupted", "hung", "finished", "running", "unknown")},
    "a slow job killed": hung("killed", ("slow", "c")),
    "no verdict on a killed job": hung("killed"),
    "a verdict": summary(verdict="Slow.", steps=0),
    **{f"{steps} steps": summary(steps=steps) for steps in (0, 1, 2)},
    **{f"ended {end}": run(exit=end) for end in (
        {"state": "finished", "code": 0}, {"state": "finished", "code": 3},
        {"state": "failed", "code": 0}, {"state": "failed"},
        {"state": "killed", "signal": "SIGKILL", "code": -9})},
    "ended after a while": run(exit={"state": "finished", "code": 1}, duration_s=5.0),
    "ended well after a while": run(exit={"state": "finished", "code": 0}, duration_s=5.0),
    # findings
    "the first fix with a prediction": found(
        fixes=[{"spelling": "a"}, {"spelling": "b", "predicted": {"mid": -3.0}}]),
    "a finding alone": found(),
    "a fix without a spelling": found(
        fixes=[{"knob": "offload.optimizer", "from": True, "to": False}]),
    "fixes as far as they are known": found(fixes=[
        {"knob": "a", "from": 1, "to": 2}, {"knob": "a", "to": 2}, {"knob": "a"}, {"to": 2},
        {"knob": "a", "to": 2, "spelling": "--a 2"}]),
    "what is copied is what is typed": found(fixes=[
        {"spelling": "--x 1"}, {"spelling": "for `s`: --x 1", "where": "for `s`", "typed": "--x 1"},
        {"spelling": "for `s`: --x 1"}, {"spelling": "two\nlines: -x"}]),
    "advice where there is no fix": found(
        next_steps=[{"text": "look"}, {"text": "ask", "predicted": {"mid": -2.0}}]),
    "advice with a gain beside a fix without": found(
        fixes=[{"spelling": "a"}],
        next_steps=[{"text": "look"}, {"text": "ask", "predicted": {"mid": -2.0}}]),
    "gains": found(fixes=[{"spelling": "x", "predicted": predicted} for predicted in (
        {"mid": 2.0, "low": 1.0, "high": 3.0, "unit": "bytes"}, {"mid": 2.0, "unit": "s"},
        {"mid": -14.0, "low": -18.0, "high": -9.0}, {"mid": -14.0, "low": -18.0},
        {"mid": -14.0, "high": -9.0}, {"mid": -14.0, "unit": "step_time_pct"},
        {"low": -18.0, "high": -9.0}, None)]),
    "what a fix may change": found(fixes=[
        {"spelling": "x", "safety": safety} for safety in ("same-math", "needs-code", "odd", "")]),
    **{f"certain to {share}": found(confidence=share) for share in (1.0, 0.97, 0.7, 0.69, 0.0)},
    **{f"a cost of {share}, a gain of {mid}": cost(share, mid) for share, mid in (
        (0.51, -54.0), (0.51, -51.4), (0.11, -6.8), (0.11, None), (None, -12.0))},
    # headline numbers
    "a step": summary(**TIMES),
    "a step and one end": summary(**TIMES, step_time_p10_s=1.0),
    "a step and the other end": summary(**TIMES, step_time_p90_s=3.0),
    "a step and both": summary(**TIMES, step_time_p10_s=1.0, step_time_p90_s=3.0),
    "tokens": summary(tokens_per_s=5.0),
    "tokens of a GPU": summary(tokens_per_s_per_gpu=5.0),
    "tokens of a GPU and all": summary(tokens_per_s_per_gpu=5.0, tokens_per_s=40.0),
    "a busy GPU": summary(gpu_busy_pct=90.0),
    "a GPU that works": summary(**BUSY),
    "a GPU that works, by what": summary(**BUSY, gpu_busy_by="sm_active"),
    **{f"{given}": summary(**given) for given in (
        {"steps": 5, "steps_total": 5}, {"steps": 5, "steps_total": 6},
        {"steps": 5, "steps_total": 6, "warmup_steps": 1})},
    **{f"model FLOPs {given}": summary(utilization={"step_pct": 30.0, **given})
       for given in ({}, {"train_pct": 45.0}, {"train_pct": 45.0, "padding_counted": True})},
    **{f"a step of {step_s} s, the longest of {longest} s": summary(
        step_time_s=step_s, step_time_p10_s=1.0, step_time_p90_s=3.0,
        longest_step={"number": 7, "seconds": longest})
       for step_s, longest in ((2.0, 3.6), (2.0, 3.7), (4.0, 3.5), (1.0, 3.0), (3.0, 3.0))},
    # what it ran on
    "a log of a job of any size": run(ranks=SEEN[:1]),
    "ranks that were seen": run(ranks=SEEN, hosts=["a", "b"]),
    "ranks of the job": run(ranks=SEEN, world_size=8, hosts=["a"]),
    "one rank without a GPU": run(ranks=SEEN[:1], hosts=["a"]),
    "ranks without a host": run(ranks=SEEN[:1], world_size=16),
    "ranks without a GPU": run(world_size=4, hosts=["a", "b"]),
    "a GPU": run(gpus=[{"name": "H100"}], hosts=["a"]),
    "GPUs of two hosts": run(gpus=[{"name": "H100"}] * 2, hosts=["a", "b"]),
    "GPUs of several kinds": run(gpus=[{"name": "H100"}, {"name": "A100"}]),
    **{f"trained by {name} {version}": run(framework=name, framework_version=version, **TRAINED)
       for name, version in (("bundled", "0.1"), ("trl", None), ("unknown", "0.1"), ("", "0.1"))},
    "trained by itself": run(framework="bundled", framework_version="0.1"),
    # where the time went
    "shares in one order, steps set apart": summary(**KINDS),
    "effective utilization": summary(gpu_truly_busy_pct=41.0),
    "what the driver reports alone": summary(gpu_busy_pct=97.0),
    "effective by power": summary(gpu_truly_busy_pct=41.0, gpu_busy_by="power"),
    "steady from the first": summary(steady={"first_step": 0}),
    "what is left out is not included too": summary(
        set_apart={"eval": [3], "warmup": [1, 2]}, left_out={"warm-up": [1, 2]}),
    **{f"clock {clock}": run(clock=clock) for clock in CLOCKS},
    "a path begins at nought and names its lanes": path(
        leg(102.0, 104.0, rank=5, phase="train"), leg(104.0, 105.0, rank=5, phase="sync",
                                                      kind="transfer"),
        leg(100.0, 102.0, lane="engine", rank=None, phase="rollout", kind="x"), step=7),
    "a path with a wait": path(
        leg(0.0, 1.0, phase="train"), leg(1.0, 4.0, rank=1, phase="rollout"),
        leg(4.0, 5.5, phase="train", kind="wait"), leg(5.5, 6.0, phase="sync", kind="transfer"),
        seconds=6.0),
    "a path of one lane": path(leg(0.0, 1.0, phase="train"), seconds=1.0),
    "pieces without length": path(leg(10.0, 10.0), leg(11.0, 12.0), leg(12.0, 11.0)),
    "nothing but such": path(leg(1.0, 1.0)),
    "a path as long as its last piece": path(leg(2.0, 4.0), leg(5.0, 6.0), seconds=3.0),
    "a path as long as its step": path(leg(2.0, 4.0), leg(5.0, 6.0), seconds=9.0),
    "lanes are ranks, engines or unknown": path(
        leg(0.0, 1.0, rank=5), leg(0.0, 1.0, lane="engine", rank=None),
        leg(0.0, 1.0, lane="", rank=7), leg(0.0, 1.0, lane="", rank=None)),
    "a mean of one step": bar(seconds=2.0, p10_s=0.0, p90_s=0.0, steps=1),
    "a mean of all steps": bar(seconds=2.0, p10_s=1.0, p90_s=3.0, steps=29),
    "a mean above": bar(seconds=4.0, p10_s=1.0, p90_s=3.0),
    "a mean below": bar(seconds=0.5, p10_s=1.0, p90_s=3.0),
    "a mean without ends": bar(seconds=0.5),
}  # fmt: skip


def said() -> Iterator[tuple[str, str]]:
    """What is said of each."""
    for name, parts in CASES.items():
        lines = _lines(read_report({"schema": 1, **parts}))
        yield name, "\n".join(line for line in lines if line.strip(" /:"))


def _lines(report: ReportDocument) -> Iterator[str]:
    yield digest.verdict(report)
    hang = digest.deadly_hang(report)
    yield f"ended by: {hang.headline}" if hang else ""
    bar = digest.step_bar(report)
    for part in bar:
        kinds = part.work_seconds, part.wait_seconds, part.transfer_seconds, part.idle_seconds
        yield f"{part.phase} {part.fraction:.4f}, {part.seconds:g} s: {kinds}"
        yield time_words.seldom_words(part, report.summary.steps)
    yield f"{digest.bar_sentence(bar)} / {digest.wait_words(bar)}"
    yield from (*digest.losses(report), *digest.stalls(report))
    for entry in report.findings:
        yield from _finding(entry)
    for key in digest.key_numbers(report):
        yield f"{key.label} {key.value} / {key.detail}"
    yield f"{', '.join(digest.setup_parts(report))} / {digest.gpus_words(report.run)}"
    yield from (f"{topic}: {words}" for topic, words in time_words.time_notes(report))
    yield time_words.accounting_sentence(time_words.kind_shares(report.summary))
    if (found := report.views.critical_path) is not None:
        yield f"{time_words.path_length(found):g} s; {time_words.path_sentence(found)}"
        for lane, pieces in time_words.lanes_of(found):
            yield f"{lane}: {[(piece.start_s, piece.end_s, piece.kind) for piece in pieces]}"


def _finding(entry: FindingEntry) -> Iterator[str]:
    fix, step = digest.main_fix(entry), digest.main_step(entry)
    yield f"first: {digest.fix_line(fix) if fix else step.text if step else None}"
    yield f"{digest.certainty(entry.confidence or 0.0)}, {digest.main_gain(entry)}"
    yield digest.cost_beside_gain(entry)
    for each in entry.fixes:
        yield f"{digest.fix_line(each)!r} {digest.pasted(each)} {digest.safety_words(each.safety)}"
        yield f"  {digest.gain_sentence(each.predicted)} / {digest.gain(each.predicted)}"
        yield f"  {digest.beyond_cost(entry, each.predicted)}"
