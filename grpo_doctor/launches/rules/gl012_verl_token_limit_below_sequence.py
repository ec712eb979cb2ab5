"""A sequence is longer than a micro batch may be.

With use_dynamic_bsz a micro batch is filled up to ppo_max_token_len_per_gpu tokens per rank,
times the ranks of a sequence. A prompt with its completion that is longer does not fit in any:
verl ends with an assertion on the first one that is.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import VERL, Flaw, View, fatal_flaw

DOMAIN = VERL


def check(view: View) -> Flaw | None:
    """Tokens of a micro batch against the longest sequence."""
    limit, length = view.integer("train.max_tokens_per_gpu"), view.length
    if not view.value("train.dynamic_batch"):
        return None
    divided = [v for k, v in view.launch.options.items() if "ulysses" in k and str(v).isdigit()]
    room = (limit or 0) * max(view.degree("parallel.context"), *map(int, divided), 1)
    if not limit or not length or length <= room:
        return None
    return fatal_flaw(
        headline=f"sequences have up to {length} tokens, but micro batches hold {room}",
        evidence=(f"max_prompt_length + max_response_length = {length}",),
        fixes=(view.flag("train.max_tokens_per_gpu", length),),
        source=view.source("train.max_tokens_per_gpu", "rollout.max_completion_length"),
    )
