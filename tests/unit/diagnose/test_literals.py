"""Texts that are not searched have no match."""

from __future__ import annotations

import re

from grpo_doctor.diagnose.literals import letters, may_match
from grpo_doctor.diagnose.signatures import signatures


def test_no_example_is_left_out() -> None:
    for row in signatures():
        of_text = letters(f"x 1\n{row.example}\nx 2")
        assert all(may_match(each, of_text) for each in (row.pattern, *row.also))


def test_what_a_pattern_needs() -> None:
    of_text = letters("Rank 17 waits\nRank 18 waits\n")
    assert of_text.count("rank") == 1
    for pattern, may in (
        (r"Rank (\d+) waits", True),
        (r"(?:Rank|Host) 7", True),
        (r"(?i:RANK)", True),
        (r"(?:Host|Node) \d+", False),
        (r"(?:GPU)?\s+lost", False),
    ):
        assert may_match(pattern, of_text) is may
        assert may or not re.search(pattern, "Rank 17 waits\nRank 18 waits\n")
