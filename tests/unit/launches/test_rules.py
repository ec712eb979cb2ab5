"""Each sanity rule on a launch that has its flaw, and on one that has not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from grpo_doctor.launches import Launch, read
from grpo_doctor.launches.judge import Judged, judge
from grpo_doctor.launches.rules import load
from grpo_doctor.launches.view import Host, View
from grpo_doctor_reports.severity import SEVERITIES
from tests.unit.launches.pairs import EIGHT, PAIRS, QWEN_7B, VERL, VLLM, Pair


def launch(command: str, versions: dict[str, str], server: str | None = None) -> Launch:
    main = read([command], versions=versions)
    return main if server is None else replace(main, companions=(read([server]),))


def flaws_of(command: str, host: Host = EIGHT) -> list[Judged]:
    return list(judge(View(launch(command, {}), host, QWEN_7B)))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.rule)
def test_a_flaw_is_found_and_its_neighbour_left_alone(pair: Pair) -> None:
    rule = next(rule for rule in load() if pair.rule == rule.id)
    bad = launch(pair.fails, pair.versions, pair.fails_with)
    flaw = rule.check(View(bad, pair.host, pair.model))
    assert flaw is not None
    assert pair.words in " ".join((flaw.headline, *flaw.evidence))
    assert all(flaw.fixes)
    good = launch(pair.passes, pair.passing_versions or pair.versions, pair.passes_with)
    assert rule.check(View(good, pair.passing_host or pair.host, pair.model)) is None


def test_every_rule_has_a_pair_and_an_id_of_its_own() -> None:
    rules = load()
    assert len(rules) >= 40
    assert {pair.rule for pair in PAIRS} == {rule.id for rule in rules}
    assert len({rule.slug for rule in rules}) == len(rules)
    for rule in rules:
        title, blank, *text = rule.text.splitlines()
        assert title.endswith(".")
        assert (blank, bool(text)) == ("", True)
        assert re.fullmatch(r"GL\d{3} [a-z0-9]+(-[a-z0-9]+)+", f"{rule.id} {rule.slug}")


def test_a_sound_launch_has_nothing_grave() -> None:
    sound = VLLM + (
        "--tuner_type lora --deepspeed zero2 --sleep_level 1 --vllm_gpu_memory_utilization 0.5 "
        "--per_device_train_batch_size 4 --num_generations 8 --max_length 2048 "
        "--max_completion_length 1024 --ddp_timeout 3600 --dataset a/b --reward_funcs accuracy"
    )
    assert flaws_of(sound, Host(cards_per_node=4, card_bytes=80 << 30)) == []
    assert [judged for judged in flaws_of(VERL) if judged.flaw.ends] == []


def test_rules_say_nothing_of_an_empty_launch() -> None:
    for arguments in ([], ["--max_steps", "20"]):
        view = View(read(arguments), Host())
        assert [judged for judged in judge(view) if judged.flaw.severity == "high"] == []


@pytest.mark.parametrize("value", ["0", "-1", "99999999999", "nan", "", "abc"])
@pytest.mark.parametrize("pair", PAIRS[3:12], ids=lambda pair: pair.rule)
def test_impossible_numbers_are_judged_too(pair: Pair, value: str) -> None:
    for key in ("trainer.n_gpus_per_node", "actor_rollout_ref.rollout.n", "data.train_batch_size"):
        flaws_of(f"{pair.fails} {key}={value}" if "verl" in pair.fails else f"{pair.fails} {value}")


def test_what_ends_the_job_comes_before_the_rest_and_grave_flaws_before_light_ones() -> None:
    several = []
    for pair in PAIRS:
        bad = launch(pair.fails, pair.versions, pair.fails_with)
        flaws = [judged.flaw for judged in judge(View(bad, pair.host, pair.model))]
        ends = [flaw.ends for flaw in flaws if not flaw.first]
        graves = [
            SEVERITIES.index(flaw.severity) for flaw in flaws if not (flaw.first or flaw.ends)
        ]
        assert [flaw.first for flaw in flaws] == sorted((f.first for f in flaws), reverse=True)
        assert ends == sorted(ends, reverse=True), pair.rule
        assert graves == sorted(graves), pair.rule
        several += [len(set(ends)) > 1, len(set(graves)) > 1]
    assert any(several)


def test_what_only_the_newest_possible_version_refuses_is_no_end() -> None:
    command = (
        "NPROC_PER_NODE=7 swift rlhf --rlhf_type grpo --model m --dataset d --reward_funcs format "
        "--use_vllm true --vllm_device auto --num_generations 7 --async_generate true"
    )
    found = {j.id: j.flaw for j in flaws_of(command)}["GL039"]
    assert not found.ends
    assert found.severity == "medium"
    assert "not so in ms-swift 3.2.0, which takes these options too" in found.evidence
    stated = judge(View(launch(command, {"ms-swift": "3.6.0"}), EIGHT, QWEN_7B))
    assert {j.id: j.flaw for j in stated}["GL039"].ends


def test_what_ends_no_version_that_is_known_for_certain_is_no_end() -> None:
    command = VERL + "data.train_batch_size=4 actor_rollout_ref.actor.ppo_mini_batch_size=256 "
    strange = command + "actor_rollout_ref.rollout.n_agent=5"
    fork = "its options are of an older version or a fork, which may allow it"
    cases = ((command, "", True), (strange, "", False), (strange, "0.9.1", True))
    for text, version, ends in cases:
        versions = {"verl": version} if version else {}
        judged = judge(View(launch(text, versions), EIGHT, QWEN_7B))
        found = next(each.flaw for each in judged if each.id == "GL009")
        assert (found.ends, fork in found.evidence) == (ends, not ends)
