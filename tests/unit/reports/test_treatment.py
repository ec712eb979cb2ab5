"""The card of `treat`: as a page and as Markdown, whatever is in its texts."""

from __future__ import annotations

from grpo_doctor_reports.schema.treat import ChangeEntry, Percent, TreatDocument, TrialEntry
from grpo_doctor_reports.treatment import treatment_markdown, treatment_page

HOSTILE = "<script>alert(1)</script> | `x` \x1b[31m"
CARD = TreatDocument(
    verdict="Kept --x 1: step time -40%.",
    framework="trl",
    framework_version="1.16.0",
    steps=8,
    warmup=1,
    spent_s=90.0,
    state="ended",
    changes=[
        ChangeEntry(index=0, text="--y 1", state="refused", why=HOSTILE, title=HOSTILE),
        ChangeEntry(
            index=1, text="--x 1", finding="GD002", title="Slow", math="same-math",
            risk="More memory.", state="kept", why="a gain", pairs=2, as_predicted=True,
            predicted=Percent(low=-50, mid=-40, high=-30),
            measured=Percent(low=-45, mid=-40, high=-35),
        ),
    ],
    trials=[TrialEntry(number=1, side="after", change=1, state="failed", why=HOSTILE)],
    result=["--x", "1"],
    next_step=HOSTILE,
)  # fmt: skip


def test_markdown_has_what_was_kept_first_with_both_numbers() -> None:
    text = treatment_markdown(CARD)
    minus = "\N{MINUS SIGN}"
    assert text.index("**kept** `--x 1`") < text.index("**refused**")
    assert f"predicted {minus}40% ({minus}50% to {minus}30%)" in text
    assert f"measured {minus}40% ({minus}45% to {minus}35%) in 2 pairs" in text
    assert "as predicted. More memory." in text
    assert "grpo-doctor run -- --x 1" in text
    assert "\x1b" not in text
    assert "<script>" not in text.replace("\\<script\\>", "")


def test_a_page_runs_nothing_of_its_texts() -> None:
    page = treatment_page(CARD).decode()
    assert "<script>alert" not in page
    assert "trl 1.16.0" in page


def test_a_card_that_has_only_begun() -> None:
    assert treatment_page(TreatDocument())
    assert treatment_markdown(TreatDocument()).startswith("# grpo-doctor treat")
