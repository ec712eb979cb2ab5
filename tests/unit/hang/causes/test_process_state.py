"""Ranks that may not run, or have ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes.candidate import Sink
from grpo_doctor.hang.causes.process import unable_to_run
from grpo_doctor_probes.evidence import Blocked, Limits, LogTail, PythonThread, Thread
from tests.evidence import EvidenceBuilder, FakeProcess, collective, frames, without_communication
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import REWARD, UPDATE, expect, verdict


def test_a_stopped_rank() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, REWARD)
    process.state, process.wchan = "T", "do_signal_stop"
    diagnosis = expect(build, "rank-stopped", 2)
    assert diagnosis.verdict.summary == (
        "Rank 2 is stopped (SIGSTOP) in reward (rewards.py:31, check); "
        "ranks 0, 1, 3 wait for it in all_reduce."
    )
    assert diagnosis.verdict.victims == (0, 1, 3)
    assert diagnosis.verdict.confirm == ("kill -CONT 102  # the job must resume immediately",)
    assert diagnosis.verdict.phase == "reward"


def test_two_stopped_ranks() -> None:
    build = EvidenceBuilder()
    for rank in (1, 3):
        build.elsewhere(rank, REWARD).state = "T"
    outcome = expect(build, "rank-stopped", 1, 3).verdict
    assert outcome.summary.startswith("Ranks 1, 3 are stopped")
    assert outcome.summary.endswith("ranks 0, 2 wait for them in all_reduce.")


def test_a_frozen_rank_proposes_to_thaw_it() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, REWARD)
    file = "/sys/fs/cgroup/job/cgroup.freeze"
    process.limits = (Limits(100, True, file), Limits(100, True, file))
    (line,) = expect(build, "rank-stopped", 0).verdict.confirm
    assert line.startswith(f"echo 0 > {file}")


def test_a_dead_rank() -> None:
    build = EvidenceBuilder()
    process = build.rank(3)
    process.state, process.exit_code = "Z", 9
    diagnosis = expect(build, "rank-dead", 3, state="dead")
    assert "killed by SIGKILL" in diagnosis.verdict.summary


def test_a_rank_that_is_gone() -> None:
    build = EvidenceBuilder()
    build.lose(1)
    expect(build, "rank-dead", 1, state="dead")


def test_a_rank_killed_for_memory() -> None:
    build = EvidenceBuilder()
    build.rank(3).state = "Z"
    build.kernel = [(9.0, "Memory cgroup out of memory: Killed process 103 (python)")]
    expect(build, "oom-killed", 3, state="dead")


def test_a_helper_that_outlived_its_rank_is_not_the_rank() -> None:
    build = EvidenceBuilder()
    helper = without_communication(build, 2)
    helper.member = replace(helper.member, parent=1)
    expect(build, "rank-dead", 2, state="dead")


def test_of_several_that_are_gone_who_was_first_may_not_be_known() -> None:
    """Rank 1 was killed and its launcher's caller took the status; rank 0 raised because of it."""
    build = EvidenceBuilder(2)
    for rank, code in ((0, 1 << 8), (1, None)):
        build.rank(rank).state, build.rank(rank).exit_code = "Z", code
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("dead", "rank-dead", (0, 1))
    assert "which rank died first is unknown" in outcome.summary
    assert "exit code" not in outcome.summary
    assert outcome.certainty == "possible"


def test_a_rank_that_ends_while_the_others_go_on_is_the_end_of_the_job_perhaps() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        build.elsewhere(rank, UPDATE).works(UPDATE)
    build.rank(1).state, build.rank(1).exit_code = "Z", 0
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "", ())
    assert outcome.summary.startswith("Rank 1 exited during the inspection, and 3 others continue")


def test_a_rank_without_a_stack_does_not_compute_without_end() -> None:
    build = EvidenceBuilder()
    build.rank(1).state, build.rank(1).exit_code = "Z", None
    for rank in (0, 2, 3):
        build.elsewhere(rank, ()).works((), moves=False)
    assert verdict(build).cause != "user-code-busy"


