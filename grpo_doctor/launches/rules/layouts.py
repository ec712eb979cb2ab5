"""How models are divided over GPUs: tensor, pipeline and data parallel ranks."""

from __future__ import annotations

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


@rule("GL014", OPENRLHF)
def openrlhf_engines_and_actors(view: View) -> Flaw | None:
    """Engines and actors do not share the same GPUs.

    With all models colocated OpenRLHF puts engine and actor on the same GPUs, so engines x tensor
    parallelism must be the actors' GPUs; it refuses to start otherwise.
    """
    engines, tensor = (
        view.integer("vllm.data_parallel_size"),
        view.integer("vllm.tensor_parallel_size"),
    )
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
    """The parallel layout does not divide the GPUs.

    Tensor x pipeline x context parallelism is one copy of the model; the number of GPUs must be a
    multiple of that, and the experts must divide among their ranks.
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
        return fatal_flaw(
            headline=f"{experts} experts are not divisible by {expert} ranks",
            evidence=(f"the model has {experts} experts per layer",),
            fixes=(view.flags("parallel.expert", divisors(experts, 8)),),
            source=view.source("parallel.expert"),
        )
    return None


_UNEVEN = ("pipeline_num_layers", "layout", "pipeline_stage", "in_pipeline_split")


@rule("GL018", MEGATRON)
def megatron_layers_and_heads(view: View) -> Flaw | None:
    """Layers or heads do not divide.

    Each pipeline stage takes the same number of layers, unless the first and last are given their
    own; each tensor rank takes the same number of attention heads.
    """
    model = view.model
    if model is None:
        return None
    tensor, pipeline = view.degree("parallel.tensor"), view.degree("parallel.pipeline")
    if model.heads % tensor:
        return fatal_flaw(
            headline=f"{model.heads} attention heads are not divisible by {tensor} tensor ranks",
            evidence=(f"the model has {model.heads} attention heads",),
            fixes=(view.flags("parallel.tensor", divisors(model.heads, 8)),),
            source=view.source("parallel.tensor"),
        )
    uneven = any(word in key for key in view.launch.options for word in _UNEVEN)
    if model.layers % pipeline == 0 or uneven:
        return None
    return fatal_flaw(
        headline=f"{model.layers} layers are not divisible by {pipeline} stages",
        evidence=(f"the model has {model.layers} layers",),
        fixes=(
            view.flags("parallel.pipeline", divisors(model.layers, 8)),
            "or give the first and last stage their own number of layers",
        ),
        source=view.source("parallel.pipeline"),
    )


@rule("GL019", EVERY_COMMAND)
def tensor_parallel_and_heads(view: View) -> Flaw | None:
    """vLLM cannot divide the attention heads.

    vLLM gives each GPU of a replica the same number of attention heads, and refuses a tensor
    parallelism that does not divide them. Qwen2.5-7B has 28 heads: 1, 2, 4, 7 go, 8 does not.
    """
    tensor = view.integer("vllm.tensor_parallel_size")
    if view.model is None or not tensor or view.model.heads % tensor == 0:
        return None
    return fatal_flaw(
        headline=f"{view.model.heads} attention heads are not divisible by {tensor} GPUs",
        evidence=(f"the model has {view.model.heads} attention heads",),
        fixes=(view.flags("vllm.tensor_parallel_size", divisors(view.model.heads, 8)),),
        source=view.source("vllm.tensor_parallel_size"),
    )


@rule("GL020", EVERY_COMMAND)
def tensor_parallel_and_gpus(view: View) -> Flaw | None:
    """Engines do not divide the GPUs.

    An engine on the trainer's GPUs takes tensor parallelism x pipeline stages of them, so that must
    divide the number of training processes; a server must not need more GPUs than it is given.
    """
    engine = view.degree("vllm.tensor_parallel_size", "vllm.pipeline_parallel_size")
    if view.launch.role == "rollout server":
        cards = view.launch.visible_gpus or view.host.server_cards or view.host.cards_per_node
        copies = view.degree("vllm.data_parallel_size")
        if cards is None or engine * copies <= cards:
            return None
        return _flaw(view, f"the server needs {engine * copies} GPUs of {cards}", cards)
    ranks = view.processes
    if (
        not view.colocated
        or not ranks
        or view.launch.framework == "openrlhf"
        or ranks % engine == 0
    ):
        return None
    text = f"{ranks} training processes are not divisible by engines of {engine} GPUs"
    return _flaw(view, text, ranks)


def _flaw(view: View, headline: str, cards: int) -> Flaw:
    return fatal_flaw(
        headline=headline,
        evidence=("tensor parallelism x pipeline stages must divide the GPUs",),
        fixes=(view.flags("vllm.tensor_parallel_size", divisors(cards, 8)),),
        source=view.source("vllm.tensor_parallel_size"),
    )


@rule("GL045", PLAIN_SWIFT_AND_TRL)
def deepspeed_and_fsdp(view: View) -> Flaw | None:
    """DeepSpeed and FSDP at once.

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
        fixes=("leave out --deepspeed", "or leave out --fsdp"),
        source=view.source("parallel.strategy", "deepspeed.preset"),
    )


@rule("GL053", PLAIN_VERL)
def verl_sequence_parallel_with_padding(view: View) -> Flaw | None:
    """Sequence parallelism needs padding removed.

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
