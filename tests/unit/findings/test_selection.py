from __future__ import annotations

import pytest

from grpo_doctor.errors import UsageError
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.selection import choose, find


def ids(*words: str, ignore: tuple[str, ...] = ()) -> list[str]:
    return [rule.RULE.id for rule in choose(words, ignore).chosen]


def test_without_words_every_rule_runs() -> None:
    assert choose().chosen == ALL
    assert choose().left_out == ()


def test_a_rule_has_three_kinds_of_name() -> None:
    assert ids("GD004") == ids("gd004") == ids("straggler-rank") == ["GD004"]
    assert set(ids("visibility")) == {"GD005", "GD075"}
    assert ids("GD00") == [f"GD00{n}" for n in range(1, 7)]


def test_a_word_finds_what_it_names_and_nothing_else() -> None:
    assert [rule.RULE.id for rule in find("gd004")] == ["GD004"]
    assert [rule.RULE.id for rule in find("Visibility")] == ["GD005", "GD075"]
    assert find("GD") == ALL
    for longer in ("GD0045", "XGD004", ""):
        with pytest.raises(UsageError):
            find(longer)


def test_what_is_left_out_is_kept_with_the_reason() -> None:
    chosen = choose(["GD00"], ["GD004"])
    reasons = {rule.id: entry.reason for rule, entry in chosen.left_out}
    assert len(chosen.chosen) + len(reasons) == len(ALL)
    assert reasons["GD004"] == "skipped by --ignore"
    assert set(reasons.values()) <= {"skipped by --ignore", "not in --select"}


def test_a_word_that_names_nothing_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no rule is called 'stragler-rank'. Did you mean strag"):
        choose(["stragler-rank"])
    with pytest.raises(UsageError, match="Did you mean GD004"):
        find("4")
    for word in ("zzz", "GD9"):
        with pytest.raises(UsageError, match="`grpo-doctor rule` lists all"):
            find(word)
