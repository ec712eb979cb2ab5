"""Hosts are shown where there are several, and nowhere else; a thousand ranks stay readable."""

from __future__ import annotations

from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text
from tests.demo_verdicts import VISITS


def text(name: str) -> str:
    return hang_text(VISITS[name](), width=100, color=False)


def page(name: str) -> str:
    return hang_page(VISITS[name]()).decode()


def test_a_thousand_ranks_are_a_screen_and_a_small_page() -> None:
    output = text("hosts1024")
    assert "ranks 0-512, 514-1023" in output
    assert "128 hosts" in output
    assert len(output.splitlines()) < 60
    assert len(page("hosts1024")) < 60_000
