from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif import Prediction, build_model
from grpo_doctor.whatif.models.cost_model import Case
from grpo_doctor.whatif.models.engine import decode_steps, rollout_lengths, spread
from tests.unit.whatif.models.runs import mid, reason, run, what_if

GIB = 2**30
VLLM = {"vllm.use": True, "vllm.max_num_seqs": 4, "vllm.gpu_memory_utilization": 0.4}
WAITING = {
    "engine/running_requests_peak": 4.0, "engine/waiting_requests_peak": 12.0,
    "engine/preemptions": 0.0, "engine/kv_cache_peak_pct": 99.0, "engine/generated_tokens": 1600.0,
    "engine/completions_of_65_to_128_tokens": 16.0,
}  # fmt: skip
CALM = {**WAITING, "engine/waiting_requests_peak": 0.0, "engine/kv_cache_peak_pct": 50.0}
ROLLOUT = {"rollout/generate": 8.0, "train": 2.0}


def test_in_flight_at_once_completions_end_with_the_longest() -> None:
    lengths = np.array([10.0, 10.0, 10.0, 40.0])
    assert decode_steps(lengths, 4) == 40
    assert decode_steps(lengths, 100) == 40
    assert decode_steps(lengths, 1) == 70
    assert 40 <= decode_steps(lengths, 2) <= 60


def test_more_sequences_need_fewer_passes_but_the_longest_stays() -> None:
    prediction = what_if(run(ROLLOUT, VLLM, WAITING), vllm__max_num_seqs=16)
    assert isinstance(prediction, Prediction)
    # 16 completions of 65 to 128 tokens in 4 waves of about 100, or at once: 128.
    assert -35 < prediction.mid < -20
    assert prediction.low < -45
    assert prediction.high == 0
    assert "16 instead of 4 sequences" in prediction.grounds


def test_where_nothing_waits_more_places_bring_nothing() -> None:
    patient = run(ROLLOUT, VLLM, CALM)
    assert mid(patient, vllm__max_num_seqs=64) == 0
    assert mid(patient, vllm__gpu_memory_utilization=0.8) == 0


def test_a_limit_that_the_engine_has_not_reached_is_not_what_holds_it() -> None:
    # 4 of 64 allowed ones run, because the cache is full: only more cache lets more run.
    patient = run(ROLLOUT, {**VLLM, "vllm.max_num_seqs": 64}, WAITING)
    assert mid(patient, vllm__max_num_seqs=128) == 0
    assert mid(patient, vllm__max_num_seqs=32) == 0
    assert mid(patient, vllm__max_num_seqs=2) > 5


@pytest.mark.parametrize(("peak", "reached"), [(9.0, True), (8.0, False)])
def test_peaks_are_sampled_so_nine_of_ten_allowed_sequences_are_at_the_limit(
    peak: float, reached: bool
) -> None:
    running = {**WAITING, "engine/running_requests_peak": peak}
    patient = run(ROLLOUT, {**VLLM, "vllm.max_num_seqs": 10}, running)
    assert (mid(patient, vllm__max_num_seqs=20) < 0) == reached


@pytest.mark.parametrize(("change", "fuller"), [
    ({"engine/kv_cache_peak_pct": 89.0}, False),
    ({"engine/kv_cache_peak_pct": 90.0}, True),
    ({"engine/kv_cache_peak_pct": 50.0, "engine/waiting_requests_peak": 1.0}, True),
    ({"engine/kv_cache_peak_pct": 50.0, "engine/preemptions": 1.0}, True),
])  # fmt: skip
def test_more_cache_helps_where_it_was_full_or_requests_waited(
    change: dict[str, float], fuller: bool
) -> None:
    patient = run(ROLLOUT, {**VLLM, "vllm.max_num_seqs": 64}, {**CALM, **change})
    assert (mid(patient, vllm__gpu_memory_utilization=0.8) < 0) == fuller


def test_a_lower_limit_counts_also_beside_more_cache() -> None:
    patient = run(ROLLOUT, VLLM, CALM)
    alone = mid(patient, vllm__max_num_seqs=2)
    assert alone > 5
    assert mid(patient, vllm__max_num_seqs=2, vllm__gpu_memory_utilization=0.6) == alone


def test_where_no_limit_is_known_the_cache_alone_decides() -> None:
    settings = {"vllm.use": True, "vllm.gpu_memory_utilization": 0.4}
    patient = run(ROLLOUT, settings, WAITING, framework="homemade")
    assert mid(patient, vllm__gpu_memory_utilization=0.8) < -10
    assert "may run was not recorded" in reason(patient, vllm__max_num_seqs=16)


@pytest.mark.parametrize(("used_gib", "fits"), [(32.0, True), (32.5, False)])
def test_an_engine_may_fill_a_gpu_to_90_percent(used_gib: float, fits: bool) -> None:
    patient = run(ROLLOUT, {**VLLM, "vllm.max_num_seqs": 64}, WAITING)
    patient.gpu("GPU-0", memory_gib=80.0)
    used = [used_gib * GIB] * 2
    patient.series("gpu.memory_used", "bytes", [0, 120], used, scope="gpu", gpu="GPU-0")
    if fits:
        assert mid(patient, vllm__gpu_memory_utilization=0.9) < -10
    else:
        assert "would hold 72.5 of 80.0" in reason(patient, vllm__gpu_memory_utilization=0.9)


