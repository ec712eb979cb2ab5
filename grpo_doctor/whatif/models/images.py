"""Smaller images: what is cut into patches and goes through the model shrinks with their area.

Decoding does not: a file is read whole before it is scaled. The model's time for an image token,
vision tower included, is between zero and the image tokens' share of all tokens.
"""

from __future__ import annotations

from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.models.passes import PLACES
from grpo_doctor.whatif.step_model import Add, Change, Edit

_KNOB = "data.max_pixels"
_ERROR = 0.30


def _smaller(case: Case) -> Effect:
    pixels, images = case.values("dataload/pixels"), case.values("dataload/images")
    if not len(pixels) or not images.sum():
        raise UnsupportedError("how large the images are was not recorded")
    mean = float(pixels.sum() / images.sum())
    if not case.after[_KNOB] or not mean:
        raise UnsupportedError("an image has at least one pixel")
    share = case.after[_KNOB] / mean
    if share >= 1:
        return NOTHING
    changes: list[Change] = []
    processing = case.per_step("dataload/process_s")
    if processing and not case.knob("dataload.num_workers"):
        changes.append(Add("dataload", -processing * (1 - share)))
    tokens = _image_tokens_share(case)
    if tokens is None and not changes:
        raise UnsupportedError("how many of the tokens are images was not recorded")
    removed = (tokens or 0.0) * (1 - share)
    phases = ("rollout", "logprob", "train")
    return Effect(
        (*changes, Edit(phases, 1 - removed / 2)),
        f"images of {mean:.0f} pixels on average become {100 * share:.0f}% of that, all alike",
        _ERROR,
        at_least=tuple(changes),
        at_most=(*changes, Edit(phases, 1 - removed)),
    )


def _image_tokens_share(case: Case) -> float | None:
    tokens, places = case.per_step("dataload/image_tokens"), case.per_step(PLACES)
    group = case.knob("rollout.num_generations")
    if not tokens or not places or not group:
        return None
    return min(1.0, tokens * float(group) / places)


MODELS = (CostModel("smaller images", (_KNOB,), _smaller),)
