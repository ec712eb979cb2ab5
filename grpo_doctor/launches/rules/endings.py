"""What goes wrong later: checkpoints and time limits."""

from __future__ import annotations

from grpo_doctor.launches.domain import kind_of
from grpo_doctor.launches.rule import NOT_OPENRLHF, SAMPLES, Flaw, View, rule

_DAY_S = 86_400
_SHORTEST_S = 300  # a checkpoint of 70B on a network disk takes that long, and others wait for it


@rule("GL040", SAMPLES)
def timeout_never(view: View) -> Flaw | None:
    """A stuck collective is never reported.

    The watchdog of NCCL ends a job whose collective does not finish in time, with a message that
    names it. ms-swift's default is 18,000,000 seconds, 208 days: a hang is never reported.
    """
    seconds = view.integer("run.collective_timeout_s")
    if seconds is None or view.processes == 1:
        return None
    if seconds >= _DAY_S:
        explicit = view.sets("run.collective_timeout_s")
        return Flaw(
            severity="low" if explicit else "info",
            headline=f"a stuck collective is reported after {seconds // _DAY_S} days",
            evidence=("as set" if explicit else "this framework's default",),
            fixes=(view.flag("run.collective_timeout_s", 3600),),
            source=view.source("run.collective_timeout_s"),
        )
    if seconds >= _SHORTEST_S:
        return None
    return Flaw(
        severity="medium",
        headline=f"a collective may take {seconds} s: a long rollout or checkpoint ends the job",
        evidence=("ranks wait for the slowest rollout in a collective",),
        fixes=(view.flag("run.collective_timeout_s", 1800),),
        source=view.source("run.collective_timeout_s"),
    )


_FULL_BYTES = 14  # weights in 2, master weights and two moments in 12
_WEIGHTS_BYTES = 2


@rule("GL054", SAMPLES)
def checkpoints_fill_the_disk(view: View) -> Flaw | None:
    """The disk is too small for the checkpoints.

    A checkpoint of a full run holds weights and optimizer state: 14 to 16 bytes for each parameter,
    100 GB for a 7B; of a LoRA run a few hundred megabytes. Without save_total_limit every one is
    kept.
    """
    free, model = view.host.free_disk_bytes, view.model
    if not free or model is None:
        return None
    if view.value("train.type") == "lora" or (view.value("checkpoint.save_steps") or 0) <= 0:
        return None
    alone = bool(view.value("checkpoint.save_only_model"))
    size = model.parameters * (_WEIGHTS_BYTES if alone else _FULL_BYTES)
    limit = view.integer("checkpoint.save_total_limit")
    needed = size * (limit + 1 if limit else 2)
    if needed <= free:
        return None
    fixes = [view.flag("checkpoint.save_total_limit", 1)] if limit != 1 else []
    if not alone:
        fixes.append(view.flag("checkpoint.save_only_model", True))
    return Flaw(
        severity="high" if size > free else "medium",
        headline=f"a checkpoint takes {size / 1e9:.0f} GB, but {free / 1e9:.0f} GB are free",
        evidence=(
            f"{limit} are kept, and one is being written" if limit else "all of them are kept",
        ),
        fixes=(*fixes, "or another checkpoint directory"),
        source=view.source("checkpoint.save_steps", "checkpoint.directory"),
    )


_MANY_BYTES = 30e9


_REMOVES_PREVIOUS = "trainer.remove_previous_ckpt_in_save"
"""Of verl, in place of a limit before 0.3 (ray_trainer.py)."""


@rule("GL055", NOT_OPENRLHF)
def checkpoints_without_limit(view: View) -> Flaw | None:
    """Every checkpoint is kept.

    Without save_total_limit every checkpoint is kept. In full training each holds optimizer state:
    14 to 16 bytes for each parameter.
    """
    model = view.model
    if model is None:
        return None
    if view.value("train.type") == "lora" or view.value("checkpoint.save_only_model"):
        return None
    steps = view.value("checkpoint.save_steps") or 0
    removes = str(view.launch.options.get(_REMOVES_PREVIOUS)).lower() == "true"
    if removes or view.integer("checkpoint.save_total_limit") or steps <= 0:
        return None
    critic = kind_of(view.launch) == "ppo"
    copied = view.launch.copied
    removable = _REMOVES_PREVIOUS in copied if copied else view.at_least("0.2.0")
    size = model.parameters * _FULL_BYTES * (1 + critic)
    if size < _MANY_BYTES:
        return None
    return Flaw(
        severity="low",
        headline=f"each checkpoint takes {size / 1e9:.0f} GB, and all are kept",
        evidence=(
            "weights and optimizer state, 14 bytes for each parameter"
            + (", of policy and critic" if critic else ""),
        ),
        fixes=tuple(
            said
            for knob, value in (("save_total_limit", 2), ("save_only_model", True))
            if (said := view.launch.spell(f"checkpoint.{knob}", value))
        )
        or (f"{_REMOVES_PREVIOUS}=True" if removable else "delete earlier ones",),
        source=view.source("checkpoint.save_steps"),
    )
