"""The labelled runs: each illness at three strengths, and healthy runs of many kinds.

Labels were written before the rules were run on them, from what the flags and files do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.labelled import rewards
from tests.labelled.case import LEARNING, Case, Strength

# A tiny model never needs ZeRO-3; the model for pictures has random weights, so nearly none of its
# completions end; of those of the model that the others start from 2% to 8% are cut off.
_TRUE_OF = {
    "ZeRO-3": frozenset({"GD039"}),
    "pictures": frozenset({"GD051"}),
    "longer": frozenset({"GD051"}),
}
_STRENGTHS: tuple[Strength, ...] = ("weak", "medium", "strong")
_REWARD = ("--reward_funcs",)


def cases() -> list[Case]:
    """All of them."""
    return [*healthy(), *slow(), *unlearning()]


def healthy() -> Iterator[Case]:
    """Nothing is wrong with these."""
    kinds: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("defaults", ()),
        ("another seed", ("--seed", "7")),
        ("a third seed", ("--seed", "11")),
        ("plain DDP", ("--deepspeed", "zero0")),
        ("ZeRO-3", ("--deepspeed", "zero3")),
        ("no reference model", ("--beta", "0")),
        ("longer", LEARNING),
        ("two passes a rollout", ("--gradient_accumulation_steps", "2")),
        ("pictures", ("--model", "embedded-vl", "--max_steps", "10")),
        ("groups of eight", ("--num_generations", "8")),
        ("two rewards", ("--reward_funcs", "arithmetic", "accuracy")),
        ("checkpoints now and then", ("--save_steps", "8", "--save_only_model", "true")),
    )
    for name, flags in kinds:
        yield Case(f"healthy: {name}", flags, may=_TRUE_OF.get(name, frozenset()))


def slow() -> Iterator[Case]:
    """Time is lost."""
    yield from _three(
        "one rank's reward is slow", (0.15, 0.4, 1.0),
        lambda s: _with_rewards(rewards.slow(s, rank=1), "judged"),
        has={"GD004", "GD035"}, may={"GD033", "GD077"},
    )  # fmt: skip
    yield from _three(
        "the reward is slow", (0.15, 0.4, 1.0),
        lambda s: _with_rewards(rewards.slow(s), "judged"), has={"GD033"}, may={"GD034", "GD077"},
    )  # fmt: skip
    yield from _three(
        "rewards one after the other", (0.1, 0.25, 0.6),
        lambda s: _with_rewards(rewards.slow(s), "judged", "judged_again"),
        has={"GD034"}, may={"GD033", "GD051", "GD077"},  # one of both pays for length
    )  # fmt: skip
    yield from _three(
        "no loader processes, large pictures", (500, 900, 1500),
        lambda edge: Case(
            "",
            ("--model", "embedded-vl", "--dataset", "rows.jsonl", "--dataloader_num_workers", "0",
             "--max_pixels", "3136", "--reward_funcs", "arithmetic", "--max_steps", "10",
             "--per_device_train_batch_size", "16"),
            picture_edge=int(edge),
        ),
        has={"GD002"}, may={"GD030", "GD032", "GD051"},  # random weights again
    )  # fmt: skip
    yield from _three(
        "a reward that hiccups", (1.0, 2.0, 4.0),
        lambda s: _with_rewards(rewards.hiccups(s), "retried"),
        has={"GD036"}, may={"GD033", "GD077"},
    )  # fmt: skip
    yield from _three(
        "activations computed twice", (64, 128, 256),
        lambda n: Case(
            "", ("--gradient_checkpointing", "true", "--per_device_train_batch_size", str(int(n)))
        ),
        has={"GD041"},
    )  # fmt: skip
    yield from _three(
        "weights sharded for nothing", (64, 32, 16),
        lambda n: Case(
            "", ("--deepspeed", "zero3", "--per_device_train_batch_size", str(int(n)))
        ),
        has={"GD039"},
    )  # fmt: skip
    yield from _three(
        "a checkpoint too often", (3, 2, 1),
        lambda steps: Case("", ("--save_steps", str(int(steps)), "--save_only_model", "true")),
        has={"GD070"}, may={"GD071"},
    )  # fmt: skip
    yield from _three(
        "garbage collection", (60_000, 200_000, 600_000),
        lambda n: _with_rewards(
            rewards.garbage(int(n)), "littered", more=("--reward_num_workers", "0")
        ),
        # A call that collections stretch comes near the limit at which the run ends.
        has={"GD024"}, may={"GD033", "GD032", "GD036"},
    )  # fmt: skip
    yield from _three(
        "other programs on the cores", (2, 4, 8),
        lambda n: Case("", load=int(n)), has={"GD023"}, may={"GD004"},
    )  # fmt: skip
    yield from _three(
        "a reference model for next to nothing", (1e-3, 1e-4, 1e-6),
        lambda beta: Case("", ("--beta", str(beta))), has={"GD042"},
    )  # fmt: skip


def unlearning() -> Iterator[Case]:
    """Time is spent and little is learned."""
    yield from _three(
        "groups without a difference", (0.5, 0.8, 1.0),
        lambda share: _with_rewards(rewards.constant(share), "flat", more=LEARNING),
        has={"GD050", "GD059"}, may={"GD051", "GD063", "GD064"},
    )  # fmt: skip
    yield from _three(
        "rewards that are missing", (0.2, 0.5, 1.0),
        lambda share: _with_rewards(rewards.missing(share), "fragile", more=LEARNING),
        has={"GD058"}, may={"GD051", "GD059", "GD064"},
    )  # fmt: skip
    yield from _three(
        "completions cut off", (3, 2, 1),
        lambda n: Case("", (*LEARNING, "--max_completion_length", str(int(n)), "--beta", "0.5")),
        has={"GD051"}, may={"GD050", "GD059"},
    )  # fmt: skip
    yield from _three(
        "the entropy collapses", (0.05, 0.1, 0.3),
        lambda lr: Case("", (*LEARNING, "--learning_rate", str(lr), "--beta", "0")),
        has={"GD052"}, may={"GD050", "GD051", "GD053", "GD056", "GD057", "GD059", "GD062", "GD063"},
    )  # fmt: skip
    yield from _three(
        "the policy runs away from its reference", (0.02, 0.03, 0.1),
        lambda lr: Case("", (*LEARNING, "--learning_rate", str(lr), "--beta", "0.01")),
        has={"GD055"},
        may={"GD050", "GD051", "GD052", "GD053", "GD056", "GD057", "GD059", "GD062", "GD063"},
    )  # fmt: skip
    yield from _three(
        "most tokens are clipped", (0.05, 0.02, 0.01),
        lambda epsilon: Case(
            "",
            (*LEARNING, "--epsilon", str(epsilon), "--num_iterations", "4",
             "--learning_rate", "0.002"),
        ),
        # The model that all start from has 5.5% of its completions cut off, and with clipped
        # updates it stays so: 2% to 8% of each rollout's.
        has={"GD053", "GD054"}, may={"GD050", "GD051", "GD052", "GD055", "GD059"},
    )  # fmt: skip
    yield from _three(
        "too few generations", (4, 3, 2),
        lambda n: Case(
            "",
            (*LEARNING, "--num_generations", str(int(n)), "--per_device_train_batch_size", "48"),
        ),
        has={"GD061"}, may={"GD050", "GD051"},
    )  # fmt: skip
    yield from _three(
        "one reward drowns the other", (20.0, 50.0, 200.0),
        lambda factor: _with_rewards(rewards.dominated(factor), "answer", "style", more=LEARNING),
        has={"GD057"}, may={"GD051", "GD052", "GD034"},
    )  # fmt: skip
    yield from _three(
        "length is rewarded", (0.1, 0.3, 1.0),
        lambda pay: _with_rewards(
            rewards.lengthy(pay), "lengthy", more=(*LEARNING, "--max_completion_length", "24")
        ),
        has={"GD056"}, may={"GD051", "GD050", "GD052", "GD055", "GD059"},
    )  # fmt: skip
    yield from _three(
        "checkpoints with all the optimizer's state", (5, 4, 3),
        lambda steps: Case("", ("--save_steps", str(int(steps)), "--save_total_limit", "20")),
        has={"GD071"}, may={"GD070"},
    )  # fmt: skip


def _three(
    name: str,
    doses: Sequence[float],
    make: Callable[[float], Case],
    has: set[str],
    may: set[str] | None = None,
) -> Iterator[Case]:
    for strength, dose in zip(_STRENGTHS, doses, strict=True):
        recipe = make(dose)
        yield Case(
            name, recipe.flags, strength, frozenset(has), frozenset(may or ()), recipe.files,
            recipe.picture_edge, recipe.environment, recipe.load, recipe.ranks,
        )  # fmt: skip


def _with_rewards(text: str, *functions: str, more: tuple[str, ...] = ()) -> Case:
    flags = (*_REWARD, *(f"rewards.py:{name}" for name in functions), *more)
    return Case("", flags, files={"rewards.py": text})
