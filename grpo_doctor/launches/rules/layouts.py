"""How models are divided over GPUs: tensor, pipeline and data parallel ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.launches.rule import (
    EVERY_COMMAND,
    MEGATRON,
    OPENRLHF,
    PLAIN_SWIFT_AND_TRL,
    PLAIN_VERL,
    Flaw,
    View,
    divisors,
    fatal_flaw,
    rule,
)

_ENGINE = "vllm.tensor_parallel_size"


def _divided(
    view: View, knob: str, valid: Sequence[int], headline: str, evidence: str, *others: str
) -> Flaw:
    """Return the problem that a number is not divisible by a setting, and its valid values."""
    fixes = (view.flags(knob, valid), *others)
    return fatal_flaw(
        headline=headline, evidence=(evidence,), fixes=fixes, source=view.source(knob)
    )


@rule("GL014", OPENRLHF)
def openrlhf_engines_and_actors(view: View) -> Flaw | None:
    """Engines and actors do not share the same GPUs.

    With all models colocated OpenRLHF puts engine and actor on the same GPUs, so engines x tensor
    parallelism must equal the actors' GPUs; otherwise it refuses to start.
    """
    engines, tensor = view.integers("vllm.data_parallel_size", "vllm.tensor_parallel_size")
    if not view.colocated or view.value("rollout.async"):
        return None
    if not engines or not tensor or not view.processes or engines * tensor == view.processes:
        return None
    valid = [number for number in divisors(view.processes) if number <= 8]
    return fatal_flaw(
        headline=f"{engines} engines of {tensor} GPUs do not match "
        f"{view.processes} GPUs of the actor",
        evidence=(f"{engines} x {tensor} = {engines * tensor}, not {view.processes}",),
        fixes=(
            view.flag("vllm.data_parallel_size", max(1, view.processes // tensor)),
            f"or {view.flags('vllm.tensor_parallel_size', valid)}, engines to match",
        ),
        source=view.source("vllm.data_parallel_size"),
    )


@rule("GL016", MEGATRON)
def megatron_layout(view: View) -> Flaw | None:
    """The GPUs are not divisible by the parallel layout.

    Tensor x pipeline x context parallelism is one copy of the model; the number of GPUs must be a
    multiple of that, and the experts must be divisible by their ranks. A copy of the experts takes
    expert x expert tensor x pipeline parallelism; without a setting Megatron splits each expert
    over as many GPUs as each layer.
    """
    if not view.processes:
        return None
    copy = view.degree("parallel.tensor", "parallel.pipeline", "parallel.context")
    if view.processes % copy:
        return fatal_flaw(
            headline=f"one copy of the model takes {copy} GPUs: "
            f"{view.processes} is not divisible by that",
            evidence=("tensor x pipeline x context parallelism must divide the GPUs",),
            fixes=(view.flags("parallel.tensor", divisors(view.processes, 8)),),
            source=view.source("parallel.tensor", "parallel.pipeline", "parallel.context"),
        )
    expert = view.degree("parallel.expert")
    experts = view.model.experts if view.model else None
    if experts and experts % expert:
        text = f"{experts} experts are not divisible by {expert} ranks"
        has = f"the model has {experts} experts per layer"
        return _divided(view, "parallel.expert", divisors(experts, 8), text, has)
    each = view.value("parallel.expert_tensor") or view.degree("parallel.tensor")
    stages = view.degree("parallel.pipeline")
    if experts and view.processes % (expert * each * stages):
        taken = f"{expert} expert x {each} expert tensor x {stages} pipeline ranks"
        return fatal_flaw(
            headline=f"one copy of the experts takes {expert * each * stages} GPUs: "
            f"{view.processes} is not divisible by that",
            evidence=(taken,),
            fixes=(view.flag("parallel.expert_tensor", 1),),
            source=view.source("parallel.expert_tensor", "parallel.expert"),
        )
    return None


_UNEVEN = ("pipeline_num_layers", "layout", "pipeline_stage", "in_pipeline_split")


@rule("GL018", MEGATRON)
def megatron_layers_and_heads(view: View) -> Flaw | None:
    """Layers or heads are not divisible.

    Each pipeline stage takes the same number of layers, unless the first and last are given their
    own; each tensor rank takes the same number of attention heads.
    """
    model = view.model
    if model is None:
        return None
    tensor, pipeline = view.degree("parallel.tensor"), view.degree("parallel.pipeline")
    if model.heads % tensor:
        has = f"{model.heads} attention heads"
        text = f"{has} are not divisible by {tensor} tensor ranks"
        valid = divisors(model.heads, 8)
        return _divided(view, "parallel.tensor", valid, text, f"the model has {has}")
    uneven = any(word in key for key in view.launch.options for word in _UNEVEN)
    if model.layers % pipeline == 0 or uneven:
        return None
    has = f"{model.layers} layers"
    text = f"{has} are not divisible by {pipeline} stages"
    own = "or give the first and last stage their own number of layers"
    knob, layers = "parallel.pipeline", model.layers
    return _divided(view, knob, divisors(layers, 8), text, f"the model has {has}", own)


@rule("GL019", EVERY_COMMAND)
def tensor_parallel_and_heads(view: View) -> Flaw | None:
    """The attention heads are not divisible by vLLM's GPUs.

    vLLM gives each GPU of a replica the same number of attention heads, and refuses a tensor
    parallelism that does not divide them. Qwen2.5-7B has 28 heads: 1, 2, 4 and 7 work, 8 does not.
    """
    tensor = view.integer(_ENGINE)
    if view.model is None or not tensor or view.model.heads % tensor == 0:
        return None
    has = f"{view.model.heads} attention heads"
    text = f"{has} are not divisible by {tensor} GPUs"
    return _divided(view, _ENGINE, view.engine_sizes, text, f"the model has {has}")


@rule("GL020", EVERY_COMMAND)
def tensor_parallel_and_gpus(view: View) -> Flaw | None:
    """The GPUs are not divisible by the engines.

    An engine on the trainer's GPUs takes tensor parallelism x pipeline stages of them, so that must
    divide the number of training processes; a server must not need more GPUs than it is given.
    """
    must = "tensor parallelism x pipeline stages must divide the GPUs"
    engine = view.degree("vllm.tensor_parallel_size", "vllm.pipeline_parallel_size")
    if view.launch.role == "rollout server":
        cards = view.launch.visible_gpus or view.host.server_cards or view.host.cards_per_node
        copies = view.degree("vllm.data_parallel_size")
        hosts = view.launch.options.get("nnodes", 1)
        alone = view.launch.framework in ("trl", "ms-swift") or view.launch.visible_gpus
        needed = engine * copies
        if cards is None or needed <= cards * (hosts if isinstance(hosts, int) else 1):
            return None
        text = f"the server needs {needed} GPUs of {cards}"
        flaw = _divided(view, _ENGINE, divisors(cards, 8), text, must)
        if alone:
            return flaw
        fixes = (*flaw.fixes, "or start it in a Ray cluster of more hosts")
        return replace(flaw, severity="medium", fixes=fixes, ends=False, unverified=True)
    ranks = view.processes
    openrlhf = view.launch.framework == "openrlhf"
    if not view.colocated or openrlhf or not ranks or ranks % engine == 0:
        return None
    text = f"{ranks} training processes are not divisible by engines of {engine} GPUs"
    return _divided(view, _ENGINE, view.engine_sizes, text, must)


@rule("GL045", PLAIN_SWIFT_AND_TRL)
def deepspeed_and_fsdp(view: View) -> Flaw | None:
    """DeepSpeed and FSDP are both on.

    Both divide the model over the ranks, in different ways. accelerate takes one of them and
    transformers refuses the pair.
    """
    strategy = str(view.value("parallel.strategy") or "")
    if not strategy:
        return None
    stage = view.value("deepspeed.stage")
    if stage is None and not view.sets("deepspeed.preset"):
        return None
    deepspeed = view.value("deepspeed.preset") if stage is None else f"ZeRO-{stage}"
    return fatal_flaw(
        headline="DeepSpeed and FSDP are both on",
        evidence=(f"{strategy}, and {deepspeed}",),
        fixes=("remove --deepspeed", "or remove --fsdp"),
        source=view.source("parallel.strategy", "deepspeed.preset"),
    )


@rule("GL053", PLAIN_VERL)
def verl_sequence_parallel_with_padding(view: View) -> Flaw | None:
    """Sequence parallelism needs unpadded sequences.

    verl's Ulysses divides packed sequences; with padding it refuses to start.
    """
    divided = view.degree("parallel.context")
    if divided < 2 or view.value("train.padding_free"):
        return None
    return fatal_flaw(
        headline="sequence parallelism needs use_remove_padding",
        evidence=(f"ulysses_sequence_parallel_size is {divided}",),
        fixes=(view.flag("train.padding_free", True),),
        source=view.source("parallel.context", "train.padding_free"),
    )
