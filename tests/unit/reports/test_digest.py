# ruff: noqa: RUF001 (the en dash and the minus sign are what a report prints)
from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports import digest, render_text
from grpo_doctor_reports.digest import gpus_words, key_numbers, setup_parts
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from tests.demo_reports import DEMOS


def read(**parts: Any) -> ReportDocument:
    return read_report({"schema": 1, **parts})


def test_the_bar_never_overflows_and_ends_with_unattributed() -> None:
    parts = digest.step_bar(
        read(
            summary={
                "step_time_s": 10.0,
                "unattributed_seconds": 1.0,
                "phases": {
                    "train": {"seconds": 8.0, "wait_seconds": 2.0},
                    "rollout": {"seconds": 4},
                },
            }
        )
    )
    assert [part.phase for part in parts] == ["rollout", "train", "unattributed"]
    assert sum(part.fraction for part in parts) == pytest.approx(1.0)
    assert (parts[1].work_s, parts[1].wait_s) == (6.0, 2.0)


def test_stalls_group_ranks_by_their_innermost_open_span() -> None:
    def rank(number: int, *spans: tuple[str, float]) -> dict[str, Any]:
        return {"rank": number, "open": [{"name": n, "open_s": s} for n, s in spans]}

    ranks = [rank(0, ("train", 700.0))]
    assert digest.stalls(read(run={"exit": {"state": "running"}, "ranks": ranks})) == []
    report = read(
        run={
            "ranks": [
                rank(0, ("train", 700.0), ("train/all_reduce", 690.0)),
                rank(1, ("train", 700.0), ("train/all_reduce", 690.4)),
                rank(2, ("rollout/generate", 703.0)),
                rank(3),
            ]
        }
    )
    assert digest.stalls(report) == [
        "Rank 2 was in rollout/generate for 11 min 43 s when the recording ended.",
        "Ranks 0–1 were in train/all_reduce for 11 min 30 s when the recording ended.",
    ]


def test_everything_lost_is_said() -> None:
    loss = {"dropped_events": 1_204, "missing_ranks": [3, 4], "truncated": True, "notes": ["n"]}
    assert digest.losses(read(run={"loss": loss})) == [
        "Ranks 3–4 left no recording.",
        "1,204 events dropped while recording.",
        "The recording is truncated: everything after the cut is unknown.",
        "n",
    ]
    assert digest.losses(read()) == []


def test_the_fix_shown_first_is_the_first_with_a_prediction() -> None:
    fixes = [{"spelling": "a"}, {"spelling": "b", "predicted": {"mid": -3.0}}]
    finding = read(findings=[{"fixes": fixes}]).findings[0]
    fix = digest.main_fix(finding)
    assert fix is not None
    assert fix.spelling == "b"
    assert digest.gain_sentence(fix.predicted) == "step time −3%"
    assert digest.main_fix(read(findings=[{}]).findings[0]) is None


def test_a_fix_without_spelling_shows_its_knob() -> None:
    fix = {"knob": "offload.optimizer", "from": True, "to": False}
    read_fix = read(findings=[{"fixes": [fix]}]).findings[0].fixes[0]
    assert digest.fix_line(read_fix) == "offload.optimizer: true → false"


def test_key_numbers_of_a_killed_run() -> None:
    shown = {item.label: item for item in key_numbers(read_report(DEMOS["killed"]()))}
    assert shown["Exit"].value == "killed"
    assert shown["Exit"].detail == "SIGKILL after 12 min 14 s"
    assert "Step time" not in shown  # there is none, so nothing is shown


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"spelling": "--x 1"}, digest.Pasted("", "--x 1")),
        (
            {"spelling": "for `serve`: --x 1", "where": "for `serve`", "typed": "--x 1"},
            digest.Pasted("for `serve`", "--x 1"),
        ),
        # A document from before `where` was said.
        ({"spelling": "for `serve`: --x 1"}, digest.Pasted("", "for `serve`: --x 1")),
        ({"spelling": "two\nlines: -x"}, digest.Pasted("", "two\nlines: -x")),
    ],
)
def test_what_is_copied_is_what_is_typed(entry: dict[str, str], expected: digest.Pasted) -> None:
    fix = read(findings=[{"fixes": [entry]}]).findings[0].fixes[0]
    assert digest.pasted(fix) == expected