@pytest.mark.parametrize(
    ("state", "how", "fix"),
    [
        ("T", "is stopped (SIGSTOP)", "Resume it: kill -CONT 102"),
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
        assert labels[rank].reason.startswith(reason)


def test_the_last_words_are_those_of_the_rank_s_own_log() -> None:
    build = EvidenceBuilder()
    build.rank(1).state, build.rank(1).exit_code = "Z", 256
    build.logs = [
        LogTail(101, "a", 5.0, ("one", "two", "three", "four")),
        LogTail(102, "b", 5.0, ("of another",)),
    ]
    words = [item.text for item in only(unable_to_run, build).evidence if item.source == "log"]
    assert words == ["two", "three", "four"]


# A helper that outlived its rank.


def left_over() -> EvidenceBuilder:
    build = EvidenceBuilder()
    helper = without_communication(build, 2)
    helper.member = replace(helper.member, parent=1)
    return build


def communicates(process: FakeProcess, tid: int) -> None:
    gloo = Thread(tid, "pt_gloo_runloop", "S", last_ran_ns=1)
    process.threads = [(PythonThread(tid, "", ()), gloo)]


def is_left_over(build: EvidenceBuilder) -> bool:
    labels = proposed(unable_to_run, build)
    assert all("is still running" in label.reason for label in labels)
    return bool(labels)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("as it is", True),
        ("it communicates", False),
        ("it waits", False),
        ("another one does not communicate", False),
        ("another one is at work", True),
        ("started by the launcher of the others", False),
        ("the others join", False),
        ("the others ask the store", False),
    ],
)
def test_a_process_in_a_rank_s_place_that_is_only_its_helper(how: str, expected: bool) -> None:
    build = left_over()
    if how == "it communicates":
        communicates(build.rank(2), 902)
    elif how == "it waits":
        build.rank(2).stack = collective("all_reduce")
    elif how == "another one does not communicate":
        build.rank(1).threads = []
    elif how == "another one is at work":
        build.elsewhere(1, UPDATE).works(UPDATE)
        communicates(build.rank(1), 901)
    elif how == "started by the launcher of the others":
        build.rank(2).member = replace(build.rank(2).member, parent=99)
    elif how == "the others join":
        build.rank(1).stack = frames(
            "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
            "main /home/me/train.py:5",
        )
    if how == "the others ask the store":
        evidence = build.build()
        row = Blocked(101, 101, "socket-receive", target="10.0.0.1:5 -> 10.0.0.1:29500")
        asks = replace(evidence, job=replace(evidence.job, address="a:29500"), blocked=(row,))
        assert proposed(unable_to_run, asks) == ()
    else:
        assert is_left_over(build) == expected


def test_one_at_work_that_does_not_communicate_says_nothing_of_the_others() -> None:
    build = left_over()
    build.elsewhere(1, UPDATE).works(UPDATE)
    build.rank(1).threads = []
    labels = {label.culprits: label.reason for label in proposed(unable_to_run, build)}
    assert "is still running" in labels[2,]


def test_a_process_whose_threads_can_t_be_seen_is_the_rank() -> None:
    evidence = left_over().build()
    looks = tuple(
        replace(
            look,
            processes=tuple(
                replace(process_look, threads=()) if process_look.pid == 102 else process_look
                for process_look in look.processes
            ),
        )
        for look in evidence.looks
    )
    assert proposed(unable_to_run, replace(evidence, looks=looks)) == ()


@pytest.mark.parametrize(
    ("codes", "of_nobody", "how"),
    [
        ((9,), True, " (killed by SIGKILL)"),
        ((9,), False, ""),
        ((9, 256), True, ""),  # which of the two it was is not known
        ((), True, ""),
    ],
)
def test_how_a_rank_ended_is_told_by_the_only_one_that_has(
    codes: tuple[int, ...], of_nobody: bool, how: str
) -> None:
    build = left_over()
    for pid, code in enumerate(codes, start=300):
        ended = build.child(0, "helper", pid=pid)
        ended.state, ended.exit_code = "Z", code
        if of_nobody:
            ended.member = replace(ended.member, rank=None)
    assert only(unable_to_run, build).reason.startswith(f"is dead{how}; only its child process 102")


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


@pytest.mark.parametrize("how", ["works", "in its own function", "nobody waits"])
def test_a_rank_that_is_at_work_or_not_missed_has_not_left(how: str) -> None:
    build = EvidenceBuilder()
    rank = build.elsewhere(1, AT_EXIT)
    if how == "works":
        rank.works(AT_EXIT, moves=False)
    elif how == "in its own function":
        rank.stack = frames("_shutdown /home/me/pool.py:3")
    else:
        for other in (0, 2, 3):
            build.elsewhere(other, UPDATE)
    assert proposed(unable_to_run, build) == ()
