from __future__ import annotations

import pytest

from grpo_doctor_reports import render_html
from grpo_doctor_reports.page import is_linkable


def is_linked(page: str) -> bool:
    html = render_html({"schema": 1, "hangs": [{"page": page, "headline": "h"}]})
    return 'class="hang-page"' in html


@pytest.mark.parametrize("path", [
    "javascript:alert(1)", "https://evil.example/a.html", "//evil.example/a.html", "/etc/a.html",
    "../a.html", "hangs/../../a.html", "a.html#x", "a.html\n", ".hidden/a.html", "", "hangs/0",
])  # fmt: skip
def test_a_hang_page_that_is_not_below_the_report_is_no_link(path: str) -> None:
    assert not is_linkable(path)
    assert not is_linked(path)


def test_a_hang_page_below_the_report_is_a_link() -> None:
    page = "hangs/20261121-100000/report.html"
    assert is_linkable(page)
    assert is_linked(page)
