"""What each rule says about particular runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding, Fix
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import (
    HEALTHY,
    OFFLOADED,
    SETTINGS,
    empty_gpus,
    offloaded,
    run,
    starved,
    straggling,
    without_vllm,
)


def answers(build: TraceBuilder) -> dict[str, Finding | str]:
    results = run_rules(RunView.of(build.build()))
    finding: dict[str, Finding | str] = {r.id: f for r, f in results.findings}
    finding |= {r.id: p.note for r, p in results.passed}
    finding |= {r.id: "; ".join(n.missing) for r, n in results.not_run}
    finding |= {r.id: n.reason for r, n in results.not_applicable}
    return finding


def finding_in(build: TraceBuilder, rule: str) -> Finding:
    finding = answers(build)[rule]
    assert isinstance(finding, Finding), finding
    return finding


def mid(fix: Fix) -> float:
    assert fix.predicted is not None
    return fix.predicted.mid


class TestOffload:
    def test_with_room_it_is_advised_and_predicted(self) -> None:
        finding = finding_in(offloaded(), "GD001")
        (fix,) = finding.fixes
        assert fix.spelling == "--offload_optimizer false"
        assert (fix.knob, fix.before, fix.after) == ("offload.optimizer", True, False)
        assert mid(fix) == pytest.approx(-100 * 2 / 11.85, abs=0.2)
        assert finding.severity == "medium"
        assert finding.confidence == 0.9
        assert "40.0 GiB plus 20.00 GiB offloaded fits in 90% of 80.0 GiB" in finding.cause

    def test_without_room_it_is_needed(self) -> None:
        note = answers(offloaded(memory_gib=(60.0, 72.0)))["GD001"]
        assert isinstance(note, str)
        assert "is needed" in note
        assert "does not fit" in note

    def test_without_gpu_samples_it_says_what_to_check(self) -> None:
        finding = finding_in(offloaded(memory_gib=None), "GD001")
        assert finding.confidence == 0.6
        assert "no GPU memory was sampled" in finding.cause
        assert "First check" in finding.fixes[0].risk

    def test_both_switches_are_turned_off_together(self) -> None:
        knobs = {"offload.optimizer": True, "offload.model": True}
        build = run(OFFLOADED, knobs=knobs, memory_gib=None)
        (fix,) = finding_in(build, "GD001").fixes
        assert fix.spelling == "--offload_optimizer false --offload_model false"

    def test_an_unknown_framework_gets_words_not_flags(self) -> None:
        build = run(OFFLOADED, knobs={}, framework="unknown", framework_version=None)
        (fix,) = finding_in(build, "GD001").fixes
        assert fix.knob is None
        assert "--" not in fix.spelling

    def test_zero_offload_shows_in_the_optimizer(self) -> None:
        knobs = {"deepspeed.preset": "zero3_offload", "deepspeed.offload_optimizer": True}
        finding = finding_in(run({**HEALTHY, "optimizer": 3.0}, knobs=knobs), "GD001")
        assert finding.phases == ("optimizer",)
        assert finding.fixes[0].spelling == "--deepspeed zero3"
        assert finding.fixes[0].predicted is None

    def test_zero_offload_with_a_quick_optimizer_passes(self) -> None:
        knobs = {"deepspeed.preset": "zero2_offload", "deepspeed.offload_optimizer": True}
        note = answers(run(knobs=knobs))["GD001"]
        assert isinstance(note, str)
        assert "ZeRO-Offload" in note


class TestData:
    @pytest.mark.parametrize(
        ("workers", "to", "expected"),
        [
            # All 3 s of 12.75 s hidden behind the rest.
            (0, 4, -100 * 3 / 12.75),
            # One process needs 12.75 s per batch; four need 3.2 s, less than the other 9.75 s.
            (1, 4, -100 * 3 / 12.75),
            # Four need 51 s of work; eight do it in 6.4 s.
            (4, 8, -100 * 3 / 12.75),
        ],
    )
    def test_more_processes(self, workers: int, to: int, expected: float) -> None:
        (fix,) = finding_in(starved(workers), "GD002").fixes
        assert fix.spelling == f"--dataloader_num_workers {to}"
        assert (fix.before, fix.after) == (workers, to)
        assert mid(fix) == pytest.approx(expected, abs=0.3)

    def test_a_loader_that_stays_slow_is_predicted_to(self) -> None:
        # 90 s of loading without processes: four bring 22.5 s, of which 9.75 s stay hidden.
        build = run({**HEALTHY, "dataload": 90.0}, knobs={**SETTINGS, "dataload.num_workers": 0})
        (fix,) = finding_in(build, "GD002").fixes
        assert mid(fix) == pytest.approx(-100 * (1 - 22.5 / 99.75), abs=1)
        assert fix.predicted is not None
        # At the cautious end processes take a quarter longer each, and the model is off by 15%.
        assert fix.predicted.high == pytest.approx(-85 * (1 - 1.25 * 22.5 / 99.75), abs=1)

    def test_a_busy_host_gets_no_prediction(self) -> None:
        build = starved()
        build.series("host.cpu", "%", [0, 100], [97, 97])
        (fix,) = finding_in(build, "GD002").fixes
        assert fix.predicted is None
        assert "97% busy without them" in fix.risk

    def test_many_processes_already(self) -> None:
        (fix,) = finding_in(starved(16), "GD002").fixes
        assert fix.knob is None
        assert "in advance" in fix.spelling

    def test_waiting_for_another_ranks_loader_is_not_ones_own(self) -> None:
        answer = answers(run(slow={1: {"dataload": 0.5}}))["GD002"]
        assert isinstance(answer, str)


class TestVllm:
    def test_ms_swift_gets_both_flags_and_a_bound(self) -> None:
        finding = finding_in(without_vllm(), "GD003")
        (fix,) = finding.fixes
        assert fix.spelling == "--use_vllm true"  # vllm_mode is set in this run
        assert fix.predicted is None
        (bound,) = [e for e in finding.evidence if "the upper bound of the gain" in e.text]
        assert bound.value == pytest.approx(-100 * 5 / 9.85, abs=0.3)

    def test_a_version_that_wants_the_mode_said_gets_it(self) -> None:
        build = run(knobs={"vllm.use": False}, framework_version="4.6.0")
        assert (
            finding_in(build, "GD003").fixes[0].spelling == "--use_vllm true --vllm_mode colocate"
        )

    def test_the_bundled_trainer_takes_the_same_flag(self) -> None:
        finding = finding_in(without_vllm(framework="bundled", framework_version="0.1.0"), "GD003")
        assert finding.fixes[0].spelling.startswith("--use_vllm true")

    def test_on_a_cpu_it_is_a_fact_and_less_sure(self) -> None:
        finding = finding_in(without_vllm(memory_gib=None), "GD003")
        assert finding.severity == "info"
        assert finding.confidence == 0.5
        assert "No GPU was sampled" in finding.cause

    def test_unknown_settings_are_a_missing_signal(self) -> None:
        answer = answers(run(knobs={}, framework="unknown", framework_version=None))["GD003"]
        assert isinstance(answer, str)
        assert "settings" in answer


class TestStraggler:
    def test_it_is_named_with_its_phase_and_replayed(self) -> None:
        finding = finding_in(straggling(), "GD004")
        assert finding.ranks == (2,)
        assert finding.phases == ("rollout", "train")
        assert "Rank 2 (host host-a)" in finding.cause
        assert finding.cost == pytest.approx(finding.gain / 100)
        (fix,) = finding.fixes
        assert mid(fix) == pytest.approx(-100 * 2 / 11.85, abs=0.3)
        assert "GPU-2" in fix.spelling

    def test_two_slow_ranks_are_not_one(self) -> None:
        slow = {1: {"rollout": 2.0}, 2: {"rollout": 2.0}}
        answer = answers(run(slow=slow))["GD004"]
        assert isinstance(answer, str)
        assert "0% of it is for rank" in answer

    def test_a_slow_rank_and_its_own_checkpoints_differ(self) -> None:
        # Rank 0 writes one long checkpoint while the others wait: a duty, not a slow rank.
        build = TraceBuilder(ranks=2)
        for number in range(6):
            at, saves = 20.0 * number, 8.0 * (number == 3)
            for rank in (0, 1):
                arrives = at + 1 + (saves if rank == 0 else 0)
                build.span(rank, "train", at, at + 1)
                build.span(rank, "checkpoint", at + 1, at + 2 + saves)
                build.collective(rank, number, arrives, at + 2 + saves)
                build.step(rank, number, at, {}, end_s=at + 2 + saves)
        answer = answers(build)["GD004"]
        assert isinstance(answer, str)
        assert "0% of it is for rank 0" in answer

    def test_without_collectives_the_signal_is_missing(self) -> None:
        build = TraceBuilder(ranks=2)
        for number in range(4):
            for rank in (0, 1):
                build.step(rank, number, 10.0 * number, {"train": 5.0 + rank})
        answer = answers(build)["GD004"]
        assert isinstance(answer, str)
        assert "collectives" in answer


class TestUnaccounted:
    def test_it_says_between_which_phases(self) -> None:
        finding = finding_in(run(idle=1.5), "GD005")
        assert "between the step's begin and dataload" in finding.cause
        assert finding.fixes[0].predicted is None
        assert "py-spy" in finding.next_steps[0].spelling

    def test_a_callback_that_most_of_it_is_in_is_named(self) -> None:
        build = TraceBuilder()
        for number in range(6):
            at = 10.0 * number
            build.step(0, number, at, {"train": 6.0}, end_s=at + 9)
            build.span(0, "callback/Journal.on_step_end", at + 6, at + 8.5)
        finding = finding_in(build, "GD005")
        assert finding.cause.endswith("83% of it in `callback/Journal.on_step_end`.")
        assert finding.fixes[0].spelling.startswith("make `Journal.on_step_end` faster")


class TestMemory:
    def test_vllm_gets_more_and_batches_grow(self) -> None:
        finding = finding_in(empty_gpus(), "GD006")
        assert [fix.spelling for fix in finding.fixes] == [
            "--vllm_gpu_memory_utilization 0.75",
            "--per_device_train_batch_size 4 --gradient_accumulation_steps 4",
        ]
        assert finding.severity == "medium"
        assert all(fix.predicted is None for fix in finding.fixes)

    @pytest.mark.parametrize(
        ("micro", "passes", "used_gib"),
        [
            (2, 7, (30.0, 35.0)),
            (2, None, (30.0, 35.0)),
            (None, 8, (30.0, 35.0)),
            (2, 8, (40.0, 50.0)),
        ],
    )
    def test_a_batch_that_cannot_double_stays(
        self, micro: int | None, passes: int | None, used_gib: tuple[float, float]
    ) -> None:
        knobs = {**SETTINGS, "train.micro_batch": micro, "train.grad_accumulation": passes}
        fixes = finding_in(run(knobs=knobs, memory_gib=used_gib), "GD006").fixes
        assert "train.micro_batch" not in [fix.knob for fix in fixes]

    @pytest.mark.parametrize("share", [None, 0.9])
    def test_an_engine_without_a_share_or_with_all_of_it_gets_no_more(
        self, share: float | None
    ) -> None:
        knobs = {**SETTINGS, "vllm.gpu_memory_utilization": share}
        fixes = finding_in(run(knobs=knobs, memory_gib=(30.0, 35.0)), "GD006").fixes
        assert "vllm.gpu_memory_utilization" not in [fix.knob for fix in fixes]

    def test_offload_goes_first(self) -> None:
        finding = finding_in(offloaded(memory_gib=(30.0, 50.0)), "GD006")
        assert finding.fixes[0].spelling == "--offload_optimizer false"
        assert finding.fixes[0].predicted is not None

    def test_a_tiny_model_is_only_a_note(self) -> None:
        assert finding_in(run(memory_gib=(1.0, 2.0)), "GD006").severity == "info"

    @pytest.mark.parametrize("mode", [None, "server"])
    def test_a_server_keeps_its_own_gpus(self, mode: Any) -> None:
        knobs = {**SETTINGS, "vllm.mode": mode, "vllm.gpu_memory_utilization": 0.3}
        fixes: Sequence[Fix] = finding_in(run(knobs=knobs, memory_gib=(30, 35)), "GD006").fixes
        raised = any(fix.knob == "vllm.gpu_memory_utilization" for fix in fixes)
        assert raised is (mode is None)

    def test_without_samples_the_signal_is_missing(self) -> None:
        answer = answers(run(memory_gib=None))["GD006"]
        assert isinstance(answer, str)
        assert "GPU memory samples" in answer


def test_runs_of_two_steps_are_not_judged() -> None:
    build = TraceBuilder(framework="ms-swift", framework_version="4.6.0")
    for number in range(2):
        build.step(0, number, 10.0 * number, {"dataload": 5.0, "train": 5.0})
    assert all(not isinstance(answer, Finding) for answer in answers(build).values())


def test_a_checkpoint_that_one_rank_writes_for_all_is_no_straggler() -> None:
    trace = TraceBuilder(ranks=2)
    for n in range(6):
        start = 3.0 * n
        trace.step(0, n, start, {"train": 1.0, "checkpoint": 2.0})
        trace.step(1, n, start, {"train": 1.0, "checkpoint": 2.0})
        trace.collective(0, n, start + 2.9, start + 3.0)
        trace.collective(1, n, start + 1.0, start + 3.0)
    assert isinstance(answers(trace)["GD004"], str)
    assert finding_in(trace, "GD070").fixes[0].spelling == "--save_steps 500"
