"""The launches whose memory is modelled, and what of the others is not."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.launches import Launch
from grpo_doctor.launches.domain import GROUPED, Domain
from grpo_doctor.memory.facts import holds_since, shipped

DOMAIN = Domain(
    ("bundled", "ms-swift", "trl", "verl", "openrlhf", "vllm", "sglang"),
    GROUPED,
    ("train", "rollout server"),
)
CRITICS = Domain(("verl", "openrlhf"), ("ppo",))
"""Those that train a critic too."""
_KNOWER = "the memory model"
_ENGINES = ("", "vllm", "sglang")
_STRATEGIES = ("", "dp", "fsdp", "fsdp2", "megatron", "full_shard", "full_shard auto_wrap")
_OFF = ("", "false", "none", "null", "[]")


_TABLE = shipped("domain.json")


def not_modelled(launch: Launch) -> str | None:
    """A sentence that says why the memory of a launch is not estimated; None where it is."""
    outside = None if CRITICS.holds(launch) else DOMAIN.outside(launch, _KNOWER)
    if outside is not None or launch.role != "train":
        return outside
    return next(
        (f"{what}; {_KNOWER} knows {known}" for what, known in _unknown_parts(launch)), None
    )


def _unknown_parts(launch: Launch) -> Iterator[tuple[str, str]]:
    """What of a launch the model leaves out, and what it knows of that kind."""
    texts = {name: str(value).lower() for name, value in launch.options.items()}
    on = [f"{name}={text}".lower() for name, text in texts.items() if text not in _OFF]
    names = {text.partition("=")[0] for text in on}
    verl = launch.framework == "verl"
    if (verl or launch.framework == "openrlhf") and not launch.processes_known:
        yield "the number of hosts or GPUs is set elsewhere", "only what the launch sets"
    engine = str(launch.settings.get("rollout.engine") or "")
    if engine not in _ENGINES or "use_lmdeploy" in names:
        yield f"{engine or 'LMDeploy'} generates", "vLLM and SGLang"
    yield from _unknown_trainers(launch) if verl else ()
    rollout = "actor_rollout_ref.rollout.quantization=fp8"
    if verl and any("quant" in text or "fp8" in text for text in on if text != rollout):
        yield "weights of 8 or 4 bits", "16 bits with verl"
    if any(name.startswith("fp8") for name in names) and not verl:
        yield "training computes in 8 bits", "16 bits"
    if names & set(_TABLE["offloaded"]):
        yield "activations are moved to the host", "verl's way to do that"
    if "use_ray" in names or "tuner_backend=unsloth" in on:
        yield "ms-swift with Ray groups or unsloth", "neither"
    if names & set(_TABLE["other_models"]):
        yield "a reward or teacher model on the GPUs", "policy, reference and rollout engine"
    yield from _unknown_settings(launch)


def _unknown_trainers(launch: Launch) -> Iterator[tuple[str, str]]:
    if "hydra.searchpath" in launch.options:
        yield "groups of another package configure it", "those of verl"
    for trains in (launch.settings.get("parallel.strategy"), launch.options.get("model_engine")):
        if str(trains or "") not in _STRATEGIES:
            yield f"{trains} trains", "FSDP and Megatron"
    if "megatron" in launch.table and not holds_since(launch.version, "0.4"):
        yield "verl before 0.4 has Megatron models of its own", "those of Megatron's core"


def _unknown_settings(launch: Launch) -> Iterator[tuple[str, str]]:
    kernels = launch.settings.get("vllm.quantization")
    if kernels and str(kernels).lower() not in (*_OFF, "fp8"):
        yield f"the engine's weights are quantized to {kernels}", "FP8, or what the checkpoint has"
    for knob, (usual, what, known) in _TABLE["unusual"].items():
        if str(launch.settings.get(knob, usual)).lower() != usual:
            yield what, known
    if launch.settings.get("train.bf16") is False and not launch.settings.get("train.fp16"):
        yield "training computes in float32", "16 bits"
    if (launch.framework, launch.subcommand) == ("openrlhf", "train_ppo"):
        yield "OpenRLHF without Ray generates with transformers", "train_ppo_ray"
    if "separate_async" in str(launch.options.get("trainer.v1.trainer_mode")):
        yield "rollouts run on GPUs of their own", "verl's engines on the trainer's GPUs"
