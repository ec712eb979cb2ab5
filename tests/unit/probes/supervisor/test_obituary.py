"""Who died first, in words."""

from __future__ import annotations

import signal

import pytest

from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.obituary import as_facts, obituary

S = 1_000_000_000


def rank(number: int, at_s: float, status: int | None, **more: object) -> Death:
    subject = Subject(100 + number, f"rank {number}", number)
    return Death(subject, round(at_s * S), status, **more)  # type: ignore[arg-type]


def helper(at_s: float, status: int | None, *, serves: bool = False, oom_kills: int = 0) -> Death:
    role = "the rollout engine" if serves else "a helper (gcc)"
    return Death(Subject(7, role, None, serves), round(at_s * S), status, oom_kills)


def test_the_first_is_named_with_signal_phase_and_memory() -> None:
    deaths = [rank(0, 10.4, 1 << 8), rank(1, 10.0, signal.SIGKILL, oom_kills=1)]
    first, then = obituary(deaths, {101: "reward"})
    assert first == (
        "rank 1 (pid 101) died first, by SIGKILL, while in reward; "
        "the kernel killed it for memory (memory.events oom_kill +1)"
    )
    assert then == "then rank 0 (pid 100) 0.4 s later, with exit code 1"


def test_the_kernels_own_words_are_told_where_the_group_has_no_counter() -> None:
    killed = rank(
        1, 10.0, signal.SIGKILL, kernel="Out of memory: Killed process 101 (python)\x1b[2J"
    )
    (sentences,) = obituary([killed], {})
    assert sentences.endswith("the kernel says: Out of memory: Killed process 101 (python)?[2J")


def test_an_engine_that_ended_before_is_told() -> None:
    sentences = obituary([helper(7.0, signal.SIGSEGV, serves=True), rank(0, 10.0, 1 << 8)], {})
    assert sentences[0] == "the rollout engine (pid 7) died first, by SIGSEGV"
    sentences = obituary([helper(7.0, signal.SIGKILL, serves=True), rank(0, 10.0, 1 << 8)], {})
    assert sentences == [
        "rank 0 (pid 100) ended first, with exit code 1",
        "the rollout engine (pid 7) had ended 3.0 s before that, by SIGKILL",
    ]


def test_helpers_that_a_failing_rank_ends_are_no_cause() -> None:
    sentences = obituary([helper(9.9, signal.SIGKILL), rank(0, 10.0, 1 << 8)], {})
    assert sentences == ["rank 0 (pid 100) ended first, with exit code 1"]
    (first, _) = obituary([helper(9.9, signal.SIGKILL, oom_kills=2), rank(0, 10, 1 << 8)], {})
    assert first.startswith("a helper (gcc) (pid 7) died first, by SIGKILL; the kernel killed it")


@pytest.mark.parametrize(
    ("earlier_s", "serves", "mentioned"),
    [(60.0, True, True), (60.1, True, False), (1.0, False, False), (0.0, True, True)],
)
def test_a_helper_that_ended_shortly_before_is_told_if_ranks_need_it(
    earlier_s: float, *, serves: bool, mentioned: bool
) -> None:
    engine = helper(100.0 - earlier_s, 3 << 8, serves=serves)
    sentences = obituary([engine, rank(0, 100.0, 1 << 8)], {})
    before = f"the rollout engine (pid 7) had ended {earlier_s:.1f} s before that, with exit code 3"
    assert sentences[1:] == [before] * mentioned


@pytest.mark.parametrize(
    ("status", "kernel", "cause"),
    [
        (signal.SIGSEGV, "", True),
        (signal.SIGABRT, "", True),
        (signal.SIGKILL, "", False),
        (signal.SIGTERM, "", False),
        (1 << 8, "", False),
        (signal.SIGKILL, "Out of memory: Killed process 7 (gcc)", True),
    ],
)
def test_of_what_a_helper_must_die_to_be_the_first(
    status: int, kernel: str, *, cause: bool
) -> None:
    death = Death(Subject(7, "a helper (gcc)"), 9 * S, status, kernel=kernel)
    first, *_ = obituary([rank(0, 10.0, 1 << 8), death], {})
    assert first.startswith("a helper (gcc) (pid 7) died first" if cause else "rank 0 (pid 100)")


@pytest.mark.parametrize(
    ("status", "words"),
    [(5 << 8, "ended first, with exit code 5"), (None, "ended first, cause unknown")],
)
def test_an_exit_code_or_an_unknown_end_is_no_death(status: int | None, words: str) -> None:
    assert obituary([rank(2, 1, status)], {}) == [f"rank 2 (pid 102) {words}"]


@pytest.mark.parametrize(
    ("followers", "words"), [(1, ""), (3, ""), (4, " and 1 more"), (8, " and 5 more")]
)
def test_three_followers_are_named(followers: int, words: str) -> None:
    first, then = obituary([rank(n, 10 + n, signal.SIGTERM) for n in range(followers + 1)], {})
    assert first == "rank 0 (pid 100) died first, by SIGTERM"
    listed = [
        f"rank {n} (pid {100 + n}) {n}.0 s later, by SIGTERM" for n in range(1, followers + 1)
    ]
    assert then == f"then {', '.join(listed[:3])}{words}"


def test_followers_are_ranks_that_failed() -> None:
    deaths = [rank(0, 10, 1 << 8), helper(11, signal.SIGSEGV), rank(1, 12, 0), rank(2, 13, None)]
    assert obituary(deaths, {})[1:] == ["then rank 2 (pid 102) 3.0 s later, cause unknown"]
    assert len(obituary(deaths[:3], {})) == 1


@pytest.mark.parametrize("deaths", [[], [rank(0, 1, 0)], [helper(1, None)]])
def test_nothing_is_said_of_a_good_end(deaths: list[Death]) -> None:
    assert obituary(deaths, {}) == []


def test_all_that_is_known_of_a_death_is_a_fact() -> None:
    killed = rank(1, 2, signal.SIGKILL, oom_kills=1, kernel="Out of memory")
    assert as_facts([rank(0, 3, 5 << 8), killed], {101: "train"}) == [
        {
            "pid": 101, "role": "rank 1", "rank": 1, "at_ns": 2 * S, "wait_status": 9,
            "signal": "SIGKILL", "phase": "train", "oom_kills": 1, "kernel": "Out of memory",
        },
        {
            "pid": 100, "role": "rank 0", "rank": 0, "at_ns": 3 * S, "wait_status": 5 << 8,
            "signal": None, "phase": None, "oom_kills": 0, "kernel": None,
        },
    ]  # fmt: skip
