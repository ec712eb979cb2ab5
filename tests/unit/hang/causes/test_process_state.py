"""Ranks that may not run, or have ended."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.causes.candidate import Sink
from grpo_doctor.hang.causes.process import unable_to_run
from grpo_doctor_probes.evidence import Limits, PythonThread, Thread
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import REWARD


@pytest.mark.parametrize(
    ("state", "how", "fix"),
    [
        ("T", "is stopped by a signal", "Resume it: kill -CONT 102"),
        ("t", "is stopped by a debugger", "Detach the debugger"),
    ],
)
def test_who_holds_a_stopped_rank(state: str, how: str, fix: str) -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, REWARD).state = state
    label = only(unable_to_run, build)
    assert label.reason.startswith(how)
    assert label.fixes[0].text.startswith(fix)


@pytest.mark.parametrize(
    ("file", "word"),
    [
        ("", None),
        ("/sys/fs/cgroup/job/cgroup.freeze", "0"),
        ("/sys/fs/cgroup/freezer/job/freezer.state", "THAWED"),
    ],
)
def test_a_frozen_rank_is_thawed_where_the_file_is_known(file: str, word: str | None) -> None:
    build = EvidenceBuilder()
    row = Limits(100, frozen=True, freezer=file)
    build.elsewhere(0, REWARD).limits = (row, row)
    label = only(unable_to_run, build)
    assert label.evidence[0].text == f"{file or 'the freezer'} reports frozen"
    assert label.confirm == (
        (f"echo {word} > {file}  # the job must resume immediately",) if word is not None else ()
    )


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({1: 9 << 8}, {1: (Sink.PROCESS, False, "is dead (exit code 9)")}),
        ({1: 9}, {1: (Sink.PROCESS, False, "is dead (killed by SIGKILL)")}),
        ({1: 77}, {1: (Sink.PROCESS, False, "is dead (killed by signal 77)")}),
        ({1: None}, {1: (Sink.ENDED, False, "is dead")}),
        ({1: 0}, {1: (Sink.ENDED, False, "exited normally (exit code 0), but others")}),
        (
            {1: 9, 2: None},
            {
                1: (Sink.PROCESS, True, "is dead; which rank died first is unknown"),
                2: (Sink.PROCESS, True, "is dead; which rank died first is unknown"),
            },
        ),
        (
            {1: 0, 2: None},
            {1: (Sink.ENDED, False, "exited normally"), 2: (Sink.ENDED, False, "is dead")},
        ),
    ],
)
def test_how_ranks_ended(
    codes: dict[int, int | None], expected: dict[int, tuple[Sink, bool, str]]
) -> None:
    build = EvidenceBuilder()
    for rank, code in codes.items():
        build.rank(rank).state, build.rank(rank).exit_code = "Z", code
    labels = {label.culprits[0]: label for label in proposed(unable_to_run, build)}
    assert labels.keys() == expected.keys()
    for rank, (sink, either, reason) in expected.items():
        assert (labels[rank].sink, labels[rank].either) == (sink, either)
        assert labels[rank].certain is (sink is Sink.PROCESS)
        assert labels[rank].reason.startswith(reason)


# A rank that is on its way out.

AT_EXIT = frames(
    "_wait_for_tstate_lock /usr/lib/python3.11/threading.py:1119",
    "_shutdown /usr/lib/python3.11/threading.py:1590",
)
UPLOADS = frames("upload /home/me/logs.py:3", "run /home/me/logs.py:9")


@pytest.mark.parametrize(
    ("threads", "words"),
    [
        ((), " and cannot exit"),
        ((UPLOADS,), " and waits for its thread at logs.py:3, upload"),
        ((UPLOADS, UPLOADS), " and cannot exit"),
    ],
)
def test_a_rank_whose_program_has_ended_waits_for_what_is_left_of_it(
    threads: tuple[Any, ...], words: str
) -> None:
    build = EvidenceBuilder()
    rank = build.elsewhere(1, AT_EXIT)
    for number, stack in enumerate(threads):
        shown = PythonThread(901 + number, "uploader", stack)
        rank.threads.append((shown, Thread(901 + number, "python", "S", "wait_woken")))
    label = only(unable_to_run, build)
    assert (label.cause, label.culprits) == ("rank-dead", (1,))
    assert label.reason == f"has left its main program, normally or by an exception,{words}"
