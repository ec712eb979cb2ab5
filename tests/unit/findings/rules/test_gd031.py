from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd031_large_images as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, judged, knob, number

SMALLER = 512.0 * 784
BUNDLED: dict[str, Any] = {"framework": "bundled", "framework_version": "0.1.0"}


def images(
    read_s: float,
    process_s: float,
    *,
    dataload: float = 2.0,
    pixels: float = 4e6,
    tokens: float = 0.05,
    **knobs: Any,
) -> TraceBuilder:
    settings = {**SETTINGS, "dataload.num_workers": 0, "rollout.num_generations": 8, **knobs}
    build = run({**HEALTHY, "dataload": dataload}, knobs=settings, **BUNDLED)
    parts = {"read_s": read_s, "process_s": process_s, "tokenize_s": tokens, "join_s": 0.01}
    for name, value in parts.items():
        count(build, f"dataload/{name}", value)
    count(build, "dataload/images", 4.0)
    count(build, "dataload/pixels", 4 * pixels)
    count(build, "dataload/image_tokens", 4 * pixels / 784)
    return build


def sick() -> TraceBuilder:
    return images(1.0, 0.94)


def well() -> TraceBuilder:
    return images(0.05, 0.04, dataload=0.1, pixels=3e5)


def test_decoding_that_is_waited_for_is_found_with_its_part() -> None:
    finding = finding_by(rule, sick())
    waited = 2.0 / (2.0 + 9.7 + 0.05) * 1.94 / 2.0
    assert finding.cost == pytest.approx(waited, rel=0.02)
    assert number(finding, "images in the") == pytest.approx(97.0)
    assert number(finding, "tokens per image") == pytest.approx(4e6 / 784)
    assert finding.severity == "medium"


def test_smaller_images_are_predicted_from_the_seconds_of_cutting_up() -> None:
    fix = finding_by(rule, sick()).fixes[0]
    assert (fix.knob, fix.after) == ("data.max_pixels", 512 * 28 * 28)
    assert fix.predicted is not None
    saved = 0.94 * (1 - 512 * 784 / 4e6)
    assert fix.predicted.mid == pytest.approx(-100 * saved / 11.75, abs=0.5)
    assert fix.safety == "changes-algorithm"


def test_slow_files_are_not_cured_by_a_smaller_limit() -> None:
    fixes = finding_by(rule, images(1.9, 0.02)).fixes
    assert [fix.knob for fix in fixes] == [None]
    assert "on disk" in fixes[0].spelling


def test_images_that_loaders_had_time_for_are_silent() -> None:
    answer = judged(rule, images(1.0, 0.94, dataload=0.01, **knob("dataload.num_workers", 2)))
    assert isinstance(answer, Passed)


def test_slow_texts_beside_small_images_are_not_the_images() -> None:
    assert isinstance(judged(rule, images(0.3, 0.3, tokens=1.39)), Passed)


def test_places_that_are_most_of_all_tokens_are_worth_knowing() -> None:
    build = images(0.1, 0.1, dataload=0.2)
    count(build, "train/tokens", 8 * 4 * 4e6 / 784 / 0.8)
    finding = finding_by(rule, build)
    assert (finding.severity, finding.cost) == ("low", 0.0)
    assert number(finding, "image tokens in all tokens") == pytest.approx(80)


def test_without_images_nothing_is_said() -> None:
    build = run(**BUNDLED)
    count(build, "dataload/read_s", 0.0)
    assert isinstance(judged(rule, build), NotApplicable)


def test_files_of_the_right_size_are_predicted_from_the_decoded_pixels() -> None:
    build = count(images(1.0, 0.94), "dataload/decoded_pixels", 4 * 16e6)
    finding = finding_by(rule, build)
    assert number(finding, "pixels per image, as stored") == 16e6
    fix = finding.fixes[-1]
    assert fix.predicted is not None
    # 401,408 pixels of 16 million to read, of 4 million to cut up; or half of the gain.
    saved = 1.0 * (1 - 401_408 / 16e6) + 0.94 * (1 - 401_408 / 4e6)
    assert fix.predicted.mid == pytest.approx(-100 * saved / 11.75, abs=0.5)
    assert -100 * saved / 2 / 11.75 < fix.predicted.high < 0


