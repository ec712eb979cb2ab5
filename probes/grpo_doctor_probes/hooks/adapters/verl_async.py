"""verl's trainers whose rollout runs during the training: which side waits, and for what.

Where a rollout of its own fills a buffer, the trainer's timer `gen` is a wait for samples. The
rollouter of `fully_async_policy` stops by itself, and knows since when it has nothing to do.
"""

from __future__ import annotations

from time import time
from typing import Any

from grpo_doctor_probes.hooks.spans import STEPS, write_ended
from grpo_doctor_probes.hooks.table import Hook
from grpo_doctor_probes.hooks.wrapping import Around, after, before, with_role
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.rundir import DRIVER

SEPARATION = "verl.experimental.separation.ray_trainer"
_ONE_STEP_OFF = "verl.experimental.one_step_off_policy.ray_trainer"
_TRAINER = "verl.experimental.fully_async_policy.fully_async_trainer"
_ROLLOUTER = "verl.experimental.fully_async_policy.fully_async_rollouter"
_TAKE_SAMPLES = frozenset({"PPOTrainerSeparateAsync", "OneStepOffRayTrainer", "FullyAsyncTrainer"})
WAIT = "rollout/wait"
_QUEUE = "rollout/queue"

HOOKS = (
    Hook(_TRAINER, "FullyAsyncTrainer.init_workers", "init", "0.8-"),
    Hook(_ROLLOUTER, "FullyAsyncRollouter.init_workers", "init", "0.8-"),
    Hook(
        _ROLLOUTER, "FullyAsyncAgentLoopManager.generate_sequences_single", "rollout/generate",
        "0.8-", shared=True,
    ),
)  # fmt: skip


def waits_for_samples(trainer: object) -> bool:
    """Return whether what the trainer calls generating is to wait for another process that does."""
    return not _TAKE_SAMPLES.isdisjoint(kind.__name__ for kind in type(trainer).__mro__)


# The last step ends with the function, a coroutine too; one that an exception leaves never ends.
until_last_step = after(lambda *_, **__: STEPS.end())


def _write_wait(rollouter: Any, *_: Any, **__: Any) -> None:
    """New weights resume a paused rollouter: how long it has had nothing to do, and why: a full
    queue, or samples that would be stale."""
    active = recorder.ACTIVE or recorder.start_if_asked()
    idle_since = rollouter.idle_start_time
    if active is None or not rollouter.paused or idle_since <= rollouter.step_start_time:
        return
    stale = rollouter.staleness_samples >= rollouter.max_required_samples
    reason = f"{_QUEUE}/{'staleness' if stale else 'full'}"
    write_ended(active, time() - idle_since, _QUEUE, reason)


PATCHES: dict[str, dict[str, Around]] = {
    _ONE_STEP_OFF: {"OneStepOffRayTrainer.fit": until_last_step},
    _TRAINER: {
        "FullyAsyncTrainer.__init__": with_role(DRIVER),
        "FullyAsyncTrainer.fit": until_last_step,
    },
    _ROLLOUTER: {
        "FullyAsyncRollouter.__init__": with_role("rollouter"),
        "FullyAsyncRollouter.reset_staleness": before(_write_wait),
    },
}  # fmt: skip
