from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    finding_in,
    missing,
    not_applicable,
    passed,
    run,
    step_s,
    step_starts,
    value,
    with_knobs,
)

OFFLOADED = with_knobs(
    deepspeed__preset="zero3_offload",
    deepspeed__offload_param=True,
    deepspeed__offload_optimizer=True,
    train__grad_accumulation=4,
    train__gradient_checkpointing=True,
)


def sick() -> TraceBuilder:
    """All weights from the host twelve times a step, over a link that shows it."""
    return with_traffic(run(knobs=OFFLOADED), 15e9)


def well() -> TraceBuilder:
    return run(knobs=with_knobs(deepspeed__preset="zero3", deepspeed__offload_param=False))


def with_traffic(build: TraceBuilder, bytes_per_s: float) -> TraceBuilder:
    starts = step_starts()
    for rank in range(4):
        times, values = [], []
        for start in starts:
            times += [start, start + 5.3]  # the rollout is over then
            values += [0.0, bytes_per_s]
        build.series("gpu.pcie_rx", "bytes/s", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


def test_traffic_makes_it_a_cost() -> None:
    finding = finding_in(sick(), "GD010")
    share = 4.0 * 1.01 / step_s()  # train and logprob
    assert value(finding, "from the host") == 3 * 4
    assert value(finding, "during the passes") == pytest.approx(15, abs=0.1)
    assert finding.cost == pytest.approx(share * 15 / 25, rel=0.02)
    assert (finding.severity, finding.confidence) == ("high", 0.9)
    assert finding.phases == ("train", "logprob")
    assert finding.fixes[0].spelling == "--deepspeed zero3"


def test_without_traffic_it_claims_no_cost() -> None:
    finding = finding_in(run(knobs=OFFLOADED), "GD010")
    assert (finding.cost, finding.severity, finding.confidence) == (0.0, "medium", 0.6)


def test_on_a_machine_without_a_gpu_it_is_never_grave() -> None:
    assert finding_in(run(knobs=OFFLOADED, memory_gib=None), "GD010").severity == "low"


def test_a_json_file_gets_the_line_to_edit() -> None:
    knobs = {**OFFLOADED, "deepspeed.preset": "mine.json"}
    (fix,) = finding_in(run(knobs=knobs), "GD010").fixes
    assert fix.pasted
    assert fix.spelling == 'set "zero_optimization.offload_param.device": "none" in mine.json'


def test_short_passes_are_left_alone() -> None:
    phases = {**HEALTHY, "train": 0.3, "logprob": 0.1, "rollout": 20.0}
    assert "passes over the model take 1.9%" in passed(run(phases, knobs=OFFLOADED), "GD010")


def test_without_offload_there_is_no_question() -> None:
    assert "no parameters" in not_applicable(well(), "GD010")


def test_without_settings_it_says_so() -> None:
    build = run(knobs={}, framework="unknown", framework_version=None)
    assert "settings" in missing(build, "GD010")


def test_a_link_of_a_gpu_that_no_rank_works_on_says_nothing() -> None:
    build = run(knobs=OFFLOADED)
    build.gpu("GPU-9", index=9)
    build.series("gpu.pcie_rx", "bytes/s", [0.0, 60.0], [15e9, 15e9], scope="gpu", gpu="GPU-9")
    assert finding_in(build, "GD010").cost == 0.0