def bar_of(**summary: Any) -> list[tuple[str, float]]:
    return [(part.phase, part.fraction) for part in digest.step_bar(read(summary=summary))]


def test_a_bar_is_of_the_step_or_of_what_its_parts_come_to() -> None:
    phases = {"train": {"seconds": 3.0}, "rollout": {"seconds": 0.0}}
    assert bar_of(phases=phases) == [("train", 1.0)]
    assert bar_of(phases=phases, step_time_s=4.0) == [("train", 0.75)]
    assert bar_of(phases=phases, step_time_s=4.0, unattributed_seconds=1.0) == [
        ("train", 0.75), ("unattributed", 0.25),
    ]  # fmt: skip
    assert bar_of(phases=phases, step_time_s=1.0, unattributed_seconds=3.0) == [
        ("train", 0.5), ("unattributed", 0.5),
    ]  # fmt: skip


@pytest.mark.parametrize("uncovered", [0.0, -1.0, None])
def test_without_a_rest_there_is_no_part_for_it(uncovered: float | None) -> None:
    phases = {"train": {"seconds": 3.0}}
    assert bar_of(phases=phases, unattributed_seconds=uncovered) == [("train", 1.0)]


def test_a_rest_that_is_a_phase_already_is_not_counted_twice() -> None:
    phases = {"train": {"seconds": 3.0}, "unattributed": {"seconds": 1.0}}
    assert bar_of(phases=phases, unattributed_seconds=1.0) == [
        ("train", 0.75), ("unattributed", 0.25),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("waits_s", "idles_s", "words"),
    [(0.0, 0.0, ""), (1.0, 0.0, "wait for other ranks"), (0.0, 1.0, "wait or idle")],
)
def test_the_key_of_a_bar_names_only_what_it_has(
    waits_s: float, idles_s: float, words: str
) -> None:
    phase = {"seconds": 3.0, "wait_seconds": waits_s, "idle_seconds": idles_s}
    document = {"summary": {"step_time_s": 3.0, "phases": {"train": phase}}}
    assert digest.wait_words(digest.step_bar(read(**document))) == words
    text = render_text({"schema": 1, **document}, width=80, color=False)
    assert f"█ work{'  ░ ' * bool(words)}{words}\n" in text


def test_a_bar_in_words_begins_with_its_largest_part() -> None:
    phases = {"rollout": {"seconds": 1.0}, "train": {"seconds": 3.0}}
    parts = digest.step_bar(read(summary={"phases": phases}))
    assert digest.bar_sentence(parts) == "train 3 s (75%); rollout 1 s (25%)"
    assert digest.bar_sentence([]).startswith("No complete step was recorded")


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ({"verdict": "Slow.", "steps": 0}, "Slow."),
        ({"steps": 0}, "No complete step was recorded."),
        ({"steps": 1}, "1 step recorded; no verdict was given."),
        ({"steps": 2}, "2 steps recorded; no verdict was given."),
    ],
)
def test_a_verdict_or_what_can_be_said_without(summary: dict[str, Any], sentence: str) -> None:
    assert digest.verdict(read(summary=summary)) == sentence


def hung(state: str, *hangs: tuple[str, str]) -> str | None:
    entries = [{"state": hang_state, "headline": headline} for hang_state, headline in hangs]
    page = digest.deadly_hang(read(run={"exit": {"state": state}}, hangs=entries))
    return page.headline if page else None


@pytest.mark.parametrize("state", ["failed", "killed", "interrupted", "hung"])
def test_the_last_verdict_on_a_run_that_was_ended_counts(state: str) -> None:
    assert hung(state, ("stuck", "a"), ("dead", "b"), ("slow", "c"), ("stuck", "")) == "b"
    assert hung(state, ("slow", "c")) is None
    assert hung(state) is None


@pytest.mark.parametrize("state", ["finished", "running", "unknown"])
def test_a_run_that_went_on_was_ended_by_none(state: str) -> None:
    assert hung(state, ("stuck", "a")) is None


def spans(*open_s: tuple[str, float | None]) -> list[str]:
    ranks = [
        {"rank": rank, "open": [{"name": name, "open_s": seconds}]}
        for rank, (name, seconds) in enumerate(open_s)
    ]
    return digest.stalls(read(run={"ranks": ranks}))


