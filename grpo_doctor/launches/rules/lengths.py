"""Lengths of prompts and completions against limits."""

from __future__ import annotations

from grpo_doctor.launches.rule import (
    EVERY_COMMAND,
    NOT_OPENRLHF,
    SAMPLES,
    VERL,
    Flaw,
    View,
    fatal_flaw,
    rule,
)


@rule("GL012", VERL)
def verl_token_limit_below_sequence(view: View) -> Flaw | None:
    """A sequence can be longer than a micro batch.

    With use_dynamic_bsz a micro batch is filled up to ppo_max_token_len_per_gpu tokens per rank,
    times the ranks of a sequence. A prompt with its completion that is longer does not fit in any:
    verl ends with an assertion on the first one that is.
    """
    limit, length = view.integer("train.max_tokens_per_gpu"), view.length
    if not view.value("train.dynamic_batch"):
        return None
    divided = [v for k, v in view.launch.options.items() if "ulysses" in k and str(v).isdigit()]
    room = (limit or 0) * max(view.degree("parallel.context"), *map(int, divided), 1)
    if not limit or not length or length <= room:
        return None
    return fatal_flaw(
        headline=f"sequences have up to {length} tokens, but micro batches hold {room}",
        evidence=(f"max_prompt_length + max_response_length = {length}",),
        fixes=(view.flag("train.max_tokens_per_gpu", length),),
        source=view.source("train.max_tokens_per_gpu", "rollout.max_completion_length"),
    )


_LEAST = 256  # a shorter completion answers little


@rule("GL021", NOT_OPENRLHF)
def longer_than_the_engine(view: View) -> Flaw | None:
    """Prompt and completion are longer than the engine's limit.

    The engine refuses a prompt that leaves no room, and cuts completions off at max_model_len: they
    end without an end token, count as truncated and get no reward.
    """
    room = view.integer("vllm.max_model_len")
    server = view.launch.server
    if server is not None and server.sets("vllm.max_model_len"):
        room = int(server.value("vllm.max_model_len"))
    if not room:
        return None
    length, completion = view.length, view.completion
    if completion and completion >= room:
        text = f"completions of {completion} tokens, but {room} for prompt and completion together"
    elif length and length > room:
        text = f"prompt and completion have {length} tokens, but the engine takes {room}"
    else:
        return None
    needed = length or (completion or 0) + 1024
    return Flaw(
        severity="medium" if completion and completion >= room else "low",
        headline=text,
        evidence=(f"longest prompt {view.integer('data.max_length')}, completion {completion}",),
        fixes=(view.flag("vllm.max_model_len", needed), *_shorter(view, room - needed)),
        source=view.source("vllm.max_model_len", "rollout.max_completion_length"),
    )


def _shorter(view: View, excess: int) -> tuple[str, ...]:
    completion = (view.completion or 0) + excess
    if completion < _LEAST:
        return ()
    return (f"or {view.flag('rollout.max_completion_length', completion)}",)


@rule("GL022", EVERY_COMMAND)
def longer_than_the_context(view: View) -> Flaw | None:
    """Sequences are longer than the model's context.

    A model has positions for a fixed number of tokens, unless its RoPE is scaled. vLLM refuses a
    max_model_len above that; beyond it text is noise.
    """
    context = view.model.max_positions if view.model else None
    if not context or {"rope_scaling", "hf_overrides"} & view.launch.options.keys():
        return None
    knob = "vllm.max_model_len"
    length = view.launch.settings.get(knob)
    if not isinstance(length, int) or length <= context:
        knob, length = "rollout.max_completion_length", view.length or view.completion
    if length is None or length <= context:
        return None
    changed = str(view.launch.model).startswith(("/", ".", "~"))
    doubt = ("unless the config.json in its folder has others",) if changed else ()
    return Flaw(
        severity="medium" if changed else "high",
        headline=f"{length} tokens are more than the {context} positions of the model",
        evidence=(f"the model has {context} positions", *doubt),
        fixes=(view.flag(knob, context if knob.startswith("vllm") else context // 2),),
        source=view.source(knob),
        ends=knob.startswith("vllm") and not changed,
    )


_DEFAULT_PIXELS = 12_845_056  # Qwen2-VL's and Qwen2.5-VL's processors


@rule("GL043", SAMPLES)
def images_longer_than_prompts(view: View) -> Flaw | None:
    """One image is longer than the longest prompt.

    An image becomes one token for each patch of pixels: without MAX_PIXELS up to 16384 of them in
    Qwen's image processor. Prompts that are longer than max_length are cut or dropped, and a cut
    image is an error.
    """
    per_token = view.model.pixels_per_token if view.model else None
    if not per_token:
        return None
    limit = view.integer("data.max_pixels")
    tokens = (limit or _DEFAULT_PIXELS) // per_token
    room = view.integer("data.max_length") or view.integer("vllm.max_model_len")
    if not room or tokens < room:
        return None
    fit = room // 2 * per_token
    limited = view.launch.said("data.max_pixels", fit)
    return Flaw(
        severity="high" if limit else "medium",
        headline=f"an image takes up to {tokens} tokens, but a prompt may have {room}",
        evidence=(
            f"max_pixels {limit}" if limit else f"nothing limits images: {_DEFAULT_PIXELS} pixels",
        ),
        fixes=(limited or f"smaller images in the data, of {fit} pixels",),
        source=view.source("data.max_pixels"),
    )
