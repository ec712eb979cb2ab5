"""Trajectories of verl's agent loops: one run of `_run_agent_loop`, whatever loop that is.

What it does meanwhile is seen where it asks the rollout servers, calls a tool, and has its answer
scored. The trainer takes whole groups from its replay buffer, by the `uid` of their prompt.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic_ns
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import following, wrap_own
from grpo_doctor_probes.hooks.table import Hook
from grpo_doctor_probes.hooks.wrapping import Around, after, before, on_result
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.trajectories import (
    CURRENT,
    DONE,
    FAILED,
    GENERATE,
    PAUSED,
    QUEUE,
    REWARD,
    TOOL,
    asked,
    key_of,
    opened,
    outcome_of,
    part,
    served,
    taken,
)

_LOOP = "verl.experimental.agent_loop.agent_loop"
_TOOL_LOOP = "verl.experimental.agent_loop.tool_agent_loop"
_CLIENT = "verl.workers.rollout.llm_server"
_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"
_QUEUED = "verl.trainer.ppo.v1.agent_loop_tq"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer"
_UNKNOWN = "unknown name"
# verl gives the model the message of what a tool raised, and goes on.
_ERRORS = ("Error executing tool", "Invalid JSON in arguments", "Unknown function")
_CALLED = ("execute", "call")  # of verl's tools that are classes, and functions
_EVICTED = ("stale", "all rewards equal", "failed")
# What the tool has raised that is called in this context.
_ERROR: ContextVar[list[type[BaseException]] | None] = ContextVar("grpo_doctor_tool", default=None)

HOOKS = (
    Hook(
        _CLIENT, "LLMServerClient.generate", "rollout/generate", "0.8-", shared=True,
        state=GENERATE,
    ),
    Hook(
        _CLIENT, "LLMServerClient._acquire_server", "rollout/acquire", "0.8-", shared=True,
        state=QUEUE,
    ),
    Hook(
        _LOOP, "AgentLoopWorker._compute_score", "reward/score", "0.7.1-", shared=True,
        state=REWARD,
    ),
)  # fmt: skip


def _is_evaluation(*args: Any, **kwargs: Any) -> bool:
    try:
        return bool(_about(*args, **kwargs)["validate"])
    except Exception:  # noqa: BLE001 - a version from tomorrow
        return False


def _about(*args: Any, trajectory: Any = None, **_: Any) -> Any:
    return args[2] if trajectory is None else trajectory


def _begun(one: Any, *args: Any, **prompt: Any) -> None:
    trajectory = _about(*args, **prompt)
    uid = prompt.get("uid")
    sample = prompt.get("session_id", trajectory.get("rollout_n"))
    key = None if uid is None else key_of(uid)
    group = _whole(trajectory.get("sample_index"))
    one.note(group=group, put=key, sample=sample, step=trajectory.get("step"))


def _whole(value: Any) -> int | None:
    """Return a number of a data set's row, which may be a tensor, or any text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _note_output(_worker: Any, output: Any, *_: Any, **__: Any) -> None:
    """Note what an agent loop returned: one output, or one for each of several contexts."""
    one, outputs = CURRENT.get(), output if isinstance(output, list) else [output]
    if one is None or not outputs:
        return
    extra = outputs[-1].extra_fields
    one.note(
        tokens=sum(sum(each.response_mask) for each in outputs),
        version=extra.get("min_global_steps"),
        last_version=extra.get("max_global_steps"),
    )


def _around_tool(call: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        name = _tool_name(*args, **kwargs)
        with part(f"{TOOL}/{name}") as row:
            error: list[type[BaseException]] = []
            _ERROR.set(error)
            result = await call(*args, **kwargs)
            if row is not None:
                quietly(_end_call, row, result, error)
        return result

    return wrapper


def _tool_name(loop: Any, tool_call: Any = None, *_: Any, **__: Any) -> str:
    """Return the tool's name if there is such a tool: models make up names without end."""
    name = getattr(tool_call, "name", None)
    return str(name) if name in getattr(loop, "tools", ()) else _UNKNOWN


def _end_call(row: Any, result: Any, error: list[type[BaseException]]) -> None:
    failed = str(getattr(result[0], "text", "")).startswith(_ERRORS)
    row.end(outcome_of(error[0]) if error else FAILED if failed else DONE)


def _watch_tools(loop: Any, *_: Any, **__: Any) -> None:
    """What a tool raises is a text for the model afterwards: note its class before."""
    for kind in {type(tool) for tool in loop.tools.values()}:
        wrap_own(kind, _CALLED, _around_execute)


def _around_execute(_: type, __: str, execute: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return await execute(*args, **kwargs)
        except BaseException as problem:
            error = _ERROR.get()
            if error is not None:
                error.append(type(problem))
            raise

    return functools.update_wrapper(wrapper, execute)


def _around_gate(park: Callable[..., Any]) -> Callable[..., Any]:
    """A server keeps requests back while it gets new weights."""

    async def wrapper(server: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        is_shut, start_ns = getattr(server, "_submission_paused", False), monotonic_ns()
        if is_shut:
            quietly(opened)
        result = await park(server, request_id, *args, **kwargs)
        if is_shut:
            quietly(served, request_id, [(PAUSED, start_ns)])
        return result

    return wrapper


def _note_taken(_buffer: Any, partition: str, uids: Any, *_: Any, **__: Any) -> None:
    if partition == "train":
        for uid in uids:
            taken(key_of(uid))


def _note_evicted(_buffer: Any, _step: Any, partition: str, reasons: Any) -> None:
    if partition == "train":
        for reason, uids in zip(_EVICTED, reasons):
            for uid in uids:
                taken(key_of(uid), reason)


WORKER: dict[str, Around] = {
    "AgentLoopWorker._run_agent_loop": following(_begun, unless=_is_evaluation),
    "AgentLoopWorker._agent_loop_postprocess": before(_note_output),
}
PATCHES: dict[str, dict[str, Around]] = {
    _TOOL_LOOP: {
        "ToolAgentLoop.__init__": after(_watch_tools),
        "ToolAgentLoop._call_tool": _around_tool,
    },
    _QUEUED: {"AgentLoopWorkerTQ._agent_loop_postprocess": before(_note_output)},
    _CLIENT: {
        # Since 0.9 the client names each request.
        "LLMServerClient._vllm_request_id": on_result(lambda name, *_, **__: asked(name)),
    },
    _SERVER: {"vLLMHttpServer._park_until_admitted": _around_gate},  # since 0.9.1
    _BUFFER: {
        "ReplayBuffer._materialize_batch": before(_note_taken),
        "ReplayBuffer._evict_terminal_groups": before(_note_evicted),
    },
}  # fmt: skip
