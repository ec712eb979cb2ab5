"""Settings are read through what says whether they are facts, and documents repeat no default."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import grpo_doctor
from grpo_doctor import knobs
from grpo_doctor.document import build_document
from grpo_doctor_reports import render_text
from tests.unit.findings.registry import EXAMPLES
from tests.unit.findings.test_defaults import another_default, stripped

PACKAGE = Path(grpo_doctor.__file__).parent
# What was said as it was said: the recording itself, and that anything was said at all.
_MAY_READ_ALL = {
    "document/facts.py": 2,
    "document/memory.py": 1,
    "findings/signals.py": 1,
    "findings/view.py": 1,
    "cli/whatif.py": 2,
    "compare/settings.py": 1,
}


def test_nobody_reads_a_runs_settings_without_asking_whether_they_are_facts() -> None:
    readers = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        found = len(re.findall(r"\brun\.knobs\b", path.read_text()))
        if found and not name.startswith("trace/"):
            readers[name] = found
    assert readers == _MAY_READ_ALL


@pytest.mark.parametrize("framework", knobs.FRAMEWORKS)
@pytest.mark.parametrize("rule_id", list(EXAMPLES)[::6])
def test_a_document_of_a_run_that_says_nothing_repeats_no_default(
    framework: str, rule_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = stripped(EXAMPLES[rule_id][0]().build())
    run = replace(trace.run, framework=framework, framework_version=None, knobs={})
    trace = replace(trace, run=run)
    with monkeypatch.context() as patched:
        patched.setattr(knobs, "default", another_default)
        other = build_document(trace)
    document = build_document(trace)
    assert document.run == other.run
    assert (document.run.parallelism, document.run.knobs, document.run.model) == ("", {}, "")
    assert document.memory.longest_bytes is None
    digests = [
        render_text(msgspec.to_builtins(d), width=100, color=False) for d in (document, other)
    ]
    head, other_head = (digest.splitlines()[0] for digest in digests)
    assert head == other_head
    assert not any("LoRA" in digest or "that is allowed" in digest for digest in digests)
