"""vLLM's engine: inside a trainer, behind a server, and in the processes that compute for both.

The core of an engine has a process of its own, unless it is set to share its caller's. There one
span is open as long as it has requests: a span for each of its iterations would be a hundred a
second. While it is paused for new weights that is open as `sync/pause`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from grpo_doctor_probes.hooks.engine_load import LOAD
from grpo_doctor_probes.hooks.engine_requests import REQUESTS
from grpo_doctor_probes.hooks.roles import with_role
from grpo_doctor_probes.hooks.spans import HookedSpan, inside
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.wrapping import (
    after,
    before,
    by_arguments,
    on_result,
    replace,
    replacing,
)
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


class _LongSpan:
    """A span of an engine's process that begins in one call and ends in another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._span: HookedSpan | None = None

    def begin(self) -> None:
        if self._span is None:
            self._span = HookedSpan(self._name)
            self._span.__enter__()

    def end(self) -> bool:
        """Ends it; whether it had begun."""
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(None, None, None)
        return span is not None


_BUSY, _PAUSED = _LongSpan(_GENERATE), _LongSpan(_PAUSE)


def _patch_async(module: ModuleType) -> None:
    if "RANK" not in os.environ:  # else it is part of a trainer
        replace(module, "AsyncLLM.__init__", with_role("rollout"))
    replace(module, "AsyncLLM.collective_rpc", _around_coroutine_rpc)
    replace(module, "AsyncLLM.generate", before(_note_request))


def _note_request(
    _engine: Any,
    _prompt: Any = None,
    _sampling: Any = None,
    request_id: Any = "",
    *_: Any,
    **__: Any,
) -> None:
    asked(request_id)


def _patch_core(module: ModuleType) -> None:
    replace(module, "EngineCoreProc.run_engine_core", with_role(_ENGINE))
    replace(module, "EngineCore.collective_rpc", by_arguments(_span_of_rpc))
    for step in ("step", "step_with_batch_queue"):
        replace(module, f"EngineCore.{step}", _around_step)
    replace(module, "EngineCore.abort_requests", after(_end_work))
    for core in ("EngineCore", "EngineCoreProc", "DPEngineCoreProc"):
        replace(module, f"{core}.pause_scheduler", after(_begin_pause))
        replace(module, f"{core}.resume_scheduler", before(lambda *_, **__: _PAUSED.end()))


def _span_of_rpc(_engine: Any, method: object, *_: Any, **__: Any) -> str | None:
    return _SYNC if takes_weights(method) else None


def _around_coroutine_rpc(call: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(self: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        if not takes_weights(method):
            return await call(self, method, *args, **kwargs)
        with HookedSpan(_SYNC):
            return await call(self, method, *args, **kwargs)

    return wrapper


def takes_weights(method: object) -> bool:
    """Return whether a method of an engine's workers, by its name, brings them new weights.

    `update_weight` (OpenRLHF), `update_named_param` (TRL), `update_flattened_params` (ms-swift).
    """
    name = method if isinstance(method, str) else getattr(method, "__name__", "")
    return ("weight" in name or "param" in name) and not name.startswith(("init", "get", "shut"))


def _around_step(step: Callable[..., Any]) -> Callable[..., Any]:
    within: Callable[..., Any] = timed(lambda: HookedSpan(_GENERATE), step)

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


_follow_requests = replacing({
    "Scheduler.add_request": after(REQUESTS.queued),
    "Scheduler.schedule": on_result(REQUESTS.scheduled),
    "Scheduler.update_from_output": after(REQUESTS.stepped),
    "Scheduler._preempt_request": before(REQUESTS.preempted),
    "Scheduler._free_request": before(REQUESTS.freed),
})  # fmt: skip


def _patch_scheduler(module: ModuleType) -> None:
    if replace(module, "Scheduler._preempt_request", before(LOAD.preempted)):
        LOAD.counts_preemptions()
    _follow_requests(module)


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
        _LLM: replacing(
            {
                "LLM.collective_rpc": by_arguments(_span_of_rpc),
                "LLM.generate": LOAD.around,
                "LLM.chat": LOAD.around,
            }
        ),
        _SCHEDULER: _patch_scheduler,
        _ASYNC: _patch_async,
        _CORE: _patch_core,
    },
)
