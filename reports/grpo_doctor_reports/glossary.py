"""What the words in a report mean."""

from __future__ import annotations

from typing import Final

TERMS: Final = (
    ("step", "One optimizer step: rollout, reward, log-probs, training, update, weight sync."),
    ("used steps", "Complete steps after warm-up, on every rank. All averages are over them."),
    ("step time", "From the start of a step to its end, averaged over ranks and used steps."),
    ("saving", "`16 → 12 s per step`: the step time now, and predicted with the fix."),
    ("trajectory", "A sample of a rollout: its requests, tool calls and reward, until training."),
    ("staleness", "Weight updates between the weights that generated a sample and those trained."),
    ("work", "Time a rank spends on its own work: computing, copying, reading. Drawn solid."),
    ("wait", "Time a rank spends waiting for other ranks. Drawn hatched."),
    ("transfer", "Moving data: a copy, or a collective after all ranks arrived. Drawn striped."),
    ("host time", "A phase timed on the host only: when GPU work was queued, not when it ran."),
    ("idle", "Time in which a rank or engine has no work and waits for no other rank."),
    ("skew", "How long a collective waits for its last rank."),
    ("critical path", "The work that sets the step's length. Only changes on it shorten a step."),
    ("steady", "Used steps without an evaluation or a checkpoint."),
    ("median step", "The used step of median length. The step time is the mean, not the median."),
    ("effective utilization", "By power or active SMs. The driver also counts waiting in NCCL."),
    ("unattributed", "Step time that no recorded phase covers. Drawn gray."),
    ("p10 to p90", "80% of the used steps lie in this range."),
    ("warm-up", "First steps, slower because of compilation and caching. Excluded from averages."),
    ("predicted", "Change in step time with the fix, from replaying this run. Negative is faster."),
    ("what if", "Fixes replayed together. Gains are not additive: fixes may overlap."),
    ("fix", "A concrete change: a flag, an edit of a file, a line of code, a command."),
    ("next step", "Advice where no exact change is known: what to check or change by hand."),
    ("cost", "Time per step that a finding wastes; `up to` marks an upper bound."),
    ("same math", "The fix changes speed only: same numbers, same algorithm."),
    ("changes numerics", "Results differ by rounding or reduction order."),
    ("changes the algorithm", "Training sees other data, or another objective. Check the curves."),
)  # fmt: skip

PHASE_MEANINGS: Final = (
    ("init", "Startup: launching processes, loading the model and the engine."),
    ("dataload", "Loading or waiting for the next batch of prompts."),
    ("rollout", "Generating completions."),
    ("reward", "Scoring completions."),
    ("logprob", "Log-probabilities under the reference policy and the old policy."),
    ("train", "Forward and backward passes."),
    ("optimizer", "The optimizer update."),
    ("sync", "Sending new weights to the rollout engine."),
    ("offload", "Moving weights or optimizer state between GPU and CPU memory."),
    ("checkpoint", "Saving a checkpoint."),
    ("eval", "Evaluation."),
)

KEYS: Final = (
    ("n p", "next or previous worst step"),
    ("w s", "zoom in or out at the pointer; + and - zoom too"),
    ("a d", "move left or right; so do ← and →"),
    ("0", "show the whole run; so does a double click"),
    ("Esc", "stop highlighting a finding"),
    ("g", "open or close the glossary"),
)
