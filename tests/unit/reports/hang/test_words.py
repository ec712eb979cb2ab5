"""What page and terminal say of a visit, at the edges of what a document may hold."""

from __future__ import annotations

from grpo_doctor_reports.hang import words
from tests.unit.reports.recorded import check


def test_verdicts_are_told_as_recorded() -> None:
    check("hang/said.txt")


def test_what_ends_like_a_sentence_is_no_command() -> None:
    assert words.is_command("kill -CONT 7")
    assert not words.is_command("Look at it.")
    assert not words.is_command("Does it move?")
