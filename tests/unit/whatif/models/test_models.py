from __future__ import annotations

import pytest

from grpo_doctor.knobs import KNOBS
from grpo_doctor.whatif import Prediction, Withheld
from grpo_doctor.whatif.models import BY_KNOB, MODELS
from grpo_doctor.whatif.models.reward import wall_s
from tests.unit.whatif.models.runs import mid, reason, run, what_if

GIB = 2**30
OFFLOAD = {"offload": 2.0, "train": 8.0}
BOTH_ON = {"offload.model": True, "offload.optimizer": True}


def test_every_model_speaks_of_knobs_that_exist_and_no_two_of_one() -> None:
    names = [name for cost_model in MODELS for name in cost_model.knobs]
    assert len(names) == len(set(names)) == len(BY_KNOB)
    assert set(names) <= {knob.name for knob in KNOBS}


def test_a_setting_that_the_run_has_changes_nothing() -> None:
    assert mid(run(OFFLOAD, {"offload.model": True}), offload__model=True) == 0


NUMBERS = (
    "checkpoint.save_steps", "dataload.num_workers", "dataload.prefetch_factor",
    "data.max_pixels", "reward.num_workers", "rollout.max_completion_length",
    "rollout.steps_per_generation", "train.beta", "train.grad_accumulation", "train.micro_batch",
    "vllm.gpu_memory_utilization", "vllm.max_num_seqs", "sync.move_model_batches",
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-8, -0.5, 0, 3, 10**12, None])
def test_a_value_that_makes_no_sense_is_answered_in_words_or_bounds(
    name: str, value: float | None
) -> None:
    counters = {
        "dataload/pixels": 4.0e6, "dataload/images": 4.0, "dataload/process_s": 1.0,
        "train/token_places": 100.0, "train/tokens": 50.0, "reward/judge_s": 1.0,
        "engine/running_requests_peak": 4.0, "engine/waiting_requests_peak": 9.0,
        "engine/kv_cache_peak_pct": 99.0, "engine/generated_tokens": 1600.0,
        "engine/completions_of_65_to_128_tokens": 16.0,
    }  # fmt: skip
    phases = {
        "dataload": 1.0, "sync/gather": 1.0, "rollout/generate": 4.0, "reward/judge": 1.0,
        "logprob/reference": 1.0, "train": 4.0, "checkpoint": 1.0,
    }  # fmt: skip
    settings = {
        "vllm.use": True, "vllm.max_num_seqs": 4, "vllm.gpu_memory_utilization": 0.4,
        "train.micro_batch": 4, "train.grad_accumulation": 4, "dataload.num_workers": 2,
        "dataload.prefetch_factor": 2, "reward.num_workers": 1, "checkpoint.save_steps": 1,
        "rollout.max_completion_length": 100, "sync.move_model_batches": 8, "train.beta": 0.04,
    }  # fmt: skip
    metrics = {"completions/max_length": 100.0, "completions/mean_length": 60.0}
    patient = run(phases, settings, counters, metrics=metrics)
    prediction = what_if(patient, **{name.replace(".", "__"): value})
    if isinstance(prediction, Prediction):
        assert -100 <= prediction.low <= prediction.mid <= prediction.high
        assert value is None or value >= 0
    else:
        assert prediction.reason


def test_a_setting_without_a_model_is_unknown() -> None:
    assert "no model predicts the effect of train.lora_rank" in reason(
        run(OFFLOAD), train__lora_rank=64
    )


def test_without_its_only_offload_a_step_loses_the_transfers() -> None:
    assert mid(run(OFFLOAD, {"offload.optimizer": True}), offload__optimizer=False) == -20


def test_an_offload_that_may_be_off_already_is_unknown() -> None:
    patient = run(OFFLOAD, framework="homemade")
    assert "was not recorded" in reason(patient, offload__optimizer=False)


def test_one_of_two_offloads_takes_its_share_of_the_bytes() -> None:
    counters = {"offload/model_bytes": 1.0 * GIB, "offload/optimizer_bytes": 3.0 * GIB}
    patient = run(OFFLOAD, BOTH_ON, counters)
    assert mid(patient, offload__optimizer=False) == -15
    assert mid(patient, offload__model=False) == -5
    assert mid(patient, offload__model=False, offload__optimizer=False) == -20


def test_one_of_two_offloads_without_bytes_is_unknown() -> None:
    assert "by setting was not recorded" in reason(run(OFFLOAD, BOTH_ON), offload__model=False)


