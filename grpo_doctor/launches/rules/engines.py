"""Rollout engines: their memory, what wakes them, which one is used."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import (
    EVERY_COMMAND,
    OPENRLHF,
    PLAIN_LIKE_TRL,
    PLAIN_SWIFT_AND_TRL,
    SAMPLED,
    SWIFT_AND_TRL,
    TRAINS,
    VERL,
    Domain,
    Flaw,
    View,
    fatal_flaw,
    rule,
)


@rule("GL015", OPENRLHF)
def openrlhf_sleep_without_sharing(view: View) -> Flaw | None:
    """Sleep mode does nothing without shared GPUs.

    OpenRLHF switches vLLM's and DeepSpeed's sleep off where engines and actors have GPUs of their
    own, so no room is needed. With asynchronous training vLLM's sleep is refused.
    """
    if not view.launch.settings.get("vllm.sleep_level"):
        return None
    if view.value("rollout.async"):
        return fatal_flaw(
            headline="asynchronous rollouts and vLLM's sleep mode are mutually exclusive",
            evidence=("the engine would sleep while it has to generate",),
            fixes=(view.flag("vllm.sleep_level", 0),),
            source=view.source("vllm.sleep_level"),
        )
    if view.colocated:
        return None
    return Flaw(
        severity="low",
        headline="vLLM's sleep mode does nothing: engines have their own GPUs",
        evidence=("OpenRLHF turns it off without --colocate_all_models, --train.colocate_all",),
        fixes=(view.flag("vllm.mode", "colocate"), f"or {view.flag('vllm.sleep_level', 0)}"),
        source=view.source("vllm.sleep_level"),
    )


_SWITCHES_IT_OFF = (0, 32, 0)  # the oldest vLLM that was seen to do so; some before may


@rule("GL029", Domain(("bundled", "ms-swift", "trl", "openrlhf"), SAMPLED))
def expandable_segments_with_sleep(view: View) -> Flaw | None:
    """expandable_segments and sleep mode are mutually exclusive.

    vLLM's sleep mode keeps weights and cache in a memory pool of its own, which PyTorch's
    expandable segments do not support: vLLM ends with an assertion at start. ms-swift since
    3.9, verl, and vLLM 0.32 itself switch the setting off around the rollout.
    """
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    said = {n: view.launch.environment.get(n, "").replace(" ", "").lower() for n in names}
    set_names = [n for n in names if "expandable_segments:true" in said[n]]
    if not set_names or not view.colocated or not view.sleeps:
        return None
    if view.launch.framework == "ms-swift" and view.at_least("3.9.0"):
        return None
    vllm = view.package("vllm")
    if vllm is not None and vllm >= _SWITCHES_IT_OFF:
        return None
    return fatal_flaw(
        headline="expandable_segments and vLLM's sleep mode are mutually exclusive",
        evidence=(f"{set_names[0]} has expandable_segments:True, and the engine sleeps",),
        fixes=(f"unset {set_names[0]}", f"or {view.flag('vllm.sleep_level', 0)}"),
        source=view.source("vllm.sleep_level"),
    )


_MOST_WITHOUT_SLEEP = 0.8  # what is left of 80 GB holds a 7B with LoRA, and little else


@rule("GL030", Domain(("ms-swift", "trl", "openrlhf"), SAMPLED))
def no_room_beside_the_engine(view: View) -> Flaw | None:
    """The engine leaves no room for the trainer.

    An engine on the trainer's GPU that does not sleep keeps its share of the GPU all the time. The
    rest must hold the trainer: with 0.9, the default, a tenth of the GPU.
    """
    share = view.value("vllm.gpu_memory_utilization")
    if not view.colocated or view.sleeps or not share or share <= _MOST_WITHOUT_SLEEP:
        return None
    origin = "" if view.sets("vllm.gpu_memory_utilization") else ", this framework's default"
    return Flaw(
        severity="medium",
        headline=f"vLLM keeps {share:.0%} of each GPU, also during training",
        evidence=(f"gpu_memory_utilization {share:g}{origin}; the engine never sleeps",),
        fixes=(view.flag("vllm.sleep_level", 1), "or a smaller share"),
        source=view.source("vllm.gpu_memory_utilization"),
    )


_BYTES = 2  # of a weight in bfloat16
_LEAST_BESIDE = 1.15  # working memory, graphs and a cache for a few sequences


# With these an engine's GPU holds less than the model divided by tensor and pipeline stages.
_OTHER_SHARES = ("quant", "fp8", "kv_cache_memory_bytes", "expert_parallel", "data_parallel_size")


@rule("GL031", EVERY_COMMAND)
def engine_too_small_for_weights(view: View) -> Flaw | None:
    """The engine's share is smaller than the weights.

    The engine's share of the GPU must hold its weights, its working memory and a cache. If the
    weights alone do not fit, vLLM ends with `No available memory for the cache blocks`.
    """
    share, card = view.value("vllm.gpu_memory_utilization"), view.host.card_bytes
    serves = view.launch.role == "rollout server"
    if view.model is None or not share or not card or not (view.colocated or serves):
        return None
    options = str(view.launch.options)
    if any(word in options for word in _OTHER_SHARES):
        return None
    divided = view.degree("vllm.tensor_parallel_size", "vllm.pipeline_parallel_size")
    weights = view.model.parameters * _BYTES / divided
    if weights * _LEAST_BESIDE <= share * card:
        return None
    needed = weights * _LEAST_BESIDE / card
    tensor = [n for n in view.engine_sizes if n > divided]
    fixes = [view.flags("vllm.tensor_parallel_size", tensor)] if tensor else []
    if needed <= 0.95:
        fixes.insert(0, view.flag("vllm.gpu_memory_utilization", round(needed + 0.05, 2)))
    ends = weights > share * card
    holds = "cannot hold its weights" if ends else "leaves little room for more than its weights"
    return Flaw(
        severity="high" if ends else "medium",
        ends=ends,
        headline=f"vLLM's share of {share * card / 2**30:.0f} GiB {holds}",
        evidence=(f"{weights / 2**30:.1f} GiB of weights per GPU, plus a cache",),
        fixes=tuple(fixes),
        source=view.source("vllm.gpu_memory_utilization", "vllm.tensor_parallel_size"),
    )


@rule("GL033", SWIFT_AND_TRL)
def sleep_does_nothing(view: View) -> Flaw | None:
    """Sleep mode does nothing.

    The engine sleeps to make room for a trainer on the same GPU. ms-swift sets sleep_level to 0
    with a server and with asynchronous rollouts; TRL's vllm_enable_sleep_mode acts only in
    colocate mode.
    """
    if not view.launch.settings.get("vllm.sleep_level"):
        return None
    if view.colocated and not view.value("rollout.async"):
        return None
    return Flaw(
        severity="low",
        headline="vLLM's sleep mode does nothing here",
        evidence=("the engine does not share the trainer's GPU, or never pauses",),
        fixes=(f"remove {view.flag('vllm.sleep_level', view.value('vllm.sleep_level'))}",),
        source=view.source("vllm.sleep_level"),
    )


@rule("GL036", TRAINS)
def adapters_in_the_engine(view: View) -> Flaw | None:
    """vLLM cannot take these adapters.

    With vllm_enable_lora the trainer sends adapters instead of merged weights. vLLM reserves room
    for adapters up to max_lora_rank and refuses larger ones; in full training there are none to
    send.
    """
    if not view.launch.settings.get("vllm.enable_lora"):
        return None
    if view.value("train.type") == "full":
        return fatal_flaw(
            headline="vLLM is set up for adapters, but all weights are trained",
            evidence=("full training makes no adapters",),
            fixes=(f"remove {view.flag('vllm.enable_lora', True)}",),
            source=view.source("vllm.enable_lora"),
        )
    rank, limit = view.integer("train.lora_rank"), view.integer("vllm.max_lora_rank")
    if not rank or not limit or rank <= limit:
        return None
    return fatal_flaw(
        headline=f"adapters have rank {rank}, but vLLM takes at most {limit}",
        evidence=(f"max_lora_rank is {limit}",),
        fixes=(view.flag("vllm.max_lora_rank", rank),),
        source=view.source("train.lora_rank", "vllm.max_lora_rank"),
    )


_KNOBS = (
    "vllm.gpu_memory_utilization",
    "vllm.tensor_parallel_size",
    "vllm.max_model_len",
    "vllm.mode",
)


@rule("GL046", replace(PLAIN_LIKE_TRL, whole=True))
def engine_options_without_an_engine(view: View) -> Flaw | None:
    """Options of an unused engine.

    Without use_vllm completions come from transformers, many times slower, and vllm_... options are
    ignored: usually use_vllm was forgotten.
    """
    ignored = [knob for knob in _KNOBS if view.sets(knob)]
    if view.value("vllm.use") or not ignored:
        return None
    swift = view.launch.framework == "ms-swift"
    ends = swift and view.sets("vllm.mode") and view.at_least("3.12.0")
    return Flaw(
        severity="high" if ends else "medium",
        headline="vLLM's options are given, but vLLM is not used",
        evidence=("use_vllm is off: generation uses transformers, many times slower",),
        fixes=(view.flag("vllm.use", True),),
        source=view.source(*ignored),
        ends=ends,
    )


_VERL_ENGINE_KEY = "actor_rollout_ref.rollout.name"


@rule("GL050", replace(VERL, whole=True))
def verl_engine_not_named(view: View) -> Flaw | None:
    """verl's rollout engine is not set.

    Since 0.6 actor_rollout_ref.rollout.name has no default: verl ends with `Missing mandatory
    value`. Where the version is only assumed, the launch may be of an older one.
    """
    if not view.at_least("0.6.0"):
        return None
    if not view.launch.subcommand.endswith("main_ppo") or _VERL_ENGINE_KEY in view.launch.options:
        return None
    stated = "verl" in view.launch.versions
    return Flaw(
        severity="high" if stated else "medium",
        headline="actor_rollout_ref.rollout.name is not set",
        evidence=("since verl 0.6 it has no default; before that it is vllm",),
        fixes=(f"{_VERL_ENGINE_KEY}=vllm", f"or {_VERL_ENGINE_KEY}=sglang"),
        ends=stated,
        unverified=not stated,
    )


_VERL_SYNCHRONOUS_KEY = "actor_rollout_ref.rollout.mode"


@rule("GL052", VERL)
def verl_synchronous_rollout(view: View) -> Flaw | None:
    """verl no longer has synchronous rollouts.

    Since 0.7 rollouts are asynchronous servers; mode=sync ends the launch.
    """
    if not view.at_least("0.7.0") or view.launch.options.get(_VERL_SYNCHRONOUS_KEY) != "sync":
        return None
    return fatal_flaw(
        headline="verl has no rollout.mode=sync since 0.7",
        evidence=("rollouts are asynchronous servers",),
        fixes=(f"remove {_VERL_SYNCHRONOUS_KEY}=sync",),
        source=view.launch.option_sources.get(_VERL_SYNCHRONOUS_KEY),
    )


@rule("GL060", replace(PLAIN_SWIFT_AND_TRL, whole=True))
def slow_rollout(view: View) -> Flaw | None:
    """Generation uses transformers.

    Without vLLM completions come from transformers' generate, token by token in Python; with ZeRO-3
    each token would gather the whole model again if ds3_gather_for_generation were off.
    """
    if view.value("vllm.use") or not view.launch.options:
        return None
    if any(view.sets(knob) for knob in ("vllm.mode", "vllm.gpu_memory_utilization")):
        return None
    gathers = view.value("sync.gather_for_generation", True)
    if view.value("deepspeed.stage") == 3 and not gathers:
        return Flaw(
            severity="medium",
            headline="ZeRO-3 gathers the model for every token",
            evidence=(
                "ds3_gather_for_generation is off; ranks of unequal lengths wait for each other",
            ),
            fixes=(view.flag("sync.gather_for_generation", True), view.flag("vllm.use", True)),
            source=view.source("sync.gather_for_generation"),
        )
    return Flaw(
        severity="info",
        headline="generation uses transformers; vLLM is many times faster",
        evidence=("use_vllm is off",),
        fixes=(view.flag("vllm.use", True),),
        source=view.source("vllm.use"),
    )
