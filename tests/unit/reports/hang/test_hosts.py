"""Hosts are shown where there are several, and nowhere else; a thousand ranks stay readable."""

from __future__ import annotations

from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text
from tests.demo_verdicts import VISITS


def text(name: str) -> str:
    return hang_text(VISITS[name](), width=100, color=False)


def page(name: str) -> str:
    return hang_page(VISITS[name]()).decode()


def test_each_rank_has_its_host() -> None:
    output = text("hosts16")
    assert "rank 11 (pid 4711 on gpu-001)" in output
    assert "gpu-001  ranks 8-15" in output
    assert "<td>gpu-001</td>" in page("hosts16")
    assert "rank 11 on gpu-001" in page("hosts16").partition("<svg")[2].partition("</svg>")[0]


def test_of_one_host_nothing_is_said_about_hosts() -> None:
    assert "Hosts" not in text("stopped64")
    assert ">Host<" not in page("stopped64")


def test_a_thousand_ranks_are_a_screen_and_a_small_page() -> None:
    output = text("hosts1024")
    assert "ranks 0-512, 514-1023" in output
    assert "128 hosts" in output
    assert len(output.splitlines()) < 60
    assert len(page("hosts1024")) < 60_000


def test_ranks_of_other_hosts_are_listed_once_and_the_command_is_whole() -> None:
    output = text("elsewhere")
    assert output.count("missing") == 1
    assert "  grpo-doctor attach --slurm 4711\n" in output
