from __future__ import annotations

from grpo_doctor_reports.markdown import finding_markdown
from grpo_doctor_reports.schema.report import read_report


def test_hostile_words_stay_words_in_markdown() -> None:
    finding = {
        "id": "GD001", "title": "a](http://x) <b> `c`", "cause": "# not a heading",
        "fixes": [{"spelling": "``` \n# out of the fence"}],
    }  # fmt: skip
    text = finding_markdown(read_report({"schema": 1, "findings": [finding]}).findings[0])
    assert "a\\](http://x) \\<b\\> \\`c\\`" in text
    assert "Cause: \\# not a heading" in text
    assert "````\n``` \n# out of the fence\n````" in text
