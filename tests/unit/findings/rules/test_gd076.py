from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.rules import saying

OFF = saying.with_knobs(
    train__share_prompts=False, rollout__num_generations=8, train__micro_batch=16
)


def tokens(
    prompts: float, completions: float, knobs: dict[str, object] = OFF, **facts: Any
) -> TraceBuilder:
    facts = {"framework": "bundled", "framework_version": "0.1.0", **facts}
    counts = {"rollout/prompt_tokens": prompts, "rollout/tokens": completions}
    return saying.counted(saying.run(knobs=knobs, **facts), counts)


def of_verl(prompt: float, **config: Any) -> TraceBuilder:
    """Lengths as verl logs them, of a version with its own switch unless `config` has none."""
    knobs = saying.with_knobs(rollout__num_generations=8, train__micro_batch=None)
    build = saying.run(knobs=knobs, framework="verl", framework_version="0.9.0")
    for step in range(6):
        build.metrics(step, **{"prompt_length/mean": prompt, "response_length/mean": 64.0})
    build.config = config
    return build


RUNS = {
    "sick": lambda: tokens(512.0, 64.0),
    "well": lambda: tokens(20.0, 512.0),
    "passes that take little of the step are not worth it": lambda: saying.counted(
        saying.run({**saying.HEALTHY, "train": 0.2, "logprob": 0.0}, knobs=OFF,
            framework="bundled", framework_version="0.1.0"),
        {"rollout/prompt_tokens": 512.0, "rollout/tokens": 64.0}),
    "where prompts are shared there is no question": lambda: tokens(512.0, 64.0,
        saying.with_knobs(train__share_prompts=True, rollout__num_generations=8)),
    **saying.rows("two completions of a prompt have to meet in a pass",
        lambda micro: tokens(512.0, 64.0, {**OFF, "train.micro_batch": micro}), 2, 1),
    **saying.rows("without a number of completions nothing is known",
        lambda group: tokens(512.0, 64.0, {**OFF, "rollout.num_generations": group}), "auto", 0),
    "verls lengths are enough and its own switch is named": lambda: of_verl(512.0),
    "a key that the configuration lacks is not named": lambda: of_verl(512.0,
        actor_rollout_ref={"actor": {"strategy": "fsdp"}}),
    "lengths that are no numbers are no finding 1": lambda: of_verl(float("nan")),
    "lengths that are no numbers are no finding 2": lambda: tokens(float("nan"), 64.0),
    "without a switch it is advice": lambda: tokens(512.0, 64.0, framework="trl",
        framework_version="1.16.0"),
    "without counts the rule says what is missing": lambda: saying.run(knobs=OFF),
}  # fmt: skip
