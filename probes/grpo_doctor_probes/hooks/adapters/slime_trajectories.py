"""Trajectories of slime and miles: one call of `generate_and_rm` each, all in one event loop.

Requests go by HTTP to a router of SGLang's servers, whose answers say how long each waited and
computed there (`meta_info`; both start their servers with `--enable-metrics`). The ranks that train
know a sample by its index. Of samples that a rollout aborts, what resumes them is another
trajectory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import following
from grpo_doctor_probes.hooks.wrapping import Around, before, each, in_state, on_result, within
from grpo_doctor_probes.record import trajectories as record
from grpo_doctor_probes.record.recorder import quietly

_REQUESTS = ("generate", "completions")  # what an URL of the engine ends with
_WHOLE = ("completed", "truncated")
# What this process knows: who waits for its turn, by trajectory; who waits for its group, by
# sample; samples that this rollout has got, by index, and when. A rollout that never ends, as the
# fully asynchronous one, lists none.
_HERE: Any = SimpleNamespace(waiting={}, groups={}, ready={}, is_listing=False)


def _is_none(_owner: Any, sample: Any, _params: Any = None, *rest: Any, **options: Any) -> bool:
    """Whether a call is of an evaluation, or of a sample that an earlier rollout completed."""
    return bool(options.get("evaluation") or any(rest)) or _status(sample) in _WHOLE


def _arguments(owner: Any) -> Any:
    """slime hands its options from call to call, miles an object that has them."""
    return getattr(owner, "args", owner)


def _status(sample: Any) -> str:
    return str(getattr(getattr(sample, "status", None), "value", ""))


def _begun(one: record.Trajectory, _owner: Any, sample: Any, *_: Any, **__: Any) -> None:
    one.note(group=sample.group_index, sample=sample.index)
    _HERE.waiting[one.serial] = one.part(record.QUEUE)


def _end_wait(*_: Any, **__: Any) -> None:
    """The current trajectory has its turn: fewer others are at the engines than may be."""
    one = record.CURRENT.get()
    if one is not None:
        _end_wait_of(one)


def _end_wait_of(one: record.Trajectory) -> None:
    waiting = _HERE.waiting.pop(one.serial, None)
    if waiting is not None:
        waiting.end()


def _asking(url: Any, *_: Any, **__: Any) -> AbstractContextManager[object]:
    quietly(_end_wait)
    is_request = str(url).partition("?")[0].rpartition("/")[2] in _REQUESTS
    return record.part(record.GENERATE) if is_request else nullcontext()


def _note_engine(output: Any, *_: Any, **__: Any) -> None:
    """What the engine did, by how long it says that took; the answer has just come.

    SGLang says from 0.5.4 how long a request waited, and from 0.5.23 when its first token came.
    """
    info = output.get("meta_info", {}) if isinstance(output, dict) else {}
    whole_s, queued_s = info.get("e2e_latency"), info.get("queue_time")
    if whole_s is None or queued_s is None or record.CURRENT.get() is None:
        return
    begun_ns, first_s = monotonic_ns() - int(whole_s * 1e9), info.get("first_token_latency")
    computing_ns = begun_ns + int(queued_s * 1e9)
    since = [(record.ENGINE_QUEUE, begun_ns), ("computed", computing_ns)]
    if first_s is not None:
        since[1:] = (record.PREFILL, computing_ns), (record.DECODE, begun_ns + int(first_s * 1e9))
    record.asked(info["id"])
    record.served(info["id"], since)


def _generated(one: record.Trajectory, result: Any, owner: Any, *_: Any) -> None:
    """A sample is complete, or aborted; with a reward of groups it waits for the others."""
    _end_wait_of(one)
    samples = list(_samples(result))
    versions = [int(v) for sample in samples for v in sample.weight_versions if str(v).isdigit()]
    one.note(tokens=sum(sample.response_length for sample in samples))
    if versions:
        one.note(version=min(versions), last_version=max(versions))
    if any(_status(sample) == "aborted" for sample in samples):
        one.note(**{"dropped/aborted": 1.0})
    else:
        one.note(put=_key(samples[0].index))
        if _HERE.is_listing:
            _HERE.ready[samples[0].index] = monotonic_ns()
        if _arguments(owner).group_rm:
            _HERE.groups[id(samples[0])] = one, one.part(record.QUEUE)
            return
        one.note(reward=_reward(samples[0], owner))
    one.end()


def _samples(result: Any) -> Iterator[Any]:
    """Yield what a group consists of: samples, or what several agents made of each."""
    if not isinstance(result, (list, tuple)):
        yield result
        return
    for part in result:
        yield from _samples(part)


def _key(index: object) -> float:
    return record.key_of(f"sample {index}")


def _reward(sample: Any, owner: Any) -> Any:
    reward = sample.reward
    key = getattr(_arguments(owner), "reward_key", None)
    return reward.get(key) if isinstance(reward, dict) else reward


def _scoring(_args: Any, samples: Any, *_: Any, **__: Any) -> AbstractContextManager[object]:
    if record.CURRENT.get() is not None:
        return record.part(record.REWARD)
    parts = ExitStack()
    for sample in _samples(samples):
        one, waiting = _HERE.groups.get(id(sample), (None, None))
        if waiting is not None:
            quietly(waiting.end)
            parts.enter_context(record.part(record.REWARD, one))
    return parts


def _end_group(group: Any, owner: Any, *_: Any, **__: Any) -> None:
    """The samples of a group that is scored as a whole end together."""
    for sample in _samples(group):
        one, waiting = _HERE.groups.pop(id(sample), (None, None))
        if one is not None:
            waiting.end()
            one.note(reward=_reward(sample, owner))
            one.end()


def _note_dropped(result: Any, owner: Any, *_: Any, **__: Any) -> None:
    """Of the samples that a rollout got, those that it neither returns nor keeps are dropped."""
    output, kept = result if isinstance(result, tuple) else (result, ())
    used = {sample.index for sample in _samples(getattr(output, "samples", output))}
    later = {sample.index for sample in _samples(kept)}
    reason = (
        "filtered"
        if getattr(_arguments(owner), "dynamic_sampling_filter_path", None)
        else "not used"
    )
    for index, at_ns in _HERE.ready.items():
        if index not in used | later:
            record.taken(_key(index), reason, at_ns=at_ns)
    _HERE.ready = {index: at for index, at in _HERE.ready.items() if index in later}
    _HERE.is_listing = False


def _begin_rollout(*_: Any, **__: Any) -> None:
    _HERE.is_listing = True


def _note_taken(actor: Any, _rollout_id: Any, data: Any, *_: Any, **__: Any) -> None:
    """The first rank of each replica of the model takes its samples."""
    mpu = sys.modules.get("megatron.core.parallel_state")
    kinds = ("tensor_model", "pipeline_model", "context")
    if mpu is None or not any(getattr(mpu, f"get_{kind}_parallel_rank")() for kind in kinds):
        version = getattr(getattr(actor, "weight_updater", None), "weight_version", None)
        for index in data.get("sample_indices", ()):
            record.taken(_key(index), version=version)


def _tool_of(call: Any, *_: Any, **__: Any) -> AbstractContextManager[object]:
    name = getattr(call, "name", None) or getattr(getattr(call, "function", None), "name", "tool")
    return record.part(f"{record.TOOL}/{name}")


_LOOP: dict[str, Around] = {
    "generate_and_rm": following(_begun, _generated, _is_none, ends=False),
    "generate_and_rm_group": on_result(_end_group),
    "async_rm": in_state(record.REWARD),
    "batched_async_rm": within(_scoring),
    "generate": before(_end_wait),
    # A function of the user's is looked up once a sample has its turn.
    "load_function": before(_end_wait),
    "load_generate_function": before(_end_wait),
}
TRAIN_ACTOR = before(_note_taken)


def of_package(package: str) -> dict[str, dict[str, Around]]:
    """Return the patches by module, for slime or a fork."""
    rollout = f"{package}.rollout"
    inference = f"{rollout}.inference_rollout.inference_rollout"
    listed = each(on_result(_note_dropped), before(_begin_rollout))
    done: dict[str, Around] = {"generate_rollout_async": listed}
    return {
        f"{package}.utils.http_utils": {"post": each(on_result(_note_engine), within(_asking))},
        f"{rollout}.sglang_rollout": {**_LOOP, **done},
        f"{inference}_common": _LOOP,  # of miles, as what follows
        f"{inference}_train": done,
        f"{rollout}.generate_utils.tool_call_utils": {"_execute_tool_call": within(_tool_of)},
    }
