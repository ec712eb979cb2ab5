"""Which phase a range of `record_function` is: PyTorch's own, those of frameworks, and ours."""

from __future__ import annotations

import re

from grpo_doctor.phases import phase_of

_PHASES = (
    (r"enumerate\(DataLoader\)#|## (data_?load|load_batch)", "dataload"),
    (r"Optimizer\.step#|## optimizer ##|optimizer_step$", "optimizer"),
    (r"## (forward|backward|loss) ##", "train"),
    (r"(DistributedDataParallel|FullyShardedDataParallel|DataParallel)\.forward$", "train"),
    (r"(update_actor|update_policy|compute_loss)$", "train"),
    # vLLM names its steps after the batch; SGLang after the kind of batch.
    (r"execute_(model|new|context|\d)|step\[|generate_sequences$", "rollout/generate"),
    (r"_?generate_and_score_completions$|vLLM\.generate$", "rollout"),
    (r"compute_ref_log_prob$", "logprob/reference"),
    (r"compute_log_prob$", "logprob/old"),
    (r"_?calculate_rewards$|compute_reward$|compute_score$", "reward"),
    (r"update_weights$|sync_weights$|_move_model_to_vllm$", "sync"),
    (r"save_checkpoint$|_save_checkpoint$", "checkpoint"),
)
_PATTERN = re.compile("|".join(f"(?P<p{i}>{pattern})" for i, (pattern, _) in enumerate(_PHASES)))


def span_of(name: str) -> str | None:
    """Return the span of ours that a range is, None where its name is not of a phase."""
    if phase_of(name):
        return name
    # verl's and TRL's ranges carry the name of the class: `ActorRolloutRefWorker.update_actor`.
    match = _PATTERN.match(name) or _PATTERN.match(name.rpartition(".")[2])
    return _PHASES[int(match.lastgroup[1:])][1] if match and match.lastgroup else None
