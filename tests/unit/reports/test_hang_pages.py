from __future__ import annotations

import pytest

from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.model import HangPage


def read(page: str) -> HangPage:
    return read_document({"schema": 1, "hangs": [{"page": page, "headline": "h"}]}).hangs[0]


@pytest.mark.parametrize(
    "path",
    [
        "javascript:alert(1)",
        "https://evil.example/a.html",
        "//evil.example/a.html",
        "/etc/a.html",
        "../a.html",
        "hangs/../../a.html",
        "a.html#x",
        "a.html\n",
        ".hidden/a.html",
        "",
        "hangs/0",
    ],
)
def test_a_hang_page_that_is_not_below_the_report_is_no_link(path: str) -> None:
    assert read(path).page == ""


def test_a_hang_page_below_the_report_is_a_link() -> None:
    page = "hangs/20261121-100000/report.html"
    assert read(page).page == page
