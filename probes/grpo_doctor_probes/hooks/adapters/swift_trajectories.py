"""Trajectories of ms-swift's multi-turn schedulers.

In a server that `swift rollout` started one is a call of a scheduler's `run`, which the server
awaits side by side. A rank (`colocate`) takes all its samples through each turn together: it
generates for those that continue, then asks the scheduler about one after the other. In both the
scheduler's own methods are what happens before the first turn and between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import (
    Batch,
    around_batch,
    begun_together,
    during,
    following,
    wrap_own,
)
from grpo_doctor_probes.hooks.table import HOOKED
from grpo_doctor_probes.hooks.wrapping import Around, after, in_state
from grpo_doctor_probes.record import trajectories as record
from grpo_doctor_probes.record.decorate import timed
from grpo_doctor_probes.record.trajectories import GENERATE, QUEUE, REWARD, TOOL, Trajectory

_TURNS = ("step", "on_trajectory_start", "on_turn_end")
_BASES = ("RolloutScheduler", "MultiTurnScheduler")


def _watch(scheduler: Any, *_: Any, **__: Any) -> None:
    wrap_own(type(scheduler), _TURNS, _around_turn, _BASES)
    engine = vars(scheduler).get("infer_engine")
    if engine is None:  # in a rank
        return
    if not hasattr(engine.infer_async, HOOKED):
        engine.infer_async = in_state(GENERATE)(engine.infer_async)
        setattr(engine.infer_async, HOOKED, True)
    scheduler.run = following(done=_done)(scheduler.run)


def _around_turn(owner: type, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    name = f"{TOOL}/{owner.__name__}.{method}"

    def where(_: Any, request: Any = None, *__: Any, **___: Any) -> Any:
        asked = request if isinstance(request, list) else [request]
        parts = ExitStack()
        for one in [Batch.now.ones[at] for at in _places(asked)] if Batch.now else [None]:
            parts.enter_context(record.part(name, one))
        return parts

    return timed(where, function)


def _done(one: Trajectory, outputs: Any, *_: Any) -> None:
    rows = outputs if isinstance(outputs, list) else [outputs]
    one.note(tokens=sum(len(ids) for row in rows for ids in row.response_token_ids or ()))


def _name(request: Any) -> Any:
    """Return what a sample and the requests that are made of it have in common."""
    if isinstance(request, dict):  # a sample, until 4.3
        return request.get("uuid") or request.get("request_id")
    return getattr(request, "uuid", None) or getattr(request, "request_id", None)


def _places(requests: Iterable[Any]) -> list[int]:
    places = getattr(Batch.now, "places", {})
    return [places[name] for name in map(_name, requests) if name in places]


def _turned(error: type[BaseException] | None) -> None:
    """All turns of a rank's samples are over."""
    if error is not None:
        _end(error=error)
    elif Batch.now is not None:
        Batch.now.be("")  # what follows until its reward is seen by no hook


def _begin(trainer: Any, samples: list[Any], *_: Any, **__: Any) -> None:
    _end(reason="not used")  # what was before, and not scored
    in_turns = trainer.multi_turn_scheduler and not trainer.enable_server_multi_turn
    # What is generated ahead of the step is so in a thread of its own.
    if not in_turns or not trainer.model.training or getattr(trainer.args, "async_generate", False):
        return
    ones = begun_together(samples)
    if ones:
        Batch.now = Batch(trainer, ones)
        Batch.now.places = {_name(sample): at for at, sample in enumerate(samples)}


def _end(reason: str = "", error: type[BaseException] | None = None) -> None:
    batch, Batch.now = Batch.now, None
    if batch is not None:
        batch.ready(error)
        if error is None:
            record.taken(batch.ones[0].key, reason)


_TURNS_OF_A_RANK: dict[str, Around] = {
    "_infer_single_or_multi_turn": around_batch(_begin, _turned),
    "_rollout": during(
        lambda batch, _, requests, *__, **___: batch.be(GENERATE, _places(requests)),
        # Afterwards they wait for what the scheduler does for others.
        lambda batch, _: batch.be(QUEUE, list(batch.parts)),
    ),
    "_compute_rewards_per_func": during(
        lambda batch, *_, **__: batch.be(REWARD), lambda *_: _end()
    ),
}  # fmt: skip
# The first two are the mixin's since 3.10, whose class the trainer's module has too.
MIXIN, TRAINER = (
    {f"{owner}.{method}": around for method, around in _TURNS_OF_A_RANK.items()}
    for owner in ("RolloutTrainerMixin", "GRPOTrainer")
)
PATCHES: dict[str, dict[str, Around]] = {
    module: {"RolloutScheduler.__init__": after(_watch)}
    for module in ("swift.rollout.multi_turn", "swift.plugin.multi_turn")  # since 4.0, and before
}
