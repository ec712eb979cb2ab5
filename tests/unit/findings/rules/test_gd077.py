from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules import saying

SLOW = {**saying.HEALTHY, "reward": 2.0}


TRL = ("completions/mean_length", "completions/max_length")
VERL = ("response_length/mean", "response_length/max")


def lengths(
    build: TraceBuilder, mean: float, longest: float, names: tuple[str, str] = TRL
) -> TraceBuilder:
    for step in range(6):
        build.metrics(step, **{names[0]: mean, names[1]: longest})
    return build


def one_length_without_the_other_leaves_it_to_the_other_names(name: str) -> TraceBuilder:
    build = saying.run(SLOW, framework="verl")
    for step in range(6):
        build.metrics(step, **{name: 500.0, VERL[0]: 200.0, VERL[1]: 800.0})
    return build


def steps_without_completions_say_nothing_of_lengths() -> TraceBuilder:
    return lengths(saying.run(SLOW), 200.0, 800.0).metrics(5, **{TRL[0]: 0.0, TRL[1]: 0.0})


RUNS = {
    "sick": lambda: lengths(saying.run(SLOW), 200.0, 800.0),
    "well": lambda: lengths(saying.run(SLOW), 790.0, 800.0),
    "a short rollout bounds what fits": lambda: lengths(saying.run({**SLOW, "rollout": 2.0}),
        400.0, 800.0),
    "quick rewards are no finding": lambda: lengths(saying.run(), 200.0, 800.0),
    "milliseconds are not worth a change of code": lambda: lengths(
        saying.run({phase: seconds / 50 for phase, seconds in SLOW.items()}), 200.0, 800.0),
    "verls lengths are enough": lambda: lengths(saying.run(SLOW, framework="verl"), 200.0, 800.0,
        VERL),
    "rewards that do not follow a rollout are not asked about": lambda: lengths(
        saying.run({"rollout": 5.0, "logprob": 1.0, "reward": 2.0, "train": 3.0}), 200.0, 800.0),
    "lengths that are no numbers are no finding": lambda: lengths(saying.run(SLOW), float("nan"),
        800.0),
    "without lengths it says which metrics it needs": lambda: saying.run(SLOW),
    "no step has completions": lambda: lengths(saying.run(SLOW), 0.0, 0.0),
    **saying.named(one_length_without_the_other_leaves_it_to_the_other_names, *TRL),
}  # fmt: skip
