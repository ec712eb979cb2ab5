"""vLLM's engine: inside a trainer, behind a server, and in the processes that compute for both.

The core of an engine has a process of its own, unless it is set to share its caller's. There one
span is open as long as it has requests: a span for each of its iterations would be a hundred a
second. While it is paused for new weights that is open as `sync/pause`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from grpo_doctor_probes.hooks.engine_load import LOAD
from grpo_doctor_probes.hooks.engine_requests import REQUESTS
from grpo_doctor_probes.hooks.spans import HookedSpan, LongSpan, inside
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.wrapping import after, before, by_arguments, on_result, with_role
from grpo_doctor_probes.record.decorate import timed
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.sidecar import ROLE
from grpo_doctor_probes.record.trajectories import asked

_LLM = "vllm.entrypoints.llm"
_OFFLINE = "vllm.entrypoints.rl.offline"
_ASYNC = "vllm.v1.engine.async_llm"
_CORE = "vllm.v1.engine.core"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_ENGINE = "engine"
_GENERATE, _SYNC, _PAUSE, _OFFLOAD = "rollout/generate", "sync", "sync/pause", "offload"


# Spans of an engine's process that begin in one call and end in another.
_BUSY, _PAUSED = LongSpan(_GENERATE), LongSpan(_PAUSE)


def _around_init(init: Callable[..., Any]) -> Callable[..., Any]:
    """In a trainer the engine is part of a rank."""
    return init if "RANK" in os.environ else with_role("rollout")(init)


def _around_request(generate: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        self: Any, prompt: Any, sampling_params: Any, request_id: Any, *args: Any, **kwargs: Any
    ) -> Any:
        quietly(asked, request_id)
        return generate(self, prompt, sampling_params, request_id, *args, **kwargs)

    return call


def _span_of_rpc(_engine: Any, method: object, *_: Any, **__: Any) -> str | None:
    return _SYNC if takes_weights(method) else None


def takes_weights(method: object) -> bool:
    """Return whether a method of an engine's workers, by its name, brings them new weights.

    `update_weight` (OpenRLHF), `update_named_param` (TRL), `update_flattened_params` (ms-swift).
    """
    name = method if isinstance(method, str) else getattr(method, "__name__", "")
    return ("weight" in name or "param" in name) and not name.startswith(("init", "get", "shut"))


def _around_step(step: Callable[..., Any]) -> Callable[..., Any]:
    within: Callable[..., Any] = timed(lambda *_, **__: HookedSpan(_GENERATE), step)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ROLE.of_this_process() != _ENGINE:
            result = within(self, *args, **kwargs)
            quietly(LOAD.sample, self.scheduler)
            return result
        quietly(_begin_work, self)
        result = step(self, *args, **kwargs)
        quietly(LOAD.sample, self.scheduler)
        quietly(_end_work, self)
        return result

    return wrapper


def _begin_work(core: Any) -> None:
    if core.scheduler.has_unfinished_requests():
        _BUSY.begin()


def _end_work(core: Any, *_: Any, **__: Any) -> None:
    if not core.scheduler.has_unfinished_requests() and _BUSY.end():
        LOAD.finish()


def _around_preemption(preempt: Callable[..., Any]) -> Callable[..., Any]:
    LOAD.counts_preemptions()
    return before(LOAD.preempted, REQUESTS.preempted)(preempt)


def _begin_pause(*_: Any, **__: Any) -> None:
    # To sleep an engine pauses too; then it is `offload`, and the pause has no end of its own.
    if ROLE.of_this_process() == _ENGINE and not inside(_OFFLOAD):
        _BUSY.end()
        _PAUSED.begin()


ADAPTER = Adapter(
    "vllm",
    (
        Hook(_LLM, "LLM.generate", _GENERATE, "0.12-"),
        Hook(_LLM, "LLM.chat", _GENERATE, "0.12-"),
        Hook(_LLM, "LLM.sleep", _OFFLOAD, "0.12-"),
        Hook(_LLM, "LLM.wake_up", _OFFLOAD, "0.12-"),
        Hook(_LLM, "LLM.update_weights", _SYNC, "0.16-0.28"),
        Hook(_OFFLINE, "RLOfflineMixin.update_weights", _SYNC, "0.32-"),
        Hook(_ASYNC, "AsyncLLM.sleep", _OFFLOAD, "0.12-"),
        Hook(_ASYNC, "AsyncLLM.wake_up", _OFFLOAD, "0.12-"),
        Hook(_ASYNC, "AsyncLLM.pause_generation", _PAUSE, "0.12-"),
        Hook(_ASYNC, "AsyncLLM.update_weights", _SYNC, "0.16-"),
        Hook(_CORE, "EngineCore.sleep", _OFFLOAD, "0.12-"),
        Hook(_CORE, "EngineCore.wake_up", _OFFLOAD, "0.12-"),
    ),
    {
        _LLM: {
            "LLM.collective_rpc": by_arguments(_span_of_rpc),
            "LLM.generate": LOAD.around,
            "LLM.chat": LOAD.around,
        },
        _SCHEDULER: {
            "Scheduler.add_request": after(REQUESTS.queued),
            "Scheduler.schedule": on_result(REQUESTS.scheduled),
            "Scheduler.update_from_output": after(REQUESTS.stepped),
            "Scheduler._preempt_request": _around_preemption,
            "Scheduler._free_request": before(REQUESTS.freed),
        },
        _ASYNC: {
            "AsyncLLM.__init__": _around_init,
            "AsyncLLM.collective_rpc": by_arguments(_span_of_rpc),
            "AsyncLLM.generate": _around_request,
        },
        _CORE: {
            "EngineCoreProc.run_engine_core": with_role(_ENGINE),
            "EngineCore.collective_rpc": by_arguments(_span_of_rpc),
            "EngineCore.step": _around_step,
            "EngineCore.step_with_batch_queue": _around_step,
            "EngineCore.abort_requests": after(_end_work),
            **{
                f"{core}.{method}": around
                for core in ("EngineCore", "EngineCoreProc", "DPEngineCoreProc")
                for method, around in (
                    ("pause_scheduler", after(_begin_pause)),
                    ("resume_scheduler", before(lambda *_, **__: _PAUSED.end())),
                )
            },
        },
    },
)
