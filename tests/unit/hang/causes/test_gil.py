"""Calls into C that keep Python's global lock."""

from __future__ import annotations

from tests.evidence import EvidenceBuilder
from tests.verdicts import UPDATE, expect


def test_a_c_call_that_keeps_the_gil() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.owns_gil, process.wchan = True, "hrtimer_nanosleep"
    expect(build, "gil-held", 1)
