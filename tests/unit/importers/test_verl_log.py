"""verl's console logs: as its loggers print them through Ray, whole, cut off and mixed up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.importers import verl_log
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.trace.write import write_trace

ACTOR = "(TaskRunner pid=4711) "
COLOURED = "\x1b[36m(TaskRunner pid=4711)\x1b[0m "
COMMAND = (
    "+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
    "actor_rollout_ref.rollout.n=8 actor_rollout_ref.actor.fsdp_config.param_offload=True "
    "'trainer.logger=[\"console\"]' trainer.n_gpus_per_node=4 trainer.nnodes=2"
)
TIMERS = {
    "gen": 25.5,
    "reward": 0.25,
    "old_log_prob": 4.0,
    "adv": 0.01,
    "update_actor": 11.5,
    "update_weights": 1.74,
}


def step_line(number: int, step_s: float = 43.2, prefix: str = ACTOR, **timers: float) -> str:
    metrics = {
        "actor/entropy": 0.25,
        "critic/score/mean": 0.125 + number / 64,
        "response_length/mean": 450.0,
        "timing_s/agent_loop/generate_sequences/max": 21.5,
        "timing_s/agent_loop/slowest/prompt_length": 127,
        **{f"timing_s/{name}": seconds for name, seconds in {**TIMERS, **timers}.items()},
        "timing_s/step": step_s,
        "timing_s/stop_profile": 0.0002,
        "timing_per_token_ms/gen": 0.44,
        "num_turns/mean": "np.float64(2.0)",
        "perf/throughput": 403.5,
    }
    return f"{prefix}step:{number} - " + " - ".join(f"{key}:{v}" for key, v in metrics.items())


def written(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "train.log"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def loaded(folder: Path, *lines: str, end: str = "\n") -> Trace:
    return load(written(folder, *lines, end=end))


def test_shares_are_those_of_the_log(tmp_path: Path) -> None:
    trace = loaded(tmp_path, COMMAND, *(step_line(n) for n in range(1, 7)))
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [1, 2, 3, 4, 5, 6]
    assert analysis.step_s == pytest.approx(43.2)
    expected = {"rollout": 25.5, "reward": 0.26, "logprob": 4.0, "train": 11.5, "sync": 1.74}
    for phase, seconds in expected.items():
        assert analysis.share(phase) == pytest.approx(seconds / 43.2, abs=1e-9), phase
    assert analysis.share("unattributed") == pytest.approx(0.2 / 43.2, abs=1e-9)


def test_steps_whose_lines_are_equally_long_are_steps(tmp_path: Path) -> None:
    trace = loaded(tmp_path, *(step_line(number, prefix="", gen=25.5) for number in range(1, 7)))
    assert analyse(trace).steps.numbers.tolist() == [1, 2, 3, 4, 5, 6]


def test_the_command_gives_settings_and_ranks(tmp_path: Path) -> None:
    run = loaded(tmp_path, COMMAND, step_line(1)).run
    assert run.framework == "verl"
    assert run.world_size == 8
    assert run.knobs["rollout.num_generations"] == 8
    assert run.knobs["offload.model"] is True
    assert run.origin is not None
    assert run.origin.durations_only


def test_the_printed_configuration_is_read_between_lines_of_others(tmp_path: Path) -> None:
    trace = loaded(
        tmp_path,
        f"{COLOURED}{{'actor_rollout_ref': {{'actor': {{'ppo_micro_batch_size_per_gpu': 4}},",
        "\x1b[36m(WorkerDict pid=99)\x1b[0m {'loss': {",
        f"{COLOURED}                       'rollout': {{'n': 5}}}},",
        f"{COLOURED} 'trainer': {{'n_gpus_per_node': 2, 'nnodes': 1}}}}",
        step_line(1, prefix=COLOURED),
    )
    assert trace.run.knobs["train.micro_batch"] == 4
    assert trace.run.knobs["rollout.num_generations"] == 5
    assert trace.run.world_size == 2


def test_metrics_are_numbers_whatever_printed_them(tmp_path: Path) -> None:
    glued = step_line(1) + f"{ACTOR}Training Progress:  67%| | 585/870 [8:03:26<4:21, 55.1s/it]"
    metrics = loaded(tmp_path, glued, step_line(2)).metrics
    assert metrics.steps.tolist() == [1, 2]
    assert metrics.values["perf/throughput"].tolist() == [403.5, 403.5]
    assert metrics.values["num_turns/mean"].tolist() == [2.0, 2.0]
    assert metrics.values["critic/score/mean"][1] == 0.125 + 2 / 64


def test_validation_beside_the_step_is_drawn_beside_it(tmp_path: Path) -> None:
    trace = loaded(tmp_path, step_line(1, testing=33.0), step_line(2))
    spans = trace.spans
    steps = np.flatnonzero(spans.kind == Kind.STEP)
    evals = np.flatnonzero(spans.name == trace.names.index("eval"))
    assert spans.start_ns[evals].tolist() == spans.end_ns[steps[:1]].tolist()
    assert spans.start_ns[steps[1]] == spans.end_ns[evals[0]]


def test_what_gen_times_around_generation_is_told(tmp_path: Path) -> None:
    for own, told in ((12.7, True), (12.8, False)):
        notes = loaded(
            tmp_path, step_line(1, 43.2, ACTOR, **{"generation_timing/max": own})
        ).run.notes
        assert any("generation takes" in note for note in notes) is told


def test_steps_that_get_longer_throughout_are_told(tmp_path: Path) -> None:
    for last, told in ((1.4, True), (1.2, False)):
        longer = [step_line(n, 44 * (1 + (last - 1) * (n - 1) / 19)) for n in range(1, 21)]
        notes = loaded(tmp_path, *longer).run.notes
        assert any("Steps get longer" in note for note in notes) is told


def test_the_first_validation_is_metrics_and_no_step(tmp_path: Path) -> None:
    trace = loaded(tmp_path, f"{ACTOR}step:0 - val-core/gsm8k/acc/mean@1:0.25", step_line(1))
    assert trace.metrics.steps.tolist() == [0, 1]
    assert analyse(trace).steps.numbers.tolist() == [1]


def test_it_stays_a_log_in_a_trace_file(tmp_path: Path) -> None:
    trace = loaded(tmp_path, COMMAND, *(step_line(n) for n in range(1, 7)))
    write_trace(trace, tmp_path / "trace.json")
    again = load(tmp_path / "trace.json")
    assert again.run.origin == trace.run.origin
    assert analyse(again).share("rollout") == pytest.approx(analyse(trace).share("rollout"))


def test_the_report_says_what_a_log_can_not_tell(tmp_path: Path) -> None:
    document = build_document(loaded(tmp_path, COMMAND, *(step_line(n) for n in range(1, 13))))
    missing_by_rule = {entry.id: entry.missing for entry in document.not_run}
    for rule in ("GD002", "GD004", "GD006", "GD035"):
        assert "not in a verl console log; record with `grpo-doctor run" in missing_by_rule[rule], (
            rule
        )
    assert any(text.startswith("Ranks:") for text in document.summary.not_judged)
    assert document.summary.accounting == {}
    assert not document.rule_errors


def test_timers_of_no_phase_are_named_and_parts_of_others_are_not(tmp_path: Path) -> None:
    timers = {"mine": 1.0, "other": 2.0, "reshard": 3.0, "a/b": 4.0, "ref": 5.0}
    notes = " ".join(loaded(tmp_path, step_line(1, 43.2, ACTOR, **timers)).run.notes)
    assert "belong to no phase known here: mine, other." in notes
    assert "no phase" not in " ".join(loaded(tmp_path, step_line(1, ref=5.0)).run.notes)


CONFIG = (
    "{'actor_rollout_ref': {'rollout': {'n': 4}},",
    " 'trainer': {'nnodes': 3,",
    " 'n_gpus_per_node': 2}}",
)


@pytest.mark.parametrize("between", [(), ("(Other pid=1) }",)])
def test_a_printed_configuration_is_that_of_one_process(
    between: tuple[str, ...], tmp_path: Path
) -> None:
    lines = (ACTOR + CONFIG[0], *between, ACTOR + CONFIG[1], f"{ACTOR}  {CONFIG[2]}")
    run = loaded(tmp_path, *lines, step_line(1)).run
    assert run.knobs["rollout.num_generations"] == 4
    assert run.world_size == 6


def test_the_command_counts_before_the_configuration_and_the_first_of_several(
    tmp_path: Path,
) -> None:
    printed = ACTOR + "".join(CONFIG)
    other = COMMAND.replace("rollout.n=8", "rollout.n=9")
    engines = [f"LLM engine (v0.{n}.0)" for n in (11, 12)]
    run = loaded(tmp_path, COMMAND, other, printed, *engines, step_line(1)).run
    assert (run.knobs["rollout.num_generations"], run.world_size) == (8, 8)
    assert run.versions == {"vllm": "0.11.0"}
    assert loaded(tmp_path, step_line(1)).run.world_size == 0


@pytest.mark.parametrize(
    ("command", "ranks"),
    [
        ("python -m verl.trainer.main_ppo trainer.n_gpus_per_node=4", 4),
        ("python -m verl.trainer.main_ppo +trainer.n_gpus_per_node=4 ++trainer.nnodes=3", 12),
        ("python -m verl.trainer.main_ppo trainer.n_gpus_per_node=$N trainer.nnodes=3", 0),
        ("python -m verl.trainer.main_ppo trainer.n_gpus_per_node=4 trainer.nnodes=$N", 4),
    ],
)
def test_ranks_are_those_of_all_hosts(command: str, ranks: int, tmp_path: Path) -> None:
    assert loaded(tmp_path, command, step_line(1)).run.world_size == ranks


def test_a_configuration_without_an_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl_log, "_MOST_CONFIG_LINES", 3)
    lines = [ACTOR + CONFIG[0], *[f"{ACTOR}'x': 1,"] * 3]
    configuration = ACTOR + "".join(CONFIG)
    assert loaded(tmp_path, *lines, configuration, step_line(1)).run.world_size == 6
    # Within the limit what follows is still a part of it.
    assert loaded(tmp_path, *lines[:3], configuration, step_line(1)).run.world_size == 0


def test_metrics_of_a_line_that_is_cut_off_lose_the_last_value(tmp_path: Path) -> None:
    line = step_line(2)
    cut = line[: line.index("450.0") + 2]
    trace = loaded(tmp_path, step_line(1), cut, end="")
    assert trace.loss.truncated
    assert trace.metrics.absent["response_length/mean"].tolist() == [False, True]
    whole = loaded(tmp_path, step_line(1), cut)
    assert (whole.loss.truncated, whole.loss.notes) == (False, ())
    assert whole.metrics.values["response_length/mean"].tolist() == [450.0, 45.0]
