"""The words on jobs that get on, or may: waking up from a time-out is no progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.render.verdicts import ending, healthy, slow_work
from grpo_doctor.hang.decision.state import stall_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.view import WaitHistory
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import EngineLook, FlightDump, Frame, PythonThread, Thread
from tests.evidence import BETWEEN_S, FIRST_NS, SECOND, UNIX_NS, EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import case_of
from tests.verdicts import REWARD, UPDATE, verdict

LOOP = frames("select /usr/lib/python3.11/selectors.py:468", "play /home/me/agents.py:40")


def ticking(*, share: float = 0.0) -> EvidenceBuilder:
    """All ranks wake five times a second; `share` of a core is what they do then."""
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        process = build.elsewhere(rank, LOOP)
        process.still_s, process.wakes, process.cpu_share = 0.1, 6, share
    return build


def test_ranks_that_only_wake_up_are_not_called_healthy() -> None:
    outcome = verdict(ticking())
    assert (outcome.state, outcome.culprits) == ("slow", ())
    assert "they woke now and then and did nothing" in outcome.summary


def test_to_use_some_of_a_core_is_no_progress() -> None:
    """Who asks again and again, for ever, does so too."""
    assert verdict(ticking(share=0.1)).state == "slow"


def test_ranks_whose_helper_works_get_on() -> None:
    build = ticking()
    build.child(0, "helper", pid=500).works(frames("step /home/me/engine.py:3"))
    assert verdict(build).state == "healthy"


def test_ranks_whose_engine_brings_out_tokens_get_on() -> None:
    build = ticking()
    build.child(0, "server", pid=500).still_s = 0.1
    build.engines = [(_counts(0, 40.0),), (_counts(1, 90.0),)]
    assert verdict(build).state == "healthy"


def _counts(look: int, tokens: float) -> EngineLook:
    at_ns = UNIX_NS + int(look * BETWEEN_S * 10**9)
    values = {"num_requests_running": 3.0, "generation_tokens_total": tokens}
    return EngineLook(500, at_ns, "http://127.0.0.1:8000", values)


def test_a_wait_that_is_long_for_the_job_and_may_end_is_not_called_usual() -> None:
    build = EvidenceBuilder()
    build.waited_s = 40.0
    asks = build.elsewhere(1, frames("sleep_on /home/me/t.py:3", "clip /home/me/train.py:31"))
    asks.still_s, asks.wakes = 0.1, 9
    asks.blocks("sleep")
    outcome = verdict(build)
    assert outcome.state == "slow"
    assert "40 s; longest previous wait was 0.1 s; it may end" in outcome.summary


def test_the_words_do_not_depend_on_the_order_of_processes() -> None:
    build = ticking()
    summary = diagnose(build.build({100: 3, 101: 1, 102: 2, 103: 0})).verdict.summary
    assert summary == verdict(ticking()).summary


def words(build: EvidenceBuilder, waited_s: float | None = 0.4) -> Verdict:
    """Of a job in which nothing stands for longer than a moment."""
    case = case_of(build)
    return healthy(replace(case.view, wait_history=WaitHistory(waited_s)), case.graph)


def working(ranks: int, at_work: int) -> EvidenceBuilder:
    """So many of the ranks are at work in their rewards, the others in a collective."""
    build = EvidenceBuilder(ranks=ranks, recorded=False)
    for rank in range(ranks):
        build.rank(rank).still_s = 0.4
        if rank < at_work:
            build.rank(rank).works(REWARD)
    return build


@pytest.mark.parametrize(
    ("ranks", "at_work", "text"),
    [
        (1, 1, "the only rank made progress between two samples"),
        (2, 2, "both ranks made progress between two samples"),
        (4, 4, "all 4 ranks made progress between two samples"),
        (
            4,
            3,
            ("3 of 4 ranks made progress between two samples, the others have waited for 0.4 s"),
        ),
        (
            2,
            1,
            ("1 of 2 ranks made progress between two samples, the others have waited for 0.4 s"),
        ),
    ],
)
def test_how_many_got_on(ranks: int, at_work: int, text: str) -> None:
    sentence = words(working(ranks, at_work))
    assert (sentence.state, sentence.summary) == ("healthy", f"The job is healthy: {text}.")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("still", "no rank has made progress for 0.4 s, which is not unusual yet"),
        ("busy", "no rank made visible progress: some use a core at one line"),
        ("polling", "no rank made visible progress: they woke now and then and did nothing"),
    ],
)
def test_what_ranks_did_that_were_not_seen_to_get_on(how: str, text: str) -> None:
    build = working(2, 0)
    if how == "busy":
        build.rank(0).works(REWARD, moves=False)
    elif how == "polling":
        build.rank(0).wakes = 6
    sentence = words(build)
    assert sentence.state == "slow"
    assert sentence.summary.startswith(f"Slow: {text}")


@pytest.mark.parametrize("recorded", [True, False])
def test_a_recorder_that_never_stands_still_shows_progress(recorded: bool) -> None:
    build = working(2, 0)
    build.rank(0).wakes = build.rank(1).wakes = 60
    dump = FlightDump("memory", 0, 100, problem="busy", recorded_meanwhile=recorded)
    said = diagnose(replace(build.build(), dumps=(dump,))).verdict
    assert (said.state == "healthy") is recorded
    assert ("started collectives between two samples" in said.summary) is recorded


def test_a_wait_that_nobody_measured_is_said_to_be_of_no_time() -> None:
    assert "made progress for 0.0 s" in words(working(2, 0), None).summary


@pytest.mark.parametrize("works", [True, False])
def test_ranks_that_can_t_be_seen_are_hidden_unless_one_gets_on(works: bool) -> None:
    build = working(2, 1 if works else 0)
    build.rank(1).works((), moves=False)
    text = words(build)
    assert (text.cause, text.state) == (("", "healthy") if works else ("unknown", "slow"))


@pytest.mark.parametrize(
    ("stack", "wakes", "share", "threads", "progressed"),
    [
        (collective("all_reduce"), 50, 0.1, (), True),
        (collective("all_reduce"), 50, 0.0, (), False),  # it woke and did nothing
        (collective("all_reduce"), 0, 0.1, (), False),  # it did not wake
        (UPDATE, 50, 0.1, (), False),  # nobody else wakes it
        (collective("all_reduce"), 50, 0.1, ("pt_nccl_watchdg",), False),  # its GPU may
    ],
)
def test_a_host_that_others_wake_in_a_collective_gets_on(
    stack: tuple[Frame, ...], wakes: int, share: float, threads: tuple[str, ...], progressed: bool
) -> None:
    build = EvidenceBuilder(ranks=2, recorded=False)
    for rank in (0, 1):
        process = build.rank(rank)
        process.stack, process.still_s = stack, 0.1
        process.wakes, process.cpu_share = wakes, share
        for number, name in enumerate(threads):
            shown = PythonThread(900 + number, "", ())
            process.threads.append((shown, Thread(900 + number, name, "S", last_ran_ns=1)))
    assert (words(build).state == "healthy") is progressed


@pytest.mark.parametrize(
    ("ran_s", "progressed"),
    [(0.5, True), (BETWEEN_S - 0.01, True), (BETWEEN_S, False), (2.0, False)],
)
def test_a_thread_in_a_task_that_ran_between_the_looks_gets_on(
    ran_s: float, progressed: bool
) -> None:
    build = EvidenceBuilder(ranks=1, recorded=False)
    loop = frames(
        "select /usr/lib/python3.11/selectors.py:468",
        "run /usr/lib/python3.11/asyncio/runners.py:190",
    )
    process = build.elsewhere(0, (*loop, *UPDATE))
    process.still_s, process.wakes = 0.05, 6
    pool = "_worker /usr/lib/python3.11/concurrent/futures/thread.py:83"
    ran_ns = FIRST_NS + int((BETWEEN_S - ran_s) * SECOND)
    shown = PythonThread(600, "asyncio_0", (*UPDATE, *frames(pool)))
    process.threads = [(shown, Thread(600, "python", "S", "futex_do_wait", last_ran_ns=ran_ns))]
    assert (words(build).state == "healthy") is progressed


@pytest.mark.parametrize(
    ("parent", "linked", "progressed"), [(100, False, True), (1, True, True), (1, False, False)]
)
def test_a_process_that_ranks_started_or_wait_for_gets_on_for_them(
    parent: int, linked: bool, progressed: bool
) -> None:
    build = ticking()
    helper = build.child(0, "helper", pid=500, parent=parent)
    helper.works(REWARD)
    if linked:
        build.rank(0).blocks("pipe-read", "pipe:[7]", 500, peers_known=True)
    assert (words(build).state == "healthy") is progressed


@pytest.mark.parametrize(
    ("left", "text"),
    [(1, "and 1 other continues: the job may"), (2, "and 2 others continue: the job may")],
)
def test_how_many_go_on_when_some_have_ended(left: int, text: str) -> None:
    outcome = ending((0, 3), left)
    assert outcome.summary.startswith("Ranks 0, 3 exited during the inspection, ")
    assert text in outcome.summary


# Ranks at work for which others wait.

SAVES = frames("write /home/me/t.py:3", "save_checkpoint /home/me/t.py:8")


def slow(
    stack: tuple[Frame, ...],
    *,
    moves: bool = True,
    others_wait: bool = True,
    waited_s: float | None = 400.0,
    written_bytes: int = 0,
) -> Verdict:
    build = EvidenceBuilder(ranks=3)
    for rank in range(3):
        build.elsewhere(rank, stack).works(stack)
    if others_wait:
        build = EvidenceBuilder(ranks=3)
        build.elsewhere(1, stack).works(stack, moves=moves)
    build.rank(1).written_bytes = written_bytes
    case = case_of(build)
    view = replace(case.view, wait_history=WaitHistory(waited_s, 0.1))
    return slow_work(view, stall_of(view))


@pytest.mark.parametrize(
    ("stack", "moves", "waited_s", "cause"),
    [
        (REWARD, True, 400.0, "reward-busy"),
        (REWARD, True, 4.0, ""),  # not yet unusual
        (SAVES, True, 400.0, ""),  # it takes long
        (SAVES, False, 400.0, "user-code-busy"),  # but not at one line
        (UPDATE, True, 400.0, "user-code-busy"),
    ],
)
def test_work_has_a_class_where_it_holds_others_up_for_an_unusual_time(
    stack: tuple[Frame, ...], moves: bool, waited_s: float, cause: str
) -> None:
    assert slow(stack, moves=moves, waited_s=waited_s).cause == cause


def test_work_that_nobody_waits_for_has_none() -> None:
    outcome = slow(REWARD, others_wait=False)
    assert (outcome.cause, outcome.culprits, outcome.victims) == ("", (0, 1, 2), ())
    assert outcome.summary.startswith("Slow, not stuck: ranks 0-2 compute rewards in reward")
    assert "wait" not in outcome.summary


@pytest.mark.parametrize(
    ("waited_s", "text"), [(400.0, "; ranks 0, 2 wait for 7 min."), (None, "; ranks 0, 2 wait.")]
)
def test_who_waits_and_for_how_long(waited_s: float | None, text: str) -> None:
    outcome = slow(REWARD, waited_s=waited_s)
    assert (outcome.culprits, outcome.victims) == ((1,), (0, 2))
    assert outcome.summary.endswith(text)


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        (SAVES, "rank 1 writes a checkpoint in checkpoint"),
        (REWARD, "rank 1 computes rewards in reward"),
        (UPDATE, "rank 1 works at train.py:32"),
        (frames("send /x/t.py:3", "sync_weights /x/t.py:4"), "rank 1 works in sync"),
        # Within a generation that scores, of which the scores are what it is at.
        (frames("score /x/r.py:3", "generate /x/t.py:4"), "rank 1 computes rewards in reward"),
        (frames("score /x/r.py:3", "evaluate /x/t.py:4"), "rank 1 evaluates in reward"),
    ],
)
def test_what_a_rank_is_at_in_words(stack: tuple[Frame, ...], text: str) -> None:
    assert slow(stack).summary.startswith(f"Slow, not stuck: {text}")


@pytest.mark.parametrize(
    ("written_bytes", "rate"), [(999_999, ""), (1_000_000, ", 1.0 MB in 1.2 s"), (0, "")]
)
def test_how_fast_it_writes_is_told_from_a_megabyte_on(written_bytes: int, rate: str) -> None:
    outcome = slow(SAVES, written_bytes=written_bytes)
    assert f"(t.py:4, write){rate}; ranks" in outcome.summary
