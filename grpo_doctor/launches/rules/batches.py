"""Batches and groups that must be divisible by each other."""

from __future__ import annotations

import re
from dataclasses import replace

from grpo_doctor.launches.rule import (
    OPENRLHF,
    PLAIN_LIKE_TRL,
    PLAIN_SWIFT_AND_TRL,
    PLAIN_VERL,
    SWIFT_AND_TRL,
    SWIFT_MEGATRON,
    TRAINS,
    VERL,
    Flaw,
    View,
    divisors,
    fatal_flaw,
    rule,
)

_SOME = (1, 2, 4, 8)
_COUNTED_SINCE = {"trl": "0.17.0", "ms-swift": "3.3.0", "bundled": "0.1.0"}


@rule("GL004", PLAIN_LIKE_TRL)
def rollout_without_whole_groups(view: View) -> Flaw | None:
    """The rollout does not hold whole groups.

    GRPO compares the completions of one prompt with each other, so a rollout must hold whole
    groups. It holds per-device batch x processes x steps per generation completions; the framework
    refuses to start if that is not divisible by the number of generations. Before TRL 0.17 and
    ms-swift 3.3 gradient accumulation did not count.
    """
    group, micro = view.integers("rollout.num_generations", "train.micro_batch")
    ranks, launch = view.processes, view.launch
    if not group or not micro or not ranks:
        return None
    if launch.framework == "bundled" and launch.model is None:
        return None  # its own small model comes with other defaults
    ranks = max(1, ranks // view.degree("parallel.context"))
    steps = view.steps_per_generation if view.at_least(_COUNTED_SINCE[launch.framework]) else 1
    total = view.integer("rollout.completions") or micro * ranks * steps
    if total % group == 0 and total >= group:
        return None
    fixes = (
        view.flags("rollout.num_generations", divisors(total)[1:]),
        view.flags("train.micro_batch", _batches(group, ranks * steps)),
    )
    return fatal_flaw(
        headline=f"a rollout of {total} completions is not divisible by num_generations {group}",
        evidence=(
            f"{micro} per device x {ranks} processes x {steps} steps per generation = {total}",
        ),
        fixes=tuple(fix for fix in fixes if fix),
        source=view.source("rollout.num_generations", "train.micro_batch"),
    )


def _batches(group: int, times: int) -> list[int]:
    """Batches per device of which so many are a whole number of groups."""
    return [number for number in range(1, 65) if number * times % group == 0][:3]


@rule("GL005", SWIFT_AND_TRL)
def generation_batch_without_whole_steps(view: View) -> Flaw | None:
    """The generation batch does not hold whole steps.

    A generation batch is handed out in steps of per-device batch x processes completions. If it is
    not divisible by that, TRL and ms-swift refuse to start. They also refuse generation_batch_size
    together with steps_per_generation.
    """
    batch = view.launch.settings.get("rollout.completions")
    if not batch:
        return None
    if view.sets("rollout.steps_per_generation"):
        return fatal_flaw(
            headline="generation_batch_size and steps_per_generation are mutually exclusive",
            evidence=("each follows from the other",),
            fixes=("remove --generation_batch_size",),
            source=view.source("rollout.completions"),
        )
    micro, ranks = view.integer("train.micro_batch"), view.processes
    step = (micro or 0) * (ranks or 0)
    if not step or batch % step == 0:
        return None
    return fatal_flaw(
        headline=f"a generation batch of {batch} is not divisible by the global batch of {step}",
        evidence=(f"{micro} per device x {ranks} processes = {step}",),
        fixes=(view.flags("rollout.completions", [step * n for n in _SOME]),),
        source=view.source("rollout.completions"),
    )


@rule("GL006", TRAINS)
def group_of_one(view: View) -> Flaw | None:
    """A group of one completion.

    The advantage of a completion is its reward relative to the others of its prompt. With one
    completion per prompt there are no others: every advantage is 0 and nothing is learned. verl
    then takes the reward itself as the advantage (core_algos.py), without anything to compare it
    with. verl's and OpenRLHF's default is one.
    """
    group = view.integer("rollout.num_generations")
    if group is None or group > 1 or _counts_otherwise(view):
        return None
    if any(key.startswith("teacher_model") for key in view.launch.options):
        return None  # distillation learns from the teacher, not from a group
    if view.launch.algorithm not in ("grpo", "rloo", "group_norm", "dr_grpo"):
        return None
    if view.launch.framework == "openrlhf" and view.launch.algorithm == "grpo":
        return None  # nobody said group_norm
    verl = view.launch.framework == "verl"
    effect = "the advantage is the reward itself" if verl else "every advantage is 0"
    return Flaw(
        severity="high",
        headline=f"one completion per prompt: {effect}",
        evidence=(f"{view.launch.algorithm} with {group} generation",),
        fixes=(view.flag("rollout.num_generations", 8),),
        source=view.source("rollout.num_generations"),
        ends=view.launch.framework in ("trl", "ms-swift", "openrlhf"),
    )


def _counts_otherwise(view: View) -> bool:
    """Whether a fork of verl has an option of its own for it: `rollout.n_agent`, `n_repeat`."""
    if view.launch.framework != "verl" or view.sets("rollout.num_generations"):
        return False
    own = re.compile(r"(.*\.)?(n|rollout\.n_\w+)$")
    return any(own.match(key) and "val" not in key for key in view.launch.options)


@rule("GL007", PLAIN_SWIFT_AND_TRL)
def evaluation_without_whole_groups(view: View) -> Flaw | None:
    """The evaluation batch does not hold whole groups.

    An evaluation also generates. The evaluation batch per device x processes must hold whole
    groups; otherwise the framework refuses to start, though training alone would run.
    """
    strategy = view.launch.options.get("eval_strategy", "no")
    group = view.integer("rollout.num_generations")
    batch, ranks = view.integer("eval.micro_batch"), view.processes
    if strategy in ("no", None) or (view.launch.framework == "ms-swift" and view.at_least("3.5.0")):
        return None
    if "num_generations_eval" in view.launch.options:
        return None
    if not group or not batch or not ranks or batch * ranks % group == 0:
        return None
    total = batch * ranks
    return fatal_flaw(
        headline=f"an evaluation batch of {total} is not divisible by num_generations {group}",
        evidence=(f"{batch} per device x {ranks} processes = {total}",),
        fixes=(
            view.flags("eval.micro_batch", _batches(group, ranks)),
            "or --eval_strategy no",
        ),
        source=view.source("eval.micro_batch", "rollout.num_generations"),
    )


_MOST = 4096  # prompts that are tried


@rule("GL008", PLAIN_VERL)
def verl_batch_below_gpus(view: View) -> Flaw | None:
    """verl cannot hand its batch to all GPUs.

    verl distributes train_batch_size x n completions over all GPUs and refuses to start if they are
    not divisible.
    """
    prompts, group = view.integers("rollout.prompts", "rollout.num_generations")
    ranks = view.processes
    if not prompts or not group or not ranks or view.value("train.dynamic_batch"):
        return None
    if prompts * group % ranks == 0:
        return None
    more = range(prompts + 1, prompts + min(ranks, _MOST) + 1)
    valid = [number for number in more if number * group % ranks == 0]
    return fatal_flaw(
        headline=f"{prompts * group} completions can't be split evenly over {ranks} GPUs",
        evidence=(f"{prompts} prompts x {group} completions; {ranks} GPUs",),
        fixes=(view.flag("rollout.prompts", valid[0]),) if valid else (),
        source=view.source("rollout.prompts"),
    )


@rule("GL009", VERL)
def verl_mini_batch_too_large(view: View) -> Flaw | None:
    """The mini batch is larger than the batch.

    verl splits one training batch into mini batches: since 0.3 ppo_mini_batch_size must not exceed
    train_batch_size.
    """
    mini, batch = view.integers("train.prompts_per_step", "rollout.prompts")
    if not mini or not batch or mini <= batch or not view.at_least("0.3.0"):
        return None
    return fatal_flaw(
        headline=f"the mini batch of {mini} prompts is larger than the batch of {batch}",
        evidence=(f"ppo_mini_batch_size {mini}, train_batch_size {batch}",),
        fixes=(view.flag("train.prompts_per_step", batch), view.flag("rollout.prompts", mini)),
        source=view.source("train.prompts_per_step", "rollout.prompts"),
    )


@rule("GL010", PLAIN_VERL)
def verl_mini_batch_below_gpus(view: View) -> Flaw | None:
    """The mini batch leaves GPUs without a completion.

    verl multiplies ppo_mini_batch_size by n and divides by the data-parallel ranks. If the result
    is 0 it ends with `ppo_mini_batch_size 0 should be larger than 0 after normalization`, which
    reaches the user as ActorDiedError; where what is left is not a multiple of the micro batch, it
    ends as well.
    """
    mini, group = view.integers("train.prompts_per_step", "rollout.num_generations")
    ranks = view.processes
    if not mini or not group or not ranks:
        return None
    ranks = max(1, ranks // view.degree("parallel.context"))
    share, micro = mini * group // ranks, view.integer("train.micro_batch") or 1
    unlimited = view.value("train.dynamic_batch") or view.at_least("0.8.0")
    if share > 0 and (share % micro == 0 or unlimited):
        return None
    valid = [n for n in range(1, _MOST + 1) if n * group % (ranks * micro) == 0]
    nearest = min(valid, key=lambda n: abs(n - mini), default=None)
    shares_text = "none" if share == 0 else f"{share}, not a multiple of the micro batch of {micro}"
    return fatal_flaw(
        headline=f"of a mini batch of {mini} prompts each rank gets {shares_text}",
        evidence=(
            f"{mini} prompts x {group} completions / {ranks} ranks = {mini * group / ranks:g}",
        ),
        fixes=(view.flag("train.prompts_per_step", nearest),) if nearest else (),
        source=view.source("train.prompts_per_step", "train.micro_batch"),
    )


_KEYS = (
    ("actor_rollout_ref.actor.ppo_micro_batch_size", "the actor"),
    ("actor_rollout_ref.rollout.log_prob_micro_batch_size", "the rollout's log-probs"),
)


@rule("GL011", replace(VERL, whole=True))
def verl_no_micro_batch(view: View) -> Flaw | None:
    """verl's micro batch is not set.

    Without use_dynamic_bsz verl needs the micro batch of the actor and that of the log-probs, and
    refuses to start without: since 0.2 its configuration has no default for either.
    """
    options = view.launch.options
    needs = view.at_least("0.2.0") and view.launch.subcommand.endswith("main_ppo")
    if not needs or not options or view.value("train.dynamic_batch"):
        return None  # without any option the configuration is a changed one
    lacking = [
        (key, owner)
        for key, owner in _KEYS
        if options.get(f"{key}_per_gpu") is None and options.get(key) is None
    ]
    if not lacking:
        return None
    return fatal_flaw(
        headline=f"no micro batch for {' and '.join(owner for _, owner in lacking)}",
        evidence=("use_dynamic_bsz is off, and these have no default",),
        fixes=(
            *(f"{key}_per_gpu=1" for key, _ in lacking),
            f"or {view.flag('train.dynamic_batch', True)}",
        ),
    )


@rule("GL013", OPENRLHF)
def openrlhf_batch_not_divisible(view: View) -> Flaw | None:
    """OpenRLHF cannot divide its training batch.

    DeepSpeed takes the batch of one step as micro batch x accumulation x ranks, and OpenRLHF
    computes the accumulation from the others: it must be a whole number, and a rollout must have a
    completion for every rank.
    """
    if not view.processes or view.value("train.dynamic_batch"):
        return None
    ranks = max(1, view.processes // view.degree("parallel.context", "parallel.tensor"))
    return _of_a_step(view, "training", ranks, "ranks")


def _of_a_step(view: View, kind: str, ranks: int, who: str) -> Flaw | None:
    """Return the batch of a step must be micro batch x ranks x a whole number."""
    batch, micro = view.integers("train.completions_per_step", "train.micro_batch")
    step = (micro or 0) * ranks
    if not batch or not step or batch % step == 0:
        return None
    return fatal_flaw(
        headline=f"a {kind} batch of {batch} is not divisible by {step}",
        evidence=(f"{micro} per micro batch x {ranks} {who} = {step}",),
        fixes=(view.flags("train.completions_per_step", [step * n for n in _SOME]),),
        source=view.source("train.completions_per_step", "train.micro_batch"),
    )


@rule("GL017", SWIFT_MEGATRON)
def megatron_batch(view: View) -> Flaw | None:
    """Megatron cannot divide its global batch.

    The global batch is micro batch x data-parallel ranks x a whole number of accumulation steps.
    """
    copy = view.degree("parallel.tensor", "parallel.pipeline", "parallel.context")
    return _of_a_step(view, "global", (view.processes or 0) // copy, "data-parallel ranks")