def test_how_long_ranks_were_inside_is_a_range_where_it_differs() -> None:
    assert spans(("train", 5.0), ("train", 9.0)) == [
        "Ranks 0–1 were in train for 5 s to 9 s when the recording ended."
    ]
    assert spans(("", None)) == ["Rank 0 was in an unnamed span for 0 s when the recording ended."]


@pytest.mark.parametrize(
    ("count", "more"), [(4, []), (5, ["1 more open spans"]), (6, ["2 more open"])]
)
def test_four_open_spans_are_told_the_longest_first(count: int, more: list[str]) -> None:
    sentence = spans(*((f"phase {at}", float(at)) for at in range(count)))
    assert [line.partition(" for ")[0] for line in sentence[:4]] == [
        f"Rank {at} was in phase {at}" for at in range(count - 1, count - 5, -1)
    ]
    assert [line[: len(start)] for line, start in zip(sentence[4:], more, strict=True)] == more


def test_one_lost_rank_or_event_is_said_in_the_singular() -> None:
    loss = {"dropped_events": 1, "missing_ranks": [3], "notes": ["", "n"]}
    assert digest.losses(read(run={"loss": loss})) == [
        "Rank 3 left no recording.", "1 event dropped while recording.", "n",
    ]  # fmt: skip


def test_advice_is_shown_where_there_is_no_fix() -> None:
    steps = [{"text": "look"}, {"text": "ask", "predicted": {"mid": -2.0}}]
    finding = read(findings=[{"next_steps": steps}]).findings[0]
    step = digest.main_step(finding)
    assert step is not None
    assert step.text == "ask"
    gain = digest.main_gain(finding)
    assert gain is not None
    assert (gain.value, gain.of_what, gain.interval) == ("−2%", "step time", "")
    assert digest.main_gain(read(findings=[{}]).findings[0]) is None


def test_a_gain_in_another_unit_is_not_of_the_step_time() -> None:
    predicted = {"mid": 2.0, "low": 1.0, "high": 3.0, "unit": "bytes"}
    fix = read(findings=[{"fixes": [{"predicted": predicted}]}]).findings[0].fixes[0]
    gain = digest.gain(fix.predicted)
    assert gain is not None
    assert (gain.value, gain.of_what, gain.interval) == ("2 B", "", "1 B to 3 B")


def test_what_a_fix_may_change_is_put_into_words() -> None:
    words = [digest.safety_words(safety) for safety in ("same-math", "needs-code", "odd", "")]
    assert words == ["same math", "needs a code change", "odd", ""]


def numbers(run: dict[str, Any] | None = None, **summary: Any) -> dict[str, tuple[str, str]]:
    report = read(run=run or {}, summary=summary)
    return {item.label: (item.value, item.detail) for item in key_numbers(report)}


@pytest.mark.parametrize(
    ("summary", "label", "shown"),
    [
        ({"step_time_s": 2.0}, "Step time", ("2 s", "")),
        ({"step_time_s": 2.0, "step_time_p10_s": 1.0}, "Step time", ("2 s", "")),
        ({"step_time_s": 2.0, "step_time_p90_s": 3.0}, "Step time", ("2 s", "")),
        ({"step_time_s": 2.0, "step_time_p10_s": 1.0, "step_time_p90_s": 3.0}, "Step time",
         ("2 s", "p10–p90 1 s to 3 s")),
        ({"tokens_per_s": 5.0}, "Tokens/s", ("5", "completion tokens")),
        ({"tokens_per_s_per_gpu": 5.0}, "Tokens/s/GPU", ("5", "")),
        ({"tokens_per_s_per_gpu": 5.0, "tokens_per_s": 40.0}, "Tokens/s/GPU", ("5", "40 in total")),
        ({"gpu_busy_pct": 90.0}, "GPU busy", ("90%", "")),
        ({"gpu_busy_pct": 90.0, "gpu_truly_busy_pct": 40.0}, "GPU busy", ("90%", "40% effective")),
        ({"gpu_busy_pct": 90.0, "gpu_truly_busy_pct": 40.0, "gpu_busy_by": "sm_active"}, "GPU busy",
         ("90%", "40% by sm active")),
        ({"steps": 5, "steps_total": 5}, "Steps", ("5", "")),
        ({"steps": 5, "steps_total": 6}, "Steps", ("5", "of 6 recorded")),
        ({"steps": 5, "steps_total": 6, "warmup_steps": 1}, "Steps",
         ("5", "of 6 recorded, 1 warm-up")),
    ],
)  # fmt: skip
def test_a_headline_number_has_in_small_print_what_is_known(
    summary: dict[str, Any], label: str, shown: tuple[str, str]
) -> None:
    assert numbers(**summary)[label] == shown


