"""What the words in a report mean."""

from __future__ import annotations

from typing import Final

TERMS: Final = (
    ("step", "One optimizer step: rollout, reward, log-probs, training, update, weight sync."),
    ("used steps", "Steps that ended uncut on every rank, after warm-up: what all means are over."),
    ("step time", "From a step's begin to its end, the mean over ranks and used steps."),
    ("saving", "`16 → 12 s per step`: the step time now, and predicted with the fix."),
    ("work", "Time a rank spends on its own work: computing, copying, reading. Drawn solid."),
    ("wait", "Time a rank spends waiting for other ranks. Drawn hatched."),
    ("transfer", "Moving data: a copy, or a collective after all ranks arrived. Drawn striped."),
    ("host time", "A phase by the host's clock alone: when GPU work was queued, not when it ran."),
    ("idle", "A rank or engine has no work, and waits for no particular rank."),
    ("skew", "Of a collective: how long the others wait for the last rank to arrive."),
    ("critical path", "The chain that made a step so long: only changes on it shorten the step."),
    ("steady", "Used steps without evaluation or checkpoint: what the chart of steps is about."),
    ("median step", "The used step of median length: half are shorter. The mean is the step time."),
    ("effective utilization", "By power or active SMs; the driver also counts waiting in NCCL."),
    ("unattributed", "Step time that no recorded phase covers. Drawn grey."),
    ("p10 to p90", "80% of the used steps lie in this range."),
    ("warm-up", "First steps, slower by compiling and caching; left out of every mean."),
    ("predicted", "Change of step time with the fix, replayed on this run; negative is faster."),
    ("what if", "Fixes replayed together. Not a sum: fixes may hide or need each other."),
    ("fix", "A concrete change: a flag, an edit of a file, a line of code, a command."),
    ("next step", "Advice where no such change is known: what to check, or to change by hand."),
    ("cost", "Time per step that a finding wastes; `up to`: all of a phase that is needed."),
    ("same math", "The fix changes speed only: same numbers, same algorithm."),
    ("changes numerics", "Results differ by rounding or reduction order."),
    ("changes the algorithm", "Training sees other data, or another objective. Check the curves."),
)  # fmt: skip

PHASE_MEANINGS: Final = (
    ("init", "Start-up: processes, model and engine loading."),
    ("dataload", "Waiting for, or making, the next batch of prompts."),
    ("rollout", "Generating completions."),
    ("reward", "Scoring completions."),
    ("logprob", "Log-probabilities under the reference and the old policy."),
    ("train", "Forward and backward."),
    ("optimizer", "The optimizer's update."),
    ("sync", "New weights to the rollout engine."),
    ("offload", "Moving weights or optimizer state between GPU and CPU memory."),
    ("checkpoint", "Saving."),
    ("eval", "Evaluation."),
)

KEYS: Final = (
    ("n p", "next worst step, previous worst step"),
    ("w s", "zoom all charts over time in and out, around the pointer; so do + and -"),
    ("a d", "move along the run; so do ← and →"),
    ("0", "show the whole run again; so does a double click"),
    ("Esc", "stop highlighting a finding"),
    ("g", "open and close this drawer"),
)
