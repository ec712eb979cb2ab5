"""The run was ended by an error."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.analysis.steps import ERROR_PREFIX, noted
from grpo_doctor.findings.device_memory import fixes_for_memory
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable
from grpo_doctor.findings.shared import OUT_OF_MEMORY
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.view import RunView, rule

RULE = rule(
    "system",
    Signal(
        "how the job ended: start it with `grpo-doctor run`",
        lambda a: a.trace.run.exit.state != "unknown",
    ),
)
_FOLLOWS = ("connection closed by peer", "connection reset by peer", "remote process exited")
_ENDED = "a run that ended has no step time to change"
_ONE_DEVICE = (
    "start one process per GPU (ms-swift: NPROC_PER_NODE=GPUS, TRL: accelerate launch "
    "--num_processes GPUS), or show a single process one GPU (CUDA_VISIBLE_DEVICES=0): one "
    "process that sees several GPUs spreads the model over them, but keeps its inputs on the first"
)
_WHOLE_BATCHES = (
    "make the number of rows a multiple of ranks x batch x accumulation, or drop the last, "
    "incomplete batch (ms-swift, TRL: --dataloader_drop_last true)"
)
_LESS_FOR_VLLM = "lower the engine's share of the GPU, or end other programs on it (nvidia-smi)"
# Words of the error: what helped. The first that fits is told.
KNOWN: tuple[tuple[str, str], ...] = (
    ("to be on the same device", _ONE_DEVICE),  # kernels for GPUs
    ("is not on the expected device", _ONE_DEVICE),  # torch's own comparison
    ("ds_active_sub_modules", _WHOLE_BATCHES),
    ("less than desired gpu memory utilization", _LESS_FOR_VLLM),
    (OUT_OF_MEMORY, "use shorter completions, fewer of them per pass, or more GPUs"),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it left a phase of a rank, or, without a phase, as it ended a process."""

    at_ns: int
    rank: int | None
    phase: str
    text: str


def check(view: RunView) -> Answer:
    """Look at how the run ended, and at the errors that were recorded."""
    exit_ = view.trace.run.exit
    if exit_.state != "failed":
        return NotApplicable(f"the run was not ended by an error ({exit_.state})")
    failed = failures(view) or uncaught(view)
    if not failed and not view.trace.run.ended:
        return NotApplicable("no error was recorded: the ranks' own log shows why the run ended")
    if not failed:
        return _without_error(view)
    causes = (f for f in failed if not any(words in f.text.lower() for words in _FOLLOWS))
    first = next(causes, failed[0])
    left = f"{first.phase} of rank {first.rank}" if first.phase else "the process"
    return Finding(
        severity="high",
        confidence=0.9,
        phases=(first.phase,) if first.phase else (),
        ranks=() if first.rank is None else (first.rank,),
        evidence=(
            Evidence("error", first.text, "", f"as it left {left}"),
            Evidence("ranks that failed", len({f.rank for f in failed}), "", "recorded errors"),
            *_order(view),
        ),
        cause=f"{_who(first)} ended{_inside(first)}: {first.text}",
        fixes=_fixes(view, first),
        headline=_headline(first),
    )


def _headline(first: Failure) -> str:
    if OUT_OF_MEMORY in first.text.lower():
        return f"{_who(first)} ran out of memory{_inside(first)}"
    name = first.text.partition(":")[0] if first.phase else first.text
    return f"{_who(first)} ended the run{_inside(first)}: {name}"


def _who(failure: Failure) -> str:
    return "The script" if failure.rank is None else f"Rank {failure.rank}"


def _inside(failure: Failure) -> str:
    return f" in {failure.phase}" if failure.phase else ""


def _order(view: RunView) -> tuple[Evidence, ...]:
    """Who ended first, as the supervisor saw it."""
    text = "; ".join(view.trace.run.ended)
    return (Evidence("order of exits", text, "", "pidfd, /proc"),) if text else ()


def _without_error(view: RunView) -> Finding:
    """No Python error was recorded: a rank was killed, crashed, or left with an exit code."""
    first = view.trace.run.ended[0]
    where = f"read the last lines of {first.partition(' (')[0]} in the job's log"
    headline = first[:1].upper() + first[1:]
    return Finding(
        severity="high",
        confidence=0.8,
        evidence=_order(view),
        cause=f"{headline}.",
        fixes=(view.advice(where, _ENDED, safety="needs-code"),),
        headline=headline,
    )


def uncaught(view: RunView) -> list[Failure]:
    """The last error that ended each rank, in order of time; of a process without a rank alone."""
    errors = sorted(view.trace.run.uncaught, key=lambda error: error.at_ns)
    last = {e.rank: Failure(e.at_ns, e.rank, "", e.text) for e in errors}
    of_ranks = [failure for rank, failure in last.items() if rank is not None]
    return sorted(of_ranks or last.values(), key=lambda f: f.at_ns)


def failures(view: RunView) -> list[Failure]:
    """Return the last recorded error of each rank, in order of time."""
    last: dict[int, Failure] = {}
    for rank, at_ns, error in noted(view.trace, ERROR_PREFIX):
        phase, _, text = error.partition("/")
        if rank not in last or last[rank].at_ns <= at_ns:
            last[rank] = Failure(at_ns, rank, phase, text)
    return sorted(last.values(), key=lambda f: f.at_ns)


def _fixes(view: RunView, failure: Failure) -> tuple[Fix, ...]:
    if failure.phase and OUT_OF_MEMORY in failure.text.lower():
        settings = fixes_for_memory(view, failure.phase)
        if settings:
            return tuple(settings)
    text = next((fix for words, fix in KNOWN if words in failure.text.lower()), "")
    risk = "" if text else "The first error is the reason; later ones follow from it."
    whose = "" if failure.rank is None else f" of rank {failure.rank}"
    text = text or f"read the traceback{whose} in the job's log: grpo-doctor diagnose LOG"
    return (view.advice(text, _ENDED, safety="needs-code", risk=risk),)