def test_files_that_the_model_gets_scaled_down_need_not_be_larger() -> None:
    build = images(1.8, 0.1, pixels=3e5)
    fix = finding_by(rule, count(build, "dataload/decoded_pixels", 4 * 12e6)).fixes[-1]
    assert fix.predicted is not None
    assert fix.safety == "same-math"
    assert fix.predicted.mid == pytest.approx(-100 * 1.8 * (1 - 3e5 / 12e6) / 11.75, abs=0.5)


@pytest.mark.parametrize(
    ("pixels", "read_s", "process_s", "fewer"),
    [
        (4e6, 2.0, 0.5, True),  # a quarter of the reading, and enough to gain by
        (4e6, 2.0, 0.499, False),
        (SMALLER, 0.5, 2.0, False),
        (SMALLER + 784, 0.5, 2.0, False),  # little would be gained
    ],
)
def test_a_smaller_limit_is_advised_where_cutting_up_costs_and_it_would_bring_something(
    pixels: float, read_s: float, process_s: float, fewer: bool
) -> None:
    finding = finding_by(rule, images(read_s, process_s, dataload=2.6, pixels=pixels))
    assert ("data.max_pixels" in [fix.knob for fix in finding.fixes]) is fewer


@pytest.mark.parametrize(
    ("pixels", "read_s", "process_s", "fewer"),
    [(4e6, 0.5, 2.0, True), (SMALLER, 0.5, 2.0, False), (4e6, 2.0, 0.4, False)],
)
def test_without_a_prediction_size_and_cutting_up_decide_alone(
    pixels: float, read_s: float, process_s: float, fewer: bool
) -> None:
    workers = knob("dataload.num_workers", "auto")
    finding = finding_by(rule, images(read_s, process_s, dataload=2.6, pixels=pixels, **workers))
    assert ("data.max_pixels" in [fix.knob for fix in finding.fixes]) is fewer


@pytest.mark.parametrize(
    ("pixels", "safety"), [(SMALLER, "same-math"), (SMALLER + 784, "changes-algorithm")]
)
def test_files_shrink_only_where_they_are_larger_than_advised(pixels: float, safety: str) -> None:
    fix = finding_by(rule, images(1.9, 0.02, pixels=pixels)).fixes[-1]
    assert fix.safety == safety
    assert ("What the reward asks for" in fix.risk) is (safety != "same-math")


@pytest.mark.parametrize(
    ("side", "tokens", "is_found"),
    [
        (1500, 80_000.0, True),  # 8 completions of 4 x 1500 places are six tenths
        (1500, 80_001.0, False),
        (1281, 8000.0, True),
        (1280, 8000.0, False),
    ],
)
def test_places_are_many_from_six_tenths_of_the_tokens_on(
    side: int, tokens: float, is_found: bool
) -> None:
    build = count(images(0.1, 0.1, dataload=0.2, pixels=784.0 * side), "train/tokens", tokens)
    if is_found:
        assert f"An image takes {side} tokens" in finding_by(rule, build).cause
    else:
        assert isinstance(judged(rule, build), Passed)


def test_smaller_files_are_replayed_though_nobody_knows_how_many_batches_are_ready() -> None:
    knobs = {**knob("dataload.num_workers", 1), **knob("dataload.prefetch_factor", None)}
    build = count(images(6.0, 6.0, dataload=2.2, **knobs), "dataload/decoded_pixels", 4 * 16e6)
    build.framework = "unknown"
    assert finding_by(rule, build).fixes[-1].predicted is not None