def test_offload_stays_where_memory_would_not_suffice() -> None:
    patient = run(OFFLOAD, {"offload.optimizer": True}, {"offload/bytes": 30.0 * GIB})
    patient.gpu("GPU-0", memory_gib=80.0)
    patient.series("gpu.memory_used", "bytes", [0, 60], [60.0 * GIB] * 2, scope="gpu", gpu="GPU-0")
    assert "does not fit in" in reason(patient, offload__optimizer=False)


def test_switching_offload_on_is_unknown() -> None:
    patient = run({"train": 8.0}, {"offload.model": False})
    assert "not measured" in reason(patient, offload__model=True)


def test_fewer_loader_processes_cost_time_and_the_interval_says_so() -> None:
    patient = run(
        {"train": 10.0, "dataload": 0.1}, {"dataload.num_workers": 4}, {"dataload/read_s": 15.0}
    )
    prediction = what_if(patient, dataload__num_workers=1)
    assert isinstance(prediction, Prediction)
    assert prediction.mid == pytest.approx(100 * (15 / 10.1 - 1))
    assert prediction.high > prediction.mid + 5


def test_garbage_collection_has_a_span_of_its_own_or_is_unknown() -> None:
    on = {"offload.gc_collect": True}
    patient = run({"offload/collect": 1.0, "train": 9.0}, on)
    assert mid(patient, offload__gc_collect=False) == -10
    assert "offload/collect" in reason(run(OFFLOAD, on), offload__gc_collect=False)


def test_zero_stages_are_unknown_and_say_why() -> None:
    plain = run(OFFLOAD, {"deepspeed.stage": 3, "deepspeed.preset": "zero3"})
    assert "gathers of another ZeRO stage" in reason(plain, deepspeed__preset="zero2")
    offloaded = run(OFFLOAD, {"deepspeed.preset": "x", "deepspeed.offload_optimizer": True})
    assert "arithmetic moves too" in reason(offloaded, deepspeed__preset="zero2")


LOADING = {"dataload": 4.0, "train": 6.0}


def test_loading_goes_behind_the_rest_of_the_step() -> None:
    patient = run(LOADING, {"dataload.num_workers": 0})
    assert mid(patient, dataload__num_workers=2) == -40
    prediction = what_if(patient, dataload__num_workers=1)
    assert isinstance(prediction, Prediction)
    assert prediction.mid == pytest.approx(-40)


def test_loading_that_is_too_long_for_the_rest_is_still_seen() -> None:
    patient = run({"dataload": 8.0, "train": 2.0}, {"dataload.num_workers": 0})
    assert mid(patient, dataload__num_workers=2) == -60  # 8 s / 2 processes: 4 s


def test_processes_that_never_catch_up_have_worked_all_the_time() -> None:
    patient = run(LOADING, {"dataload.num_workers": 1})
    assert mid(patient, dataload__num_workers=2) == -40
    timed = run(LOADING, {"dataload.num_workers": 1}, {"dataload/read_s": 18.0})
    assert mid(timed, dataload__num_workers=2) == -10  # 18 s / 2 = 9 s


def test_loading_is_not_faster_than_the_hosts_cores() -> None:
    patient = run(LOADING, {"dataload.num_workers": 0})
    patient.series("rank.cpu", "%", [0, 100], [160.0] * 2, scope="rank", rank=0)
    patient.series("rank.processors", "", [0, 100], [2.0] * 2, scope="rank", rank=0)
    assert mid(patient, dataload__num_workers=4) == pytest.approx(-20)  # 80% of 2 cores


def test_prefetching_evens_out_what_batches_take() -> None:
    patient = run({"dataload": 2.0, "train": 8.0}, {"dataload.num_workers": 1})
    times = [20.0 * number + 0.01 for number in range(6)]
    uneven = [2.0, 2.0, 2.0, 2.0, 2.0, 26.0]
    patient.series("dataload/read_s", "", times, uneven, scope="counter", rank=0)
    change = mid(patient, dataload__prefetch_factor=8)
    assert change == pytest.approx(-20, abs=1)  # 36 s of loading in 48 s of the rest
    unknown = run(LOADING, {"dataload.num_workers": 1})
    assert "each batch was not recorded" in reason(unknown, dataload__prefetch_factor=8)
    assert mid(run(LOADING, {"dataload.num_workers": 0}), dataload__prefetch_factor=8) == 0


