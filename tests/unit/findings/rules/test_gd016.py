from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    counted,
    finding_in,
    missing,
    not_applicable,
    passed,
    run,
    value,
    with_knobs,
)

OFF = with_knobs(vllm__enable_prefix_caching=False, rollout__num_generations=8)
ON = with_knobs(vllm__enable_prefix_caching=True, rollout__num_generations=8)


def prompts(
    knobs: dict[str, object], tokens: float, *, hit: float = 0.0, queried: float = 0.0
) -> TraceBuilder:
    """So many prompt tokens per rollout, and 10,000 that are generated."""
    return counted(
        run(knobs=knobs),
        {
            "engine/prompt_tokens": tokens,
            "engine/generated_tokens": 10_000.0,
            "engine/prefix_cache_queried_tokens": queried,
            "engine/prefix_cache_hit_tokens": hit,
        },
    )


def sick() -> TraceBuilder:
    return prompts(OFF, 80_000.0)


def well() -> TraceBuilder:
    return prompts(ON, 80_000.0, queried=80_000.0, hit=68_000.0)


def test_all_but_one_of_a_group_are_computed_again() -> None:
    finding = finding_in(sick(), "GD016")
    assert value(finding, "computed again") == 70_000
    assert (finding.severity, finding.confidence, finding.cost) == ("medium", 0.8, 0.0)
    assert finding.fixes[0].spelling == "--vllm_enable_prefix_caching true"


def test_short_prompts_are_not_worth_it() -> None:
    assert "computed again" in passed(prompts(OFF, 4_000.0), "GD016")


@pytest.mark.parametrize(("tokens", "judged"), [(60_000.0, False), (160_000.0, True)])
def test_prompts_of_less_than_two_blocks_share_nothing(tokens: float, judged: bool) -> None:
    # 2,500 completions: prompts of 24 and of 64 tokens.
    build = counted(prompts(OFF, tokens), {"engine/completions_of_3_to_4_tokens": 2500.0})
    if judged:
        assert finding_in(build, "GD016").severity == "medium"
    else:
        assert "24 tokens" in passed(build, "GD016")


def test_a_cache_that_finds_them_passes() -> None:
    assert "85% of the prompt tokens" in passed(well(), "GD016")


def test_a_cache_that_finds_nothing_is_a_question() -> None:
    finding = finding_in(prompts(ON, 80_000.0, queried=80_000.0, hit=4_000.0), "GD016")
    assert value(finding, "computed again") == pytest.approx(66_000)
    assert finding.confidence == 0.6
    assert finding.fixes[0].knob is None


def test_a_cache_that_was_never_asked_is_taken_to_work() -> None:
    assert passed(prompts(ON, 80_000.0), "GD016") == "the prefix cache is on"


def test_without_counters_it_says_what_records_them() -> None:
    assert "engine/prompt_tokens" in missing(run(knobs=OFF), "GD016")


@pytest.mark.parametrize(("group", "judged"), [(2, True), (1, False), ("8", False)])
def test_two_completions_share_a_prompt(group: object, judged: bool) -> None:
    build = prompts({**OFF, "rollout.num_generations": group}, 80_000.0)
    if judged:
        assert value(finding_in(build, "GD016"), "computed again") == 40_000
    else:
        assert "more than once" in not_applicable(build, "GD016")


@pytest.mark.parametrize(("tokens", "judged"), [(32.0, True), (31.9, False)])
def test_two_blocks_can_be_shared(tokens: float, judged: bool) -> None:
    build = counted(prompts(OFF, tokens * 2500), {"engine/completions_of_3_to_4_tokens": 2500.0})
    if judged:
        assert finding_in(build, "GD016").severity == "medium"
    else:
        assert "the cache keeps whole blocks of 16" in passed(build, "GD016")


@pytest.mark.parametrize(("hit", "works"), [(35_000.0, True), (34_900.0, False)])
def test_a_cache_that_finds_half_of_what_is_shared_works(hit: float, works: bool) -> None:
    build = prompts(ON, 80_000.0, queried=80_000.0, hit=hit)
    if works:
        assert "and has 44% of the prompt tokens" in passed(build, "GD016")
    else:
        assert value(finding_in(build, "GD016"), "computed again") == 35_100
