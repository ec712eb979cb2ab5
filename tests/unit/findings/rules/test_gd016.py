from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import counted, rows, run, with_knobs

OFF = with_knobs(vllm__enable_prefix_caching=False, rollout__num_generations=8)
ON = with_knobs(vllm__enable_prefix_caching=True, rollout__num_generations=8)


def prompts(
    knobs: dict[str, object], tokens: float, *, hit: float = 0.0, queried: float = 0.0
) -> TraceBuilder:
    """So many prompt tokens per rollout, and 10,000 that are generated."""
    return counted(
        run(knobs=knobs),
        {
            "engine/prompt_tokens": tokens,
            "engine/generated_tokens": 10_000.0,
            "engine/prefix_cache_queried_tokens": queried,
            "engine/prefix_cache_hit_tokens": hit,
        },
    )


def sick() -> TraceBuilder:
    return prompts(OFF, 80_000.0)


def well() -> TraceBuilder:
    return prompts(ON, 80_000.0, queried=80_000.0, hit=68_000.0)


RUNS = {
    "short prompts are not worth it": lambda: prompts(OFF, 4000.0),
    **rows(
        "prompts of less than two blocks share nothing",
        lambda tokens: counted(
            prompts(OFF, tokens), {"engine/completions_of_3_to_4_tokens": 2500.0}
        ),
        60000.0,
        160000.0,
    ),
    "a cache that finds nothing is a question": lambda: prompts(
        ON, 80000.0, queried=80000.0, hit=4000.0
    ),
    "a cache that was never asked is taken to work": lambda: prompts(ON, 80000.0),
    "without counters it says what records them": lambda: run(knobs=OFF),
    **rows(
        "two completions share a prompt",
        lambda group: prompts({**OFF, "rollout.num_generations": group}, 80000.0),
        2,
        1,
        "8",
    ),
    **rows(
        "two blocks can be shared",
        lambda tokens: counted(
            prompts(OFF, tokens * 2500), {"engine/completions_of_3_to_4_tokens": 2500.0}
        ),
        32.0,
        31.9,
    ),
    **rows(
        "a cache that finds half of what is shared works",
        lambda hit: prompts(ON, 80000.0, queried=80000.0, hit=hit),
        35000.0,
        34900.0,
    ),
}