def test_reward_functions_at_once_take_as_long_as_the_fullest_process() -> None:
    patient = run(
        {"reward/judge": 3.0, "reward/other": 1.0, "train": 6.0},
        {"reward.num_workers": 1},
        {"reward/judge_s": 3.0, "reward/other_s": 1.0},
        config={"reward_funcs": ["a.py:judge", "a.py:other"]},
    )
    assert mid(patient, reward__num_workers=2) == -10
    assert mid(patient, reward__num_workers=8) == -10


def test_a_built_in_reward_function_is_cut_into_parts() -> None:
    patient = run(
        {"reward/accuracy": 4.0, "train": 6.0},
        {"reward.num_workers": 1},
        {"reward/accuracy_s": 4.0},
        config={"reward_funcs": ["accuracy"]},
    )
    assert mid(patient, reward__num_workers=4) == -30


def test_rewards_of_another_framework_are_unknown() -> None:
    patient = run({"reward": 4.0}, {"reward.num_workers": 1}, framework="verl")
    assert "this framework" in reason(patient, reward__num_workers=4)


def test_checkpoints_less_often_cost_their_share() -> None:
    patient = run({"train": 6.0, "checkpoint/weights": 4.0}, {"checkpoint.save_steps": 1})
    assert mid(patient, checkpoint__save_steps=4) == -30
    assert mid(patient, checkpoint__save_steps=0) == -40


def test_checkpoints_without_state_lose_its_span() -> None:
    patient = run({"train": 6.0, "checkpoint/optimizer": 3.0, "checkpoint/weights": 1.0})
    assert mid(patient, checkpoint__save_only_model=True) == -30
    none = run({"train": 6.0})
    assert "no checkpoint" in reason(none, checkpoint__save_only_model=True)
    assert "no checkpoint" in reason(none, checkpoint__save_steps=100)


def test_no_reference_model_no_pass_of_it() -> None:
    patient = run({"logprob/reference": 2.0, "train": 8.0}, {"train.beta": 0.04})
    assert mid(patient, train__beta=0.0) == -20
    assert mid(patient, train__beta=0.1) == 0
    assert "not measured" in reason(run({"train": 8.0}, {"train.beta": 0.0}), train__beta=0.1)


def test_a_rollout_per_step_needs_no_old_logprobs() -> None:
    settings = {"rollout.steps_per_generation": 8, "train.grad_accumulation": 4}
    patient = run({"rollout": 1.0, "logprob/old": 2.0, "train": 7.0}, settings)
    prediction = what_if(patient, rollout__steps_per_generation=4)
    assert isinstance(prediction, Prediction)
    assert prediction.mid == pytest.approx(-15)  # 2 s less, and rollouts between as long and twice
    assert prediction.low < -20
    assert prediction.high > -10
    assert "multiple" in reason(patient, rollout__steps_per_generation=6)


def test_recomputation_goes_with_a_measured_forward_pass() -> None:
    settings = {"train.gradient_checkpointing": True, "train.type": "full"}
    patient = run({"logprob/reference": 2.0, "train": 8.0}, settings)
    assert mid(patient, train__gradient_checkpointing=False) == -20


@pytest.mark.parametrize(("kind", "change"), [("full", -20), ("lora", -80 / 3)])
def test_recomputation_is_counted_where_no_pass_was_measured(kind: str, change: float) -> None:
    settings = {"train.gradient_checkpointing": True, "train.type": kind}
    patient = run({"rollout": 2.0, "train": 8.0}, settings)
    assert mid(patient, train__gradient_checkpointing=False) == pytest.approx(change)


def test_recomputation_that_may_be_off_already_is_unknown() -> None:
    patient = run({"train": 8.0}, {"train.type": "full"}, framework="homemade")
    assert "was not recorded" in reason(patient, train__gradient_checkpointing=False)


def test_recomputation_stays_where_memory_is_full() -> None:
    patient = run({"train": 8.0}, {"train.gradient_checkpointing": True, "train.type": "full"})
    patient.gpu("GPU-0", memory_gib=80.0)
    patient.series("gpu.memory_used", "bytes", [0, 60], [78.0 * GIB] * 2, scope="gpu", gpu="GPU-0")
    assert "98% full" in reason(patient, train__gradient_checkpointing=False)


def test_asynchronous_rollouts_take_the_longer_side() -> None:
    patient = run({"rollout": 6.0, "train": 4.0}, {"vllm.mode": "server"}, framework="ms-swift")
    assert mid(patient, rollout__async=True) == -40
    shared = run({"rollout": 6.0, "train": 4.0}, {"vllm.mode": "colocate"}, framework="ms-swift")
    assert "share their GPUs" in reason(shared, rollout__async=True)