def test_what_is_not_known_is_no_headline() -> None:
    assert numbers() == {"Exit": ("unknown", "")}


def test_ranks_are_those_of_the_job_or_those_that_were_seen() -> None:
    ranks = [{"rank": 0}, {"rank": 1}]
    assert "Ranks" not in numbers({"ranks": ranks[:1]})  # a log of a job of any size
    assert numbers({"ranks": ranks, "hosts": ["a", "b"]})["Ranks"] == ("2", "on 2 hosts")
    job = {"ranks": ranks, "world_size": 8, "hosts": ["a"]}
    assert numbers(job)["Ranks"] == ("8", "on 1 host")


@pytest.mark.parametrize(
    ("exit_", "detail"),
    [
        ({"state": "finished", "code": 0}, ""),
        ({"state": "finished", "code": 3}, "code 3"),
        ({"state": "failed", "code": 0}, "code 0"),
        ({"state": "killed", "signal": "SIGKILL", "code": -9}, "SIGKILL code -9"),
        ({"state": "failed"}, ""),
    ],
)
def test_how_a_run_ended_is_told_where_it_was_not_well(exit_: dict[str, Any], detail: str) -> None:
    assert numbers({"exit": exit_})["Exit"] == (exit_["state"], detail)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ({}, ""),
        ({"ranks": [{"rank": 0}]}, ""),
        ({"world_size": 16, "ranks": [{"rank": 0}]}, "16 ranks"),
        ({"ranks": [{"rank": 0}], "hosts": ["a"]}, "1 rank without a GPU"),
        ({"world_size": 4, "hosts": ["a", "b"]}, "4 ranks without a GPU on 2 hosts"),
        ({"gpus": [{"name": "H100"}], "hosts": ["a"]}, "1 × H100"),
        ({"gpus": [{"name": "H100"}] * 2, "hosts": ["a", "b"]}, "2 × H100 on 2 hosts"),
        ({"gpus": [{"name": "H100"}, {"name": "A100"}]}, "2 × GPUs of several kinds"),
    ],
)
def test_what_it_ran_on(run: dict[str, Any], sentence: str) -> None:
    assert gpus_words(read(run=run).run) == sentence


@pytest.mark.parametrize(
    ("framework", "version", "sentence"),
    [
        ("bundled", "0.1", ["bundled trainer 0.1"]),
        ("trl", None, ["trl"]),
        ("unknown", "0.1", []),
        ("", "0.1", []),
    ],
)
def test_what_trained_it(framework: str, version: str | None, sentence: list[str]) -> None:
    run = {"framework": framework, "framework_version": version}
    assert setup_parts(read(run=run)) == sentence
    more = {**run, "model": "m", "parallelism": "DP 2", "gpus": [{"name": "H100"}]}
    assert setup_parts(read(run=more)) == ["m", "1 × H100", "DP 2", *sentence]


@pytest.mark.parametrize(
    ("share", "mid", "cost", "beyond"),
    [
        (0.51, -54.0, "", "exceeds the cost, because other ranks also wait less"),
        (0.51, -51.4, "", ""),
        (0.11, -6.8, "costs 298 ms per step (11%)", ""),
        (0.11, None, "costs 298 ms per step (11%)", ""),
        (None, -12.0, "", ""),
    ],
)
def test_a_cost_is_said_once(
    share: float | None, mid: float | None, cost: str, beyond: str
) -> None:
    predicted = {"mid": mid, "unit": "step_time_pct"}
    entry = {
        "cost": {"share": share, "seconds_per_step": 0.298},
        "fixes": [{"spelling": "--a 1", "predicted": predicted}],
    }
    (finding,) = read(findings=[entry]).findings
    assert digest.cost_beside_gain(finding) == cost
    assert digest.beyond_cost(finding, finding.fixes[0].predicted) == beyond