def test_more_cache_does_not_lift_the_limit_of_sequences() -> None:
    patient = run(ROLLOUT, VLLM, WAITING)
    assert mid(patient, vllm__gpu_memory_utilization=0.8) == 0
    assert mid(patient, vllm__gpu_memory_utilization=0.8, vllm__max_num_seqs=16) < -20


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_of_memory_that_is_none_is_refused(share: float) -> None:
    patient = run(ROLLOUT, VLLM, WAITING)
    assert "above 0 and at most 1" in reason(patient, vllm__gpu_memory_utilization=share)


def test_less_cache_is_unknown_as_weights_stay() -> None:
    patient = run(ROLLOUT, VLLM, CALM)
    assert "weights" in reason(patient, vllm__gpu_memory_utilization=0.3)


def test_more_cache_lets_more_run_if_memory_has_room() -> None:
    patient = run(ROLLOUT, {**VLLM, "vllm.max_num_seqs": 64}, WAITING)
    patient.gpu("GPU-0", memory_gib=80.0)
    used = [50.0 * GIB] * 2
    patient.series("gpu.memory_used", "bytes", [0, 120], used, scope="gpu", gpu="GPU-0")
    assert mid(patient, vllm__gpu_memory_utilization=0.6) < -10
    assert "would hold 90.0 of 80.0" in reason(patient, vllm__gpu_memory_utilization=0.9)


def test_an_engine_that_said_nothing_is_unknown() -> None:
    assert "not recorded" in reason(run(ROLLOUT, VLLM), vllm__max_num_seqs=16)
    off = run(ROLLOUT, {"vllm.use": False})
    assert "does not run in vLLM" in reason(off, vllm__max_num_seqs=16)


def test_shorter_completions_take_fewer_passes() -> None:
    metrics = {"completions/max_length": 100.0, "completions/mean_length": 60.0}
    patient = run(ROLLOUT, {"rollout.max_completion_length": 100}, metrics=metrics)
    assert mid(patient, rollout__max_completion_length=50) == -40
    assert "truncated" in reason(patient, rollout__max_completion_length=200)
    assert "longest completions" in reason(run(ROLLOUT), rollout__max_completion_length=50)


def lengths(
    counters: dict[str, float],
    metrics: dict[str, float],
    *,
    framework: str = "bundled",
    **knobs: Any,
) -> Any:
    settings = {name.replace("__", "."): value for name, value in knobs.items()}
    build = run(ROLLOUT, settings, counters, metrics=metrics, framework=framework)
    analysis = analyse(build.build())
    return rollout_lengths(Case(analysis, build_model(analysis), {}, {}))


TOLD = {"completions/mean_length": 40.0, "completions/max_length": 100.0}


def test_a_histogram_is_cut_at_the_longest_completion() -> None:
    bins = {"engine/completions_of_65_to_128_tokens": 4.0, "engine/generated_tokens": 400.0}
    assert lengths(bins, {}).tolist() == [65.0, 86.0, 107.0, 128.0]
    assert lengths(bins, TOLD)[-1] == 100.0
    all_bins = {**bins, "engine/completions_of_1_to_64_tokens": 2.0}
    assert lengths(all_bins, {}).tolist() == [1.0, 64.0, 65.0, 86.0, 107.0, 128.0]


def test_without_a_histogram_lengths_follow_from_what_the_trainer_logs() -> None:
    sizes: dict[str, Any] = {"train__micro_batch": 10, "train__grad_accumulation": 50}
    spread_lengths = lengths({}, TOLD, **sizes)
    assert len(spread_lengths) == 500
    assert spread_lengths.mean() == pytest.approx(40, rel=0.02)
    assert (spread_lengths.min() >= 1, spread_lengths.max() <= 100) == (True, True)
    assert lengths({}, {**TOLD, "completions/min_length": 20.0}, **sizes).min() >= 20
    assert lengths({}, {"completions/max_length": 100.0}, **sizes) is None
    assert lengths({}, {"completions/mean_length": 40.0}, **sizes) is None
    for name, size in sizes.items():
        single: dict[str, Any] = {name: size}
        assert lengths({}, TOLD, framework="homemade", **single) is None


def test_lengths_that_are_all_alike() -> None:
    assert spread(10.0, 10.0, 10.0, 3).tolist() == [10.0] * 3
    assert spread(10.0, 5.0, 20.0, 2).tolist() == [5.0] * 2
    assert decode_steps(np.array([]), 4) == 0.0
    assert decode_steps(np.array([5.0, 5.0]), 0) == 10.0


def test_lengths_lie_between_their_ends_and_have_their_mean() -> None:
    lengths = spread(10, 30, 110, 4000)
    assert lengths.mean() == pytest.approx(30, rel=0.01)
    assert (lengths.min() >= 10, lengths.max() <= 110) == (True, True)
    for low, mean, high in ((10, 10, 110), (10, 10, 10), (10, 5, 110), (10, 20, 10)):
        assert spread(low, mean, high, 2).tolist() == [mean, mean]
