"""What strangers wrote, made fit to print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_probes.procs.printable import COMMAND_LIMIT, printable, printable_command


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb\n\u202ec\x9b\ud800", "a?[2Jb?c?"),
        (b"a\x1b[31m\nb\xff", "a?[31m?b\ufffd"),
        ("name\udcff\u202e", "name?"),
        ("  indented\r\n", "  indented?"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
)
def test_one_harmless_line(text: bytes | str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()) | st.binary(), st.integers(1, 40))
def test_nothing_that_steers_a_terminal_is_left(text: bytes | str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    shown.encode()


def test_what_is_cut_says_so() -> None:
    assert printable("x" * 500, 10) == "x" * 9 + "…"
    assert printable("x" * 10, 10) == "x" * 10


def test_a_command_has_no_secrets() -> None:
    command = ("python", "t.py", "--api_key", "s3cret", "x" * 1000)
    assert "s3cret" not in printable_command(command)
    assert len(printable_command(command)) == COMMAND_LIMIT