def test_fewer_parts_of_a_sync_are_between_two_bounds() -> None:
    patient = run({"sync/gather": 4.0, "train": 6.0}, {"sync.move_model_batches": 8})
    prediction = what_if(patient, sync__move_model_batches=2)
    assert isinstance(prediction, Prediction)
    assert prediction.mid == pytest.approx(-15)
    assert prediction.low < -30
    assert prediction.high == 0
    assert "saves memory" in reason(patient, sync__move_model_batches=16)


def test_smaller_images_leave_decoding_and_shrink_patches() -> None:
    counters = {
        "dataload/pixels": 4.0e6, "dataload/images": 4.0, "dataload/process_s": 2.0,
        "dataload/image_tokens": 0.0, "train/token_places": 1000.0,
    }  # fmt: skip
    patient = run(
        {"dataload": 4.0, "train": 6.0},
        {"dataload.num_workers": 0, "rollout.num_generations": 2},
        counters,
    )
    assert mid(patient, data__max_pixels=500_000) == -10
    assert mid(patient, data__max_pixels=2_000_000) == 0


def test_several_settings_are_replayed_together() -> None:
    settings = {"dataload.num_workers": 0, "offload.optimizer": True}
    patient = run({"dataload": 6.0, "offload": 2.0, "train": 2.0}, settings)
    assert mid(patient, dataload__num_workers=2) == -60
    assert mid(patient, offload__optimizer=False) == -20
    # 6 s / 2 processes no longer fit behind what is left.
    assert mid(patient, dataload__num_workers=2, offload__optimizer=False) == -70


def test_of_several_settings_the_one_without_an_answer_is_named() -> None:
    patient = run(OFFLOAD, {"offload.optimizer": True})
    prediction = reason(patient, offload__optimizer=False, checkpoint__save_steps=10)
    assert prediction.startswith("checkpoint.save_steps: no checkpoint")


def test_values_that_the_run_has_already_are_no_change() -> None:
    build = run({"rollout": 4.0, "checkpoint": 2.0}, {"checkpoint.steps": 1})
    same = what_if(build, checkpoint__steps=1)
    assert isinstance(same, Prediction)
    assert same.mid == 0
    assert "its own settings" in same.grounds


def test_a_number_below_zero_is_refused_for_every_model() -> None:
    prediction = what_if(run({"rollout": 4.0, "train": 2.0}), dataload__num_workers=-1)
    assert isinstance(prediction, Withheld)
    assert prediction.reason == "dataload.num_workers can't be -1"


def test_completions_that_are_no_longer_than_the_new_limit_stay() -> None:
    metrics = {"completions/max_length": 100.0}
    phases = {"rollout/generate": 4.0, "train": 2.0}
    build = run(phases, {"rollout.max_completion_length": 200}, metrics=metrics)
    assert mid(build, rollout__max_completion_length=100) == 0
    assert mid(build, rollout__max_completion_length=150) == 0
    assert mid(build, rollout__max_completion_length=300) == 0
    assert mid(build, rollout__max_completion_length=50) < -20
    cut_off = run(phases, {"rollout.max_completion_length": 100}, metrics=metrics)
    prediction = what_if(cut_off, rollout__max_completion_length=150)
    assert isinstance(prediction, Withheld)
    assert "truncated" in prediction.reason
    assert isinstance(what_if(cut_off, rollout__max_completion_length=0), Withheld)
    unknown = run(phases, {"rollout.max_completion_length": 200})
    assert isinstance(what_if(unknown, rollout__max_completion_length=50), Withheld)


@pytest.mark.parametrize(("workers", "words"), [(1, "by 1 process per"), (2, "by 2 processes per")])
def test_processes_are_counted_in_words(workers: int, words: str) -> None:
    build = run({"dataload": 3.0, "train": 5.0}, {"dataload.num_workers": 0})
    prediction = what_if(build, dataload__num_workers=workers)
    assert isinstance(prediction, Prediction)
    assert words in prediction.assumed


def test_rewards_of_as_many_processes_as_there_are_take_the_slowest() -> None:
    seconds = {"judge": 4.0, "tool": 2.0, "format": 0.5}
    assert [wall_s(seconds, n) for n in (0, 1, 2, 3)] == pytest.approx([6.5, 6.5, 4, 4])
