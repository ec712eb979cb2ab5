from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, knob
from tests.unit.findings.rules.saying import rows

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


def places_that_are_most_of_all_tokens_are_worth() -> TraceBuilder:
    build = images(0.1, 0.1, dataload=0.2)
    count(build, "train/tokens", 8 * 4 * 4e6 / 784 / 0.8)
    return build


def without_images_nothing_is_said() -> TraceBuilder:
    build = run(**BUNDLED)
    count(build, "dataload/read_s", 0.0)
    return build


def smaller_files_are_replayed_though_nobody_knows() -> TraceBuilder:
    knobs = {**knob("dataload.num_workers", 1), **knob("dataload.prefetch_factor", None)}
    build = count(images(6.0, 6.0, dataload=2.2, **knobs), "dataload/decoded_pixels", 4 * 16e6)
    build.framework = "unknown"
    return build


RUNS = {
    "slow files are not cured by a smaller limit": lambda: images(1.9, 0.02),
    "images that loaders had time for are silent": lambda: images(
        1.0, 0.94, dataload=0.01, **knob("dataload.num_workers", 2)
    ),
    "slow texts beside small images are not the images": lambda: images(0.3, 0.3, tokens=1.39),
    **rows(
        "a smaller limit is advised where cutting up costs and it",
        lambda pixels, read_s, process_s: images(read_s, process_s, dataload=2.6, pixels=pixels),
        (4000000.0, 2.0, 0.5),
        (4000000.0, 2.0, 0.499),
        (SMALLER, 0.5, 2.0),
        (SMALLER + 784, 0.5, 2.0),
    ),
    **rows(
        "without a prediction size and cutting up decide alone",
        lambda pixels, read_s, process_s: images(
            read_s, process_s, dataload=2.6, pixels=pixels, **knob("dataload.num_workers", "auto")
        ),
        (4000000.0, 0.5, 2.0),
        (SMALLER, 0.5, 2.0),
        (4000000.0, 2.0, 0.4),
    ),
    **rows(
        "files shrink only where they are larger than advised",
        lambda pixels: images(1.9, 0.02, pixels=pixels),
        SMALLER,
        (SMALLER + 784,),
    ),
    **rows(
        "places are many from six tenths of the tokens on",
        lambda side, tokens: count(
            images(0.1, 0.1, dataload=0.2, pixels=784.0 * side), "train/tokens", tokens
        ),
        (1500, 80000.0),
        (1500, 80001.0),
        (1281, 8000.0),
        (1280, 8000.0),
    ),
    "files of the right size are predicted from the decoded": lambda: count(
        images(1.0, 0.94), "dataload/decoded_pixels", 4 * 16000000.0
    ),
    "files that the model gets scaled down need not be larger": lambda: count(
        images(1.8, 0.1, pixels=300000.0), "dataload/decoded_pixels", 4 * 12000000.0
    ),
}
