"""One image is longer than a prompt may be.

An image becomes one token for each patch of pixels: without MAX_PIXELS up to 16384 of them in
Qwen's processors. Prompts that are longer than max_length are cut or dropped, and a cut image is
an error.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_DEFAULT_PIXELS = 12_845_056  # Qwen2-VL's and Qwen2.5-VL's processors


def check(view: View) -> Flaw | None:
    """Tokens of the largest image against the longest prompt, or the engine's length."""
    per_token = view.model.pixels_per_token if view.model else None
    if not per_token:
        return None
    limit = view.integer("data.max_pixels")
    tokens = (limit or _DEFAULT_PIXELS) // per_token
    room = view.integer("data.max_length") or view.integer("vllm.max_model_len")
    if not room or tokens < room:
        return None
    fit = room // 2 * per_token
    swift = view.launch.framework == "ms-swift"
    return Flaw(
        severity="high" if limit else "medium",
        headline=f"an image takes up to {tokens} tokens, but a prompt may have {room}",
        evidence=(
            f"max_pixels {limit}" if limit else f"nothing limits images: {_DEFAULT_PIXELS} pixels",
        ),
        fixes=(f"MAX_PIXELS={fit}" if swift else view.flag("data.max_pixels", fit),),
        source=view.source("data.max_pixels"),
    )
