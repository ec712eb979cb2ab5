from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_reports.formatting import NAME_LIMIT, clean, clean_block


@pytest.mark.parametrize(("text", "shown"), [
    ("rollout/generate", "rollout/generate"),
    ("\x1b[31mred", "␛[31mred"),
    ("del\x7f", "del␡"),
    ("\x9b31m", "⟨U+009B⟩31m"),
    ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
    ("zero\u200bwidth", "zero⟨U+200B⟩width"),
    ("two\u2028lines\r\tx", "two lines  x"),
    ("\ud800", "\ufffd"),
    ("no-break\xa0space", "no-break space"),
    ("größe ✓ 汉字", "größe ✓ 汉字"),
])  # fmt: skip
def test_invisible_characters_become_visible(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_long_names_are_cut_with_a_sign() -> None:
    assert clean("x" * 500) == "x" * (NAME_LIMIT - 1) + "…"


def test_blocks_keep_their_lines_and_nothing_else() -> None:
    assert clean_block("one\r\ntwo\x1b\u2029three\n") == "one\ntwo␛\nthree"


@given(st.text(alphabet=st.characters()))
def test_nothing_unprintable_or_directional_survives(text: str) -> None:
    shown = clean(text)
    assert shown.isprintable()
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs"}
    shown.encode("utf-8")
