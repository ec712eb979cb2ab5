from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif import Prediction, build_model
from grpo_doctor.whatif.models import Case
from grpo_doctor.whatif.models.engine import decode_steps, rollout_lengths, spread
from tests.unit.whatif.models.runs import mid, reason, run, what_if

GIB = 2**30
VLLM = {"vllm.use": True, "vllm.max_num_seqs": 4, "vllm.gpu_memory_utilization": 0.4}
WAITING = {
    "engine/running_requests_peak": 4.0, "engine/waiting_requests_peak": 12.0,
    "engine/preemptions": 0.0, "engine/kv_cache_peak_pct": 99.0, "engine/generated_tokens": 1600.0,
    "engine/completions_of_65_to_128_tokens": 16.0,
}  # fmt: skip
ROLLOUT = {"rollout/generate": 8.0, "train": 2.0}


def test_in_flight_at_once_completions_end_with_the_longest() -> None:
    lengths = np.array([10.0, 10.0, 10.0, 40.0])
    assert decode_steps(lengths, 4) == 40
    assert decode_steps(lengths, 100) == 40
    assert decode_steps(lengths, 1) == 70
    assert 40 <= decode_steps(lengths, 2) <= 60


def test_lengths_from_shortest_mean_and_longest_have_that_mean() -> None:
    found = spread(10.0, 40.0, 200.0, 1000)
    assert found.mean() == pytest.approx(40, rel=0.02)
    assert found.min() >= 10
    assert found.max() <= 200


def test_more_sequences_need_fewer_passes_but_the_longest_stays() -> None:
    found = what_if(run(ROLLOUT, VLLM, WAITING), vllm__max_num_seqs=16)
    assert isinstance(found, Prediction)
    # 16 completions of 65 to 128 tokens in 4 waves of about 100, or at once: 128.
    assert -35 < found.mid < -20
    assert found.low < -45
    assert found.high == 0
    assert "16 instead of 4 sequences" in found.grounds


def test_where_nothing_waits_more_places_bring_nothing() -> None:
    calm = {**WAITING, "engine/waiting_requests_peak": 0.0, "engine/kv_cache_peak_pct": 50.0}
    patient = run(ROLLOUT, VLLM, calm)
    assert mid(patient, vllm__max_num_seqs=64) == 0
    assert mid(patient, vllm__gpu_memory_utilization=0.8) == 0


def test_a_limit_that_the_engine_has_not_reached_is_not_what_holds_it() -> None:
    # 4 of 64 allowed ones run, because the cache is full: only more cache lets more run.
    patient = run(ROLLOUT, {**VLLM, "vllm.max_num_seqs": 64}, WAITING)
    assert mid(patient, vllm__max_num_seqs=128) == 0
    assert mid(patient, vllm__max_num_seqs=32) == 0
    assert mid(patient, vllm__max_num_seqs=2) > 5


def test_more_cache_does_not_lift_the_limit_of_sequences() -> None:
    patient = run(ROLLOUT, VLLM, WAITING)
    assert mid(patient, vllm__gpu_memory_utilization=0.8) == 0
    assert mid(patient, vllm__gpu_memory_utilization=0.8, vllm__max_num_seqs=16) < -20


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_of_memory_that_is_none_is_refused(share: float) -> None:
    patient = run(ROLLOUT, VLLM, WAITING)
    assert "above 0 and at most 1" in reason(patient, vllm__gpu_memory_utilization=share)


def test_less_cache_is_unknown_as_weights_stay() -> None:
    calm = {**WAITING, "engine/waiting_requests_peak": 0.0, "engine/kv_cache_peak_pct": 50.0}
    patient = run(ROLLOUT, VLLM, calm)
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
    assert "cut off" in reason(patient, rollout__max_completion_length=200)
    assert "longest completions" in reason(run(ROLLOUT), rollout__max_completion_length=50)


def lengths(counters: dict[str, float], metrics: dict[str, float], **knobs: int) -> Any:
    settings = {name.replace("__", "."): value for name, value in knobs.items()}
    analysis = analyse(run(ROLLOUT, settings, counters, metrics=metrics).build())
    return rollout_lengths(Case(analysis, build_model(analysis), {}, {}))


TOLD = {"completions/mean_length": 40.0, "completions/max_length": 100.0}


def test_a_histogram_is_cut_at_the_longest_completion() -> None:
    bins = {"engine/completions_of_65_to_128_tokens": 4.0, "engine/generated_tokens": 400.0}
    assert lengths(bins, {}).tolist() == [65.0, 86.0, 107.0, 128.0]
    assert lengths(bins, TOLD)[-1] == 100.0
    both = {**bins, "engine/completions_of_1_to_64_tokens": 2.0}
    assert lengths(both, {}).tolist() == [1.0, 64.0, 65.0, 86.0, 107.0, 128.0]


def test_without_a_histogram_lengths_follow_from_what_the_trainer_logs() -> None:
    sizes = {"train__micro_batch": 10, "train__grad_accumulation": 50}
    found = lengths({}, TOLD, **sizes)
    assert len(found) == 500
    assert found.mean() == pytest.approx(40, rel=0.02)
    assert (found.min() >= 1, found.max() <= 100) == (True, True)
    assert lengths({}, {**TOLD, "completions/min_length": 20.0}, **sizes).min() >= 20
    assert lengths({}, {"completions/max_length": 100.0}, **sizes) is None
    assert lengths({}, {"completions/mean_length": 40.0}, **sizes) is None


def test_lengths_that_are_all_alike() -> None:
    assert spread(10.0, 10.0, 10.0, 3).tolist() == [10.0] * 3
    assert spread(10.0, 5.0, 20.0, 2).tolist() == [5.0] * 2
    assert decode_steps(np.array([]), 4) == 0.0
    assert decode_steps(np.array([5.0, 5.0]), 0) == 10.0
