"""Images are too large for the step."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings.loading import (
    LOADER_TIMES,
    Loading,
    batch_seconds,
    loading,
    replayed_wait,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, integer, timed_rule
from grpo_doctor.whatif import Edit, Prediction, Replay, Settings, WhatIf, Withheld

RULE = timed_rule(__name__, __doc__, "data", LOADER_TIMES, uses=("dataload/*", "train/tokens"))
# The part of the step that is waited for images; less is not worth a change of the data.
MIN_SHARE = 0.05
# "It is the images" needs them to be most of what loaders do.
MIN_PART = 0.50
# 1280 places of 28 x 28 pixels, the limit that Qwen2-VL's documentation takes as its example.
MANY_PIXELS = 1280 * 28 * 28
# Of the tokens that are trained on.
MANY_PLACES = 0.60
# 512 places: enough for charts and photographs, a tenth of what a page of small print needs.
SMALLER = 512 * 28 * 28
# A setting that changes what is learned has to bring more than two equal runs differ by.
MIN_GAIN_PCT = 2.0
_KNOB = "data.max_pixels"
_IMAGE_WORK = ("read_s", "process_s")


def check(view: RunView) -> Answer:
    """Compare the loaders' seconds for images with the wait, and image places with all tokens."""
    images = view.counted_mean("dataload/images") or 0.0
    load = loading(view)
    if not images or load is None:
        return NotApplicable("no images were loaded")
    waited = view.share("dataload") * load.share(*_IMAGE_WORK)
    if waited >= MIN_SHARE and load.share(*_IMAGE_WORK) >= MIN_PART:
        return _waited(view, load, images, waited)
    places = _places_share(view)
    if places is not None and places >= MANY_PLACES and _pixels(view, images) > MANY_PIXELS:
        return _many_places(view, images, places)
    return Passed(
        f"{percent(waited, 1)} of the step is waited for images of "
        f"{_pixels(view, images) / 1e6:.2g} megapixels, as the model gets them"
    )


def _waited(view: RunView, loaded: Loading, images: float, waited: float) -> Finding:
    own, part = sum(loaded.parts[part] for part in _IMAGE_WORK), loaded.share(*_IMAGE_WORK)
    source, text = "dataload/read_s and process_s", "images in the loaders' work"
    return Finding(
        confidence=0.85,
        cost=waited,
        phases=("dataload",),
        evidence=(
            *view.phase_evidence("dataload"),
            Evidence("loader process time on images, per step", own, "s", "dataload/*_s"),
            Evidence(text, 100 * part, "%", source),
            *_image_evidence(view, images),
        ),
        cause=f"Each step waits {view.seconds('dataload'):.3g} s for its prompts, and "
        f"{percent(part)} of what loading does is images: "
        f"{loaded.parts['read_s']:.3g} s per step reading and decoding, "
        f"{loaded.parts['process_s']:.3g} s splitting them into patches.",
        fixes=(*_smaller(view, loaded, images), _on_disk(view, loaded, images)),
    )


def _many_places(view: RunView, images: float, places: float) -> Finding:
    per_image = (view.counted_mean("dataload/image_tokens") or 0.0) / images
    reason = "how rollout and training time grow with image tokens is unknown"
    return Finding(
        severity="low",
        confidence=0.5,
        phases=("rollout", "train"),
        evidence=(
            Evidence("image tokens in all tokens", 100 * places, "%", "dataload/image_tokens"),
            *_image_evidence(view, images),
        ),
        cause=f"An image takes {per_image:.0f} tokens, and image tokens are {percent(places)} of "
        "all tokens that go through the model.",
        fixes=(view.setting(_KNOB, SMALLER, reason, safety="changes-algorithm", risk=_RISK),),
    )


_RISK = "What the reward asks for must stay readable at that size."


def _smaller(view: RunView, loaded: Loading, images: float) -> list[Fix]:
    if _pixels(view, images) <= SMALLER or loaded.parts["process_s"] < loaded.parts["read_s"] / 4:
        return []
    outcome = view.gain(Settings(((_KNOB, SMALLER),)))
    if isinstance(outcome, Prediction) and outcome.mid > -MIN_GAIN_PCT:
        return []
    return [view.setting(_KNOB, SMALLER, safety="changes-algorithm", risk=_RISK)]


def _stored_edits(view: RunView) -> tuple[Edit, ...]:
    """Loading from smaller files: decoding and cutting up go with the pixels, batch by batch."""
    stored, pixels, images = (
        np.nan_to_num(view.counted(f"dataload/{name}"))
        for name in ("decoded_pixels", "pixels", "images")
    )
    workers, wait_now = integer(view.now("dataload.num_workers")), view.seconds("dataload")
    if not stored.any() or workers is None or not wait_now:
        return ()
    target = np.minimum(pixels, images * SMALLER)
    seconds = batch_seconds(view)
    seconds["read_s"] = seconds["read_s"] * np.minimum(1.0, target / np.maximum(stored, 1))
    seconds["process_s"] = seconds["process_s"] * target / np.maximum(pixels, 1)
    efforts = sum(seconds.values(), start=np.zeros(1))
    ahead = integer(view.now("dataload.prefetch_factor")) or 2
    wait = replayed_wait(view, workers=workers, prefetch=ahead, efforts=efforts)
    return () if wait is None else (Edit(("dataload",), min(1.0, wait / wait_now)),)


def _on_disk(view: RunView, loaded: Loading, images: float) -> Fix:
    target = min(_pixels(view, images), float(SMALLER))
    edits = _stored_edits(view)
    change: WhatIf = Withheld(
        f"the size of the files was not recorded; {loaded.parts['read_s']:.3g} s of one loader "
        f"process per step are spent on reading them"
    )
    if edits:
        change = Replay(edits, f"reading files of {target:.0f} pixels", half=True)
    text = f"scale the images down once, on disk, to {target:.0f} pixels at most, and store JPEG"
    shrinks = _pixels(view, images) > SMALLER
    return view.advice(
        text,
        change,
        safety="changes-algorithm" if shrinks else "same-math",
        risk=f"{_RISK} Keep the originals." if shrinks else "Keep the originals.",
    )


def _image_evidence(view: RunView, images: float) -> tuple[Evidence, ...]:
    limit = view.fact(_KNOB)
    tokens = view.counted_mean("dataload/image_tokens") or 0.0
    stored, text = view.counted_mean("dataload/decoded_pixels"), "pixels per image, as stored"
    return (
        Evidence("images per step and rank", images, "", "dataload/images"),
        *([Evidence(text, stored / images, "", "dataload/decoded_pixels")] if stored else []),
        Evidence("pixels per image, scaled", _pixels(view, images), "", "dataload/pixels"),
        Evidence("tokens per image", tokens / images, "", "dataload/image_tokens"),
        Evidence("largest area", limit if limit is not None else "no limit", "", _KNOB),
    )


def _pixels(view: RunView, images: float) -> float:
    return (view.counted_mean("dataload/pixels") or 0.0) / images


def _places_share(view: RunView) -> float | None:
    """Image places in the tokens of a training step; each completion has its prompt's images."""
    places = view.counted_mean("dataload/image_tokens")
    tokens = view.counted_mean("train/tokens")
    group = integer(view.knob("rollout.num_generations"))
    if not places or not tokens or not group:
        return None
    return float(min(1.0, places * group / tokens))
