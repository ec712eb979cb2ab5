"""Trajectories of OpenRLHF's agents: one call of an executor's `execute`, whatever executor it is.

What it does meanwhile is seen where it asks the engine, its environment (`AgentInstance`) and its
reward. Ray carries the answer to the process that generates samples, and from there as an
`Experience` to the trainer; a mark on both says whose answer that is, and by which weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import following, wrap_own
from grpo_doctor_probes.hooks.spans import inside
from grpo_doctor_probes.hooks.table import HOOKED, Hook
from grpo_doctor_probes.hooks.wrapping import (
    Around,
    after,
    before,
    in_state,
    on_result,
    replace,
    shared,
)
from grpo_doctor_probes.record import trajectories as record
from grpo_doctor_probes.record.decorate import COROUTINE
from grpo_doctor_probes.record.recorder import quietly

_ENGINE, _AGENT = "openrlhf.trainer.ray.vllm_engine", "openrlhf.utils.agent"
_MARK = "grpo_doctor"
_TURNS = ("reset", "step")


# What this process knows: weight updates that it got, or sent, and answers of this generation.
_HERE: Any = SimpleNamespace(updates=0, sent=None, answers=[], environment="")


def _around_responses(respond: Callable[..., Any]) -> Callable[..., Any]:
    """All samples of one prompt, by an executor that may be of the user's own class."""

    def follow(actor: Any) -> None:
        if not hasattr(actor.executor.execute, HOOKED):
            actor.executor.execute = following(_begun, _note_answer)(actor.executor.execute)

    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(follow, self)
        return await respond(self, *args, **kwargs)

    return wrapper


def _begun(one: record.Trajectory, *_: Any, **__: Any) -> None:
    one.note(version=_HERE.updates)


def _note_answer(one: record.Trajectory, answer: Any, *_: Any) -> None:
    one.note(last_version=_HERE.updates)
    if isinstance(answer, dict):
        answer[_MARK] = one.key, _HERE.updates
        one.note(put=one.key, tokens=sum(end - start for start, end in answer["action_ranges"]))
        one.note(reward=answer.get("reward"))


def _around_step(owner: type, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    state = in_state(f"{record.TOOL}/{owner.__name__}.{method}")
    return shared("rollout/tools")(state(function))


def _name_environment(_executor: Any, agent_instance_cls: type, *_: Any, **__: Any) -> None:
    """What a user's environment does before the first turn and between two of them."""
    wrap_own(agent_instance_cls, _TURNS, _around_step, bases=("AgentInstanceBase",))


def _watch_executor(executor: Any, agent_instance_cls: Any = None, *_: Any, **__: Any) -> None:
    """Until 0.9.0 an environment is an actor of Ray, and answers go into a queue."""
    answers, kind = getattr(executor, "result_queue", None), agent_instance_cls
    if answers is None:
        return
    _HERE.environment = getattr(kind, "__name__", "AgentInstance")
    executor.execute = following(_begun)(executor.execute)
    executor.semaphore.acquire = in_state(record.QUEUE)(executor.semaphore.acquire)
    answers.put = before(_note_put)(answers.put)
    actors = sys.modules["ray.actor"]
    if not hasattr(actors.ActorMethod.remote, HOOKED):
        replace(actors, "ActorMethod.remote", on_result(_follow_call))


def _note_put(answer: Any) -> None:
    one = record.CURRENT.get()
    if one is not None:
        _note_answer(one, answer)


def _follow_call(reference: Any, method: Any, *_: Any, **__: Any) -> None:
    one, name = record.CURRENT.get(), getattr(method, "_method_name", "")
    if one is not None and name in _TURNS:
        call = one.part(f"{record.TOOL}/{_HERE.environment}.{name}")
        reference.future().add_done_callback(lambda future: quietly(_end_call, call, future))


def _end_call(call: record.Part, future: Any) -> None:
    error = future.exception()
    call.end(record.outcome_of(error and type(error)))


def _around_update(update: Callable[..., Any]) -> Callable[..., Any]:
    """The last part of new weights is the one with which the caches are emptied."""
    if not update.__code__.co_flags & COROUTINE:  # before 0.9.1 an engine without agents
        return update

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = await update(*args, **kwargs)
        _HERE.updates += bool(kwargs.get("empty_cache"))
        return result

    return wrapper


def _note_experience(experience: Any, _generator: Any, answer: Any, *_: Any, **__: Any) -> None:
    mark = answer.pop(_MARK, None)
    if mark is not None and inside("eval"):
        record.taken(mark[0], record.EVALUATION)
    elif mark is not None:
        setattr(experience, _MARK, mark)
        _HERE.answers.append((mark[0], monotonic_ns()))


def _around_generation(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Answers that are not among the samples were dropped when they came."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _HERE.answers.clear()
        quietly(record.opened)  # before the first answer comes
        result = generate(*args, **kwargs)
        quietly(_note_dropped, result[0], kwargs.get("dynamic_filtering"))
        return result

    return wrapper


def _note_dropped(samples: list[Any], filtering: object) -> None:
    used = {getattr(sample, _MARK)[0] for sample in samples if hasattr(sample, _MARK)}
    reason = "filtered" if used and filtering else "not used"
    for key, at_ns in _HERE.answers:
        if key not in used:
            record.taken(key, reason, at_ns=at_ns)


def _note_taken(_trainer: Any, samples: Any, *_: Any, **__: Any) -> None:
    """With each step the weights change once. A run that resumes has sent its own before."""
    marks = [getattr(sample, _MARK) for sample in samples if hasattr(sample, _MARK)]
    if marks and _HERE.sent is None:
        _HERE.sent = marks[0][1]
    for key, version in marks:
        record.taken(key, staleness=_HERE.sent - version)
    if marks:
        _HERE.sent += 1


HOOKS = tuple(
    Hook(module, qualname, span, versions, shared=True, state=state)
    for module, qualname, span, versions, state in (
        (_ENGINE, "RolloutRayActor.generate", "rollout/generate", "0.10.2-", record.GENERATE),
        (_ENGINE, "LLMRayActor.generate", "rollout/generate", "0.9.1-0.10.1", record.GENERATE),
        (_AGENT, "AgentExecutorBase.generate", "rollout/generate", "0.8.7-0.9.0", record.GENERATE),
        # First it waits for a thread.
        (_AGENT, "SingleTurnAgentExecutor._fetch_rewards_via_func", "reward", "0.9.1-", "queue"),
        (_AGENT, "SingleTurnAgentExecutor._fetch_rewards_via_http", "reward", "0.9.1-", "reward"),
    )
)
ENGINE: dict[str, Around] = {
    f"{actor}.{method}": around
    for actor in ("RolloutRayActor", "LLMRayActor", "LLMRayActorAsync")
    for method, around in {
        "generate_responses": _around_responses, "update_weight": _around_update,
        "update_weight_cuda_ipc": _around_update,
    }.items()
}  # fmt: skip
AGENT: dict[str, Around] = {
    "MultiTurnAgentExecutor.__init__": after(_name_environment),
    "AgentExecutorBase.__init__": after(_watch_executor),
}
SAMPLES: dict[str, Around] = {
    "SamplesGenerator._generate_vllm": _around_generation,
    "SamplesGenerator._process_response_into_experience": on_result(_note_experience),
}
TRAINER: dict[str, Around] = {"BasePPOTrainer.train_step": before(_note_taken)}
