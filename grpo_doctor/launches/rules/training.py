"""What is trained and how: adapters, offload, precision, the loss."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import (
    PLAIN_SWIFT,
    SAMPLES,
    SWIFT,
    VERL,
    Domain,
    Flaw,
    View,
    fatal_flaw,
    rule,
)

_OFFLOAD_DOES_KNOBS = ("offload.model", "offload.optimizer")


@rule("GL032", Domain(("ms-swift", "bundled"), whole=True))
def offload_does_nothing(view: View) -> Flaw | None:
    """An offload flag does nothing.

    ms-swift's --offload_model and --offload_optimizer move states away while a colocated vLLM
    generates. Without vLLM, or with a server, they are never moved. With DeepSpeed's own offload
    the optimizer is on the host already.
    """
    on = [knob for knob in _OFFLOAD_DOES_KNOBS if view.launch.settings.get(knob)]
    if not on:
        return None
    if not view.value("vllm.use"):
        why = "they act while vLLM generates, and vLLM is not used"
    elif not view.colocated:
        why = "they make room for vLLM on the same GPU, but vLLM runs elsewhere"
    elif "offload.optimizer" in on and view.value("deepspeed.offload_optimizer"):
        on, why = ["offload.optimizer"], "DeepSpeed keeps the optimizer on the host already"
    else:
        return None
    if view.launch.framework == "bundled" and not view.value("vllm.use"):
        return None
    flags = " and ".join(view.flag(knob, True) for knob in on)
    return Flaw(
        severity="low",
        headline=f"{flags} do{'es' * (len(on) == 1)} nothing",
        evidence=(why,),
        fixes=(f"remove {flags}",),
        source=view.source(*on),
    )


@rule("GL034", SAMPLES)
def zero_offload_below_3(view: View) -> Flaw | None:
    """Parameters can be offloaded only with ZeRO-3.

    DeepSpeed's offload_param moves parameters that ZeRO-3 has divided. With stage 1 or 2 DeepSpeed
    accepts the section and ignores it: the whole model stays on each GPU.
    """
    stage = view.value("deepspeed.stage")
    if not view.value("deepspeed.offload_param") or stage is None or stage == 3:
        return None
    return Flaw(
        severity="medium",
        headline=f"offload_param does nothing with ZeRO-{stage}",
        evidence=("only ZeRO-3 shards parameters and can offload them",),
        fixes=('"stage": 3 in the DeepSpeed configuration', "or remove offload_param"),
        source=view.source("deepspeed.offload_param", "deepspeed.stage"),
    )


_LORA_OPTIONS_KNOBS = ("train.lora_rank", "train.lora_alpha", "train.lora_targets")


@rule("GL037", SAMPLES)
def lora_options_in_full_training(view: View) -> Flaw | None:
    """LoRA options are set in full training.

    With all weights trained, lora_rank and similar options are ignored: the run takes several times
    the memory of LoRA.
    """
    ignored = [knob for knob in _LORA_OPTIONS_KNOBS if view.launch.settings.get(knob)]
    if not ignored or view.value("train.type") != "full":
        return None
    explicit = view.sets("train.type")
    return Flaw(
        severity="low" if explicit else "high",
        headline="all weights are trained: LoRA's options do nothing",
        evidence=("full training is set" if explicit else "full training is the default here",),
        fixes=(view.flag("train.type", "lora"), "or remove LoRA's options"),
        source=view.source(*ignored),
    )


@rule("GL041", SAMPLES)
def two_precisions(view: View) -> Flaw | None:
    """bf16 and fp16 are both on.

    Mixed precision computes in one of the two; transformers refuses both.
    """
    if not (view.launch.settings.get("train.bf16") and view.launch.settings.get("train.fp16")):
        return None
    return fatal_flaw(
        headline="bf16 and fp16 are both on",
        evidence=("at most one can be true",),
        fixes=("--fp16 false",),
        source=view.source("train.fp16"),
    )


@rule("GL044", SAMPLES)
def no_randomness(view: View) -> Flaw | None:
    """All completions of a group are identical.

    With temperature 0 all completions of a prompt are identical, and so are their rewards: every
    advantage is 0 and nothing is learned.
    """
    temperature, top_k = view.value("rollout.temperature"), view.value("rollout.top_k")
    if temperature != 0 and top_k != 1:
        return None
    knob = "rollout.temperature" if temperature == 0 else "rollout.top_k"
    return Flaw(
        severity="high",
        headline="all completions of a prompt are identical: every advantage is 0",
        evidence=(f"temperature {temperature}, top_k {top_k}",),
        fixes=(view.flag(knob, 1.0 if temperature == 0 else -1),),
        source=view.source(knob),
    )


_FLASH = ("flash_attn", "flash_attention_2", "flash_attention_3", "flash_attn_2", "flash_attn_3")


@rule("GL048", PLAIN_SWIFT)
def padding_free_without_flash(view: View) -> Flaw | None:
    """Padding-free training needs flash attention.

    Packed sequences are kept apart by flash attention's variable-length kernels. ms-swift refuses
    padding_free with another implementation.
    """
    attention = view.value("model.attention")
    if not view.launch.settings.get("train.padding_free") or not attention or attention in _FLASH:
        return None
    return fatal_flaw(
        headline="--padding_free needs flash attention",
        evidence=(f"attn_impl is {attention}",),
        fixes=("--attn_impl flash_attn", "or --padding_free false"),
        source=view.source("train.padding_free"),
    )


@rule("GL049", PLAIN_SWIFT)
def liger_with_what_it_lacks(view: View) -> Flaw | None:
    """The Liger loss does not support this.

    ms-swift's Liger loss for GRPO works on padded batches of whole sequences: it refuses
    padding_free, sequence parallelism, a two-sided delta and an entropy mask.
    """
    if not view.at_least("4.0.0") or not view.launch.settings.get("train.use_liger"):
        return None
    refused = {
        "train.padding_free": bool(view.value("train.padding_free")),
        "parallel.context": view.degree("parallel.context") > 1,
        "train.delta": view.value("train.delta") is not None,
        "train.top_entropy_quantile": (view.value("train.top_entropy_quantile") or 1.0) < 1.0,
    }
    knobs = [knob for knob, refuses in refused.items() if refuses]
    if not knobs:
        return None
    return fatal_flaw(
        headline="the Liger loss does not support "
        + " and ".join(view.flag(knob, view.value(knob)) for knob in knobs),
        evidence=("ms-swift refuses the pair",),
        fixes=("--use_liger_kernel false", "or remove the other"),
        source=view.source(*knobs),
    )


@rule("GL051", replace(VERL, whole=True))
def verl_other_advantage(view: View) -> Flaw | None:
    """verl computes advantages as in PPO.

    algorithm.adv_estimator is gae by default: verl trains a critic in addition to the actor, as
    large again, and the n completions of a group are not compared. Set GRPO explicitly.
    """
    if "algorithm.adv_estimator" in view.launch.options:
        return None
    if not view.launch.subcommand.endswith("main_ppo"):
        return None
    group = view.integer("rollout.num_generations")
    if not group or group < 2 or any(key.startswith("critic.") for key in view.launch.options):
        return None
    return Flaw(
        severity="high",
        headline="this is PPO with a critic, not GRPO",
        evidence=(
            f"{group} completions per prompt, and algorithm.adv_estimator is gae by default",
        ),
        fixes=("algorithm.adv_estimator=grpo",),
        source=view.source("rollout.num_generations"),
    )


@rule("GL062", SWIFT)
def unsloth_in_grpo(view: View) -> Flaw | None:
    """ms-swift does not train GRPO through unsloth.

    unsloth loads a model with its own code and onto one GPU. ms-swift takes it for supervised
    training; of GRPO its maintainers say that it is not supported (ms-swift issue 3183): seven
    processes ran out of memory. The memory estimate does not know unsloth's kernels.
    """
    launch = view.launch
    if launch.options.get("tuner_backend") != "unsloth":
        return None
    return fatal_flaw(
        headline="ms-swift does not train GRPO through unsloth",
        evidence=("ms-swift issue 3183; the memory estimate does not apply to it",),
        fixes=("--tuner_backend peft",),
        source=launch.option_sources.get("tuner_backend"),
    )
