"""What all adapters say of the frameworks' versions, and functions that are a phase."""

from __future__ import annotations

import re
from typing import Any

import pytest

from grpo_doctor.phases import PHASES
from grpo_doctor_probes.hooks.boot import ADAPTERS, adapter_of
from grpo_doctor_probes.hooks.table import Adapter
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked

RANGE = re.compile(r"(\d+(?:\.\d+)*)(?:-(\d+(?:\.\d+)*)?)?")  # `3.11` is one alone

ALL = {package: adapter_of(package) for package in ADAPTERS}


@pytest.mark.parametrize(("package", "adapter"), ALL.items(), ids=ALL)
def test_a_hook_is_of_versions_that_begin_before_they_end(package: str, adapter: Adapter) -> None:
    for hook in adapter.hooks:
        match = RANGE.fullmatch(hook.versions)
        assert match, (hook.module, hook.qualname, hook.versions)
        first, last = ([int(part) for part in (text or "99").split(".")] for text in match.groups())
        assert first <= last, (hook.module, hook.qualname, hook.versions)
        assert hook.module.partition(".")[0] == package
        assert hook.span.partition("/")[0] in PHASES, hook.span


@pytest.mark.parametrize("adapter", ALL.values(), ids=ALL)
def test_a_function_is_hooked_once(adapter: Adapter) -> None:
    rows = [(hook.module, hook.qualname) for hook in adapter.hooks]
    assert len(rows) == len(set(rows))
    assert adapter.modules() == {module for module, _ in rows} | set(adapter.patches)


OPENRLHF, VERL = "openrlhf.trainer.ray", "verl.workers.rollout"


@pytest.mark.parametrize(
    ("module", "owner", "call", "spans", "role"),
    [
        (f"{OPENRLHF}.vllm_engine", "", ("batch_vllm_engine_call", [], "sleep", 1), ["offload"],
         None),
        (f"{OPENRLHF}.vllm_engine", "", ("batch_vllm_engine_call", [], "wake_up"), ["offload"],
         None),
        (f"{OPENRLHF}.vllm_engine", "", ("batch_vllm_engine_call", [], "pause_generation"),
         ["sync/pause"], None),
        (f"{OPENRLHF}.vllm_engine", "", ("batch_vllm_engine_call", [], "resume_generation"),
         ["sync/resume"], None),
        (f"{OPENRLHF}.vllm_engine", "", ("batch_vllm_engine_call", [], "get_load"), [], None),
        ("swift.template.base", "Template", ("encode", []), [], None),  # no batch is prepared
        ("verl.single_controller.base.worker", "Worker", ("any",), [], "actor"),
        (f"{VERL}.vllm_rollout.vllm_async_server", "vLLMHttpServer", ("sleep",), ["offload"],
         "rollout"),
        (f"{VERL}.sglang_rollout.async_sglang_server", "SGLangHttpServer", ("generate",),
         ["rollout/generate"], "rollout"),
        ("verl.experimental.agent_loop.agent_loop", "AgentLoopWorker", ("any",), [], "agent"),
        ("verl.experimental.reward_loop.reward_loop", "RewardLoopWorker", ("compute_score",),
         ["reward"], "reward"),
        ("nemo_rl.models.policy.workers.dtensor_policy_worker", "DTensorPolicyWorkerImpl",
         ("train",), ["train"], "actor"),
        ("nemo_rl.models.policy.workers.megatron_policy_worker", "MegatronPolicyWorkerImpl",
         ("get_logprobs",), ["logprob"], "actor"),
        ("nemo_rl.models.generation.vllm.vllm_worker", "BaseVllmGenerationWorker", ("generate",),
         [], "rollout"),
        ("slime.ray.rollout", "RolloutManager", ("generate", 7), ["rollout/generate"], "rollout"),
        ("sglang.srt.entrypoints.engine", "Engine", ("update_weights_from_disk",), ["sync"], None),
        ("vllm.entrypoints.llm", "LLM", ("collective_rpc", "update_weight"), ["sync"], None),
        ("vllm.entrypoints.llm", "LLM", ("collective_rpc", "ping"), [], None),
    ],
)  # fmt: skip
def test_a_call_is_a_phase_and_an_object_gives_its_process_a_role(
    job: Job, module: str, owner: str, call: tuple[Any, ...], spans: list[str], role: str | None
) -> None:
    name, *arguments = call
    code = f"def {name}(*given): return given"
    if owner:
        code = f"class {owner}:\n    def __init__(self): pass\n    {code.replace('(', '(self, ')}"
    made = hooked(module, code)
    made = getattr(made, owner)() if owner else made
    assert getattr(made, name)(*arguments) == tuple(arguments)
    assert (job.spans, ROLE.of_this_process(), job.errors) == (spans, role, 0)
