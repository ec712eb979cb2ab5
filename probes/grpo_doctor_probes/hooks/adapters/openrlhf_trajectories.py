"""Trajectories of OpenRLHF's agents: one call of an executor's `execute`, whatever executor it is.

What it does meanwhile is seen where it asks the engine, its environment (`AgentInstance`) and its
reward. Ray carries the answer to the process that generates samples, and from there as an
`Experience` to the trainer; a mark on both says whose answer that is, and by which weights.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import following, wrap_own
from grpo_doctor_probes.hooks.spans import inside
from grpo_doctor_probes.hooks.table import HOOKED, Hook
from grpo_doctor_probes.hooks.wrapping import Around, after, before, in_state, on_result, shared
from grpo_doctor_probes.record import trajectories as record
from grpo_doctor_probes.record.recorder import quietly

_ENGINE, _AGENT = "openrlhf.trainer.ray.vllm_engine", "openrlhf.utils.agent"
_MARK = "grpo_doctor"


# What this process knows: weight updates that it got, or sent, and answers of this generation.
_HERE: Any = SimpleNamespace(updates=0, sent=None, answers=[])


def _follow(actor: Any, *_: Any, **__: Any) -> None:
    """All samples of one prompt, by an executor that may be of the user's own class."""
    if not hasattr(actor.executor.execute, HOOKED):
        actor.executor.execute = following(_begun, _note_answer)(actor.executor.execute)


def _begun(one: record.Trajectory, *_: Any, **__: Any) -> None:
    one.note(version=_HERE.updates)


def _note_answer(one: record.Trajectory, answer: Any, *_: Any) -> None:
    one.note(last_version=_HERE.updates)
    if isinstance(answer, dict):
        answer[_MARK] = one.key, _HERE.updates
        one.note(put=one.key, tokens=sum(end - start for start, end in answer["action_ranges"]))
        one.note(reward=answer.get("reward"))


def _name_environment(_executor: Any, agent_instance_cls: type, *_: Any, **__: Any) -> None:
    """What a user's environment does before the first turn and between two of them."""

    def around(owner: type, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        state = in_state(f"{record.TOOL}/{owner.__name__}.{method}")
        return shared("rollout/tools")(state(function))

    wrap_own(agent_instance_cls, ("reset", "step"), around, bases=("AgentInstanceBase",))


def _count_update(*_: Any, **options: Any) -> None:
    """The last part of new weights is the one with which the caches are emptied."""
    _HERE.updates += bool(options.get("empty_cache"))


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
        # First it waits for a thread.
        (_AGENT, "SingleTurnAgentExecutor._fetch_rewards_via_func", "reward", "0.9.1-", "queue"),
        (_AGENT, "SingleTurnAgentExecutor._fetch_rewards_via_http", "reward", "0.9.1-", "reward"),
    )
)
ACTORS = ("RolloutRayActor", "LLMRayActor")
ENGINE: dict[str, Around] = {
    f"{actor}.{method}": around
    for actor in ACTORS
    for method, around in {
        "generate_responses": before(_follow), "update_weight": after(_count_update),
        "update_weight_cuda_ipc": after(_count_update),
    }.items()
}  # fmt: skip
AGENT: dict[str, Around] = {"MultiTurnAgentExecutor.__init__": after(_name_environment)}
SAMPLES: dict[str, Around] = {
    "SamplesGenerator._generate_vllm": _around_generation,
    "SamplesGenerator._process_response_into_experience": on_result(_note_experience),
}
TRAINER: dict[str, Around] = {"BasePPOTrainer.train_step": before(_note_taken)}
