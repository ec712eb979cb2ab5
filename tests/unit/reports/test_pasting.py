# ruff: noqa: RUF001 (the minus sign is what a report prints)
from __future__ import annotations

from grpo_doctor_reports.markdown import finding_markdown
from grpo_doctor_reports.schema.report import read_report
from tests.demo_reports import DEMOS


def test_a_finding_as_markdown_has_cost_evidence_fix_and_gain() -> None:
    text = finding_markdown(read_report(DEMOS["slow"]()).findings[1])
    for words in (
        "**GD007 The optimizer is offloaded",
        "Costs 4.67 s per step (9.7%), 18.6 GPU-hours per day, $46.56 per day.",
        "- offload, mean per step: 4.70 s (spans)",
        "```\n--offload_optimizer false\n```",
        "step time −12% (−13% to −8.1%); same math",
    ):
        assert words in text, words


def test_hostile_words_stay_words_in_markdown() -> None:
    finding = {
        "id": "GD001", "title": "a](http://x) <b> `c`", "cause": "# not a heading",
        "fixes": [{"spelling": "``` \n# out of the fence"}],
    }  # fmt: skip
    text = finding_markdown(read_report({"schema": 1, "findings": [finding]}).findings[0])
    assert "a\\](http://x) \\<b\\> \\`c\\`" in text
    assert "Cause: \\# not a heading" in text
    assert "````\n``` \n# out of the fence\n````" in text
