"""What `run` says when the job has ended, and `attach --dumps` of files it can't use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from grpo_doctor.cli import attach_evidence as dumped
from grpo_doctor.cli import finish


@pytest.mark.parametrize(
    ("trace", "report", "lines"),
    [
        (None, None, []),
        ("t.json", None, ["trace   t.json", "report it with: grpo-doctor report run"]),
        ("t.json", "r.html", ["trace   t.json", "report  r.html"]),
        (None, "r.html", ["report  r.html"]),
    ],
)
def test_results_that_were_written(
    trace: str | None, report: str | None, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(finish, "inform", messages.append)
    paths = [Path(name) if name else None for name in (trace, report)]
    finish._say_results(Path("run"), *paths)
    assert messages == lines


@pytest.mark.parametrize(
    ("code", "signal", "lines"),
    [
        (0, None, ["a remark"]),
        (3, None, ["a remark", "the job failed, exit code 3"]),
        (137, "SIGKILL", ["a remark", "the job failed (SIGKILL), exit code 137"]),
    ],
)
def test_how_the_job_ended(
    code: int, signal: str | None, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(finish, "say", messages.append)
    end: Any = SimpleNamespace(state="failed", code=code, signal=signal)
    finish._say_end(end, cast(Any, SimpleNamespace(remarks=("a remark",))))
    assert messages == lines


@pytest.mark.parametrize(
    ("megabytes", "lines"),
    [
        (49.999, []),
        (50.0, ["reading 1 dumps, 50 MB: about 7 s ..."]),
        (56.0, ["reading 1 dumps, 56 MB: about 7 s ..."]),
    ],
)
def test_a_wait_of_seconds_is_told(
    megabytes: float, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(dumped, "inform", messages.append)
    data = range(round(megabytes * 1e6))
    dumped._tell_of_a_wait(cast(Any, SimpleNamespace(dumps=(SimpleNamespace(data=data),))))
    assert messages == lines


@pytest.mark.parametrize(("count", "last"), [(40, "  39 is empty"), (41, "  and 1 more")])
def test_forty_files_that_are_no_dumps_are_named(count: int, last: str) -> None:
    problems = cast(
        Any, tuple(SimpleNamespace(source=f"file:{n}", what="is empty") for n in range(count))
    )
    lines = dumped._nothing_usable(Path("x"), problems).splitlines()
    assert lines[0] == "--dumps x: no file there is a usable flight-recorder dump."
    assert lines[1] == "  0 is empty"
    assert lines[-1] == last
    assert len(lines) == 1 + min(count, 41)
