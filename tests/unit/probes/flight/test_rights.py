"""The reason and the remedy for each way in which tracing is refused, on a made-up /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.flight.rights import tracer_of, why_refused

ALL, NONE = "000001ffffffffff", "0000000000000000"


@pytest.mark.parametrize(
    ("capabilities", "scope", "owner", "words"),
    [
        (NONE, "1", 1000, ("ptrace_scope is 1", "SYS_PTRACE", "sysctl")),
        (NONE, "2", 1000, ("ptrace_scope is 2", "SYS_PTRACE")),
        (ALL, "3", 1000, ("ptrace_scope is 3", "nobody")),
        (NONE, "0", 0, ("belongs to user 0", "as root")),
        (NONE, None, 0, ("belongs to user 0",)),
        (NONE, "0", 1000, ("not dumpable", "SYS_PTRACE")),
        (ALL, "0", 1000, ("from the host",)),
    ],
)
def test_why(
    tmp_path: Path, capabilities: str, scope: str | None, owner: int, words: tuple[str, ...]
) -> None:
    for name, user in (("self", 1000), ("7", owner)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status").write_text(
            f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{capabilities}\nSeccomp:\t0\n"
        )
    if scope:
        (tmp_path / "scope").write_text(scope + "\n")
    said = why_refused(7, tmp_path, tmp_path / "scope")
    assert all(word in said for word in words), said


def test_a_tracer_is_named_without_its_tricks(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "8").mkdir(parents=True)
    (tmp_path / "7" / "task" / "8" / "status").write_text("Name:\tx\nTracerPid:\t99\n")
    (tmp_path / "99").mkdir()
    (tmp_path / "99" / "status").write_text("Name:\t\x1b[31mgdb\n")
    assert tracer_of(7, tmp_path) == "process 99 (\\x1b[31mgdb)"
    assert tracer_of(99, tmp_path) == ""
