"""Whether stuck ranks have moved since, by counters built in code."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.supervisor import recovery
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.observe import Moment
from grpo_doctor_probes.supervisor.recovery import (
    MOVED_SLEEPS,
    Beyond,
    Fate,
    StuckRanks,
)
from grpo_doctor_probes.supervisor.standing import Standing
from grpo_doctor_probes.supervisor.suspicion import GONE, SILENT, SPINNING, Activity

S = 1_000_000_000
MS = 1_000_000
ASKED_S, JUDGED_S = 100.0, 105.0


@pytest.fixture(autouse=True)
def _outlives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told at once here, but where that is the point."""
    if "outlives" not in request.node.name:
        monkeypatch.setattr(recovery, "OUTLIVES_NS", 0)


def stands(
    pid: int, place: str = SILENT, since_s: float = 50, *, begun_s: float = 0, waits: bool = False
) -> Standing:
    return Standing(pid, pid, place, round(since_s * S), False, waits, round(begun_s * S))


def did(ran_ms: float = 0, sleeps: int = 0, state: str = "S") -> Activity:
    return Activity(state, 50 * S, 50 * S, 50 * S, round(ran_ms * MS), sleeps)


def at(second: float, *standings: Standing, **activities: Activity) -> Moment:
    """Activities by `p` and the pid: `p1=...`."""
    by_pid = {int(name[1:]): activity for name, activity in activities.items()}
    return Moment(standings, by_pid, round(second * S))


def stuck(earlier: Moment, judged: Moment) -> StuckRanks:
    return StuckRanks([standing.pid for standing in earlier.standings], earlier, judged)


def silent(before: Activity, after: Activity) -> StuckRanks:
    """Rank 1, which stood still from the question to the verdict."""
    return stuck(at(ASKED_S, stands(1), p1=before), at(JUDGED_S, stands(1), p1=after))


def test_a_progress_of_seconds_is_seen_though_it_stands_again_for_long() -> None:
    """As after a supervisor that was held up itself: one look, long after it all."""
    ranks = silent(did(ran_ms=700), did(ran_ms=700))
    assert ranks.fate(at(106, stands(1), p1=did(ran_ms=700)), ()) == "still"
    later = at(120, stands(1), p1=did(ran_ms=700 + 45, state="T"))
    assert ranks.fate(later, ()) == "moved"


def test_a_progress_too_slow_for_one_look_adds_up() -> None:
    """A job that mostly sleeps, on a busy machine: 5 ms of its core in each half second."""
    ranks = silent(did(), did())
    fates = [
        ranks.fate(at(JUDGED_S + look / 2, stands(1), p1=did(ran_ms=5 * look)), ())
        for look in range(1, 5)
    ]
    assert fates == ["still", "still", "moved", "moved"]


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.006, 0.0174])
def test_a_main_thread_that_polls_on_has_not_moved(share: float) -> None:
    """Shares of a core of polls every 100, 10 and 1 ms, on for an hour."""

    def polled(second: float) -> Activity:
        return did(ran_ms=1000 * share * second, sleeps=round(1000 * second))

    ranks = silent(polled(ASKED_S), polled(JUDGED_S))
    for look in range(1, 7200):
        second = JUDGED_S + look / 2
        jitter_ms = 3 * (look % 2)  # a tick sooner or later
        activity = did(ran_ms=1000 * share * second + jitter_ms)
        assert ranks.fate(at(second, stands(1), p1=activity), ()) == "still"


def test_a_poll_that_gets_its_answer_has_moved() -> None:
    ranks = silent(did(ran_ms=0), did(ran_ms=5 * 6))
    assert ranks.fate(at(106, stands(1), p1=did(ran_ms=36)), ()) == "still"
    assert ranks.fate(at(107, stands(1), p1=did(ran_ms=36 + 40)), ()) == "moved"


def test_a_request_that_is_made_again_once_a_minute_is_no_progress() -> None:
    ranks = silent(did(), did())
    for minute in range(1, 60):
        activity = did(ran_ms=8 * minute)
        assert ranks.fate(at(JUDGED_S + 60 * minute, stands(1), p1=activity), ()) == "still"


def test_all_must_have_moved_and_need_not_do_so_at_once() -> None:
    earlier = at(ASKED_S, stands(1), stands(2), p1=did(), p2=did())
    judged = at(JUDGED_S, stands(1), stands(2), p1=did(), p2=did())
    ranks = stuck(earlier, judged)
    halfway = at(106, stands(1, since_s=106), stands(2), p1=did(ran_ms=50), p2=did())
    assert ranks.fate(halfway, ()) == "still"
    now = at(107, stands(1, since_s=106), stands(2), p1=did(ran_ms=50), p2=did(ran_ms=50))
    assert ranks.fate(now, ()) == "moved"


def test_a_rank_with_spans_has_moved_when_a_span_has_begun_or_ended() -> None:
    before = stands(1, "reward", 50, begun_s=60)
    for after in (
        stands(1, "train", 106, begun_s=106),
        stands(1, "reward", 106, begun_s=106),
        stands(1, "reward", 50, begun_s=106),  # one within it, which has ended
    ):
        ranks = stuck(at(ASKED_S, before), at(JUDGED_S, before))
        assert ranks.fate(at(107, before), ()) == "still"
        assert ranks.fate(at(108, after), ()) == "moved"


def test_a_rank_with_spans_has_not_moved_by_what_its_main_thread_burns() -> None:
    """A reward that asks again and again is judged by its phase, as it was suspected."""
    before = stands(1, "reward", 50)
    ranks = stuck(at(ASKED_S, before, p1=did()), at(JUDGED_S, before, p1=did()))
    assert ranks.fate(at(107, before, p1=did(ran_ms=900, sleeps=900)), ()) == "still"


def test_a_file_of_spans_that_cannot_be_read_for_once_is_no_progress() -> None:
    before = stands(1, "reward", 50)
    ranks = stuck(at(ASKED_S, before), at(JUDGED_S, before))
    assert ranks.fate(at(107, stands(1, SILENT, 90), p1=did(ran_ms=90)), ()) == "still"


def test_a_stopped_rank_with_spans_has_moved_once_it_ran_on_within_its_phase() -> None:
    before, still = stands(1, "rollout", 50), did(ran_ms=9, state="T")
    ranks = stuck(at(ASKED_S, before, p1=still), at(JUDGED_S, before, p1=still))
    assert ranks.fate(at(110, before, p1=did(ran_ms=9.1, sleeps=4, state="T")), ()) == "still"
    assert ranks.fate(at(120, before, p1=did(ran_ms=60, sleeps=5, state="T")), ()) == "moved"


def spinning(sleeps_meanwhile: int) -> StuckRanks:
    """Rank 1 waits for its GPU; to be looked at makes it sleep, and so seem to be new there."""
    return stuck(
        at(ASKED_S, stands(1, SPINNING, 50), p1=did(5000, 7)),
        at(JUDGED_S, stands(1, SPINNING, 103), p1=did(10_000, 7 + sleeps_meanwhile)),
    )


def test_a_rank_that_waits_for_its_gpu_stands_still_although_it_was_stopped_for_a_look() -> None:
    ranks = spinning(MOVED_SLEEPS)
    assert ranks.pids == {1}
    for second in range(106, 200):
        now = at(second, stands(1, SPINNING, 103), p1=did(1000 * second, 7 + MOVED_SLEEPS))
        assert ranks.fate(now, ()) == "still"


def test_a_rank_that_slept_more_than_that_has_moved() -> None:
    assert spinning(MOVED_SLEEPS + 1).pids == frozenset()
    ranks = spinning(0)
    now = at(108, stands(1, SPINNING, 108), p1=did(13_000, 7 + 3 + MOVED_SLEEPS + 1))
    assert ranks.fate(now, ()) == "moved"


def test_a_rank_that_leaves_its_gpu_alone_has_moved() -> None:
    ranks = spinning(0)
    starved = at(110, stands(1, SILENT, 106), p1=did(10_050, 7))
    assert ranks.fate(starved, ()) == "still"
    asleep = at(111, stands(1, SILENT, 106), p1=did(10_050, 8))
    assert ranks.fate(asleep, ()) == "moved"


def test_who_has_moved_before_the_verdict_is_not_stuck() -> None:
    earlier = at(ASKED_S, stands(1), stands(2), stands(3, "reward"), p1=did(), p2=did())
    judged = at(
        JUDGED_S, stands(1, since_s=104), stands(2), stands(3, "reward", begun_s=104),
        p1=did(ran_ms=40), p2=did(),
    )  # fmt: skip
    assert stuck(earlier, judged).pids == {2}


def test_progress_is_what_a_job_outlives() -> None:
    """All ranks say at length that torch has given up, and only then the first one dies."""
    ranks = silent(did(), did())
    loud = stands(1, since_s=106)
    for second in (106, 107, 108.9):
        assert ranks.fate(at(second, loud, p1=did(ran_ms=300)), ()) == "still"
    dead = [Death(Subject(1, "rank 1", 1), 109 * S, 1 << 8)]
    assert ranks.fate(at(109, loud, p1=did(ran_ms=300)), dead) == "ended"
    assert ranks.fate(at(109, loud, p1=did(ran_ms=300)), ()) == "moved"
    assert ranks.moved_ns == 106 * S


@pytest.mark.parametrize(
    ("present", "failed", "fate"),
    [((), (), "ended"), ((2,), (), "moved"), ((2,), (1,), "ended"), ((1, 2), (1,), "ended")],
)
def test_the_last_doings_of_ranks_that_end_are_no_progress(
    present: tuple[int, ...], failed: tuple[int, ...], fate: Fate
) -> None:
    """Torch gives up on a collective: the ranks say so at length, and die one after the other."""
    standings = stands(1), stands(2)
    ranks = stuck(
        at(ASKED_S, *standings, p1=did(), p2=did()), at(JUDGED_S, *standings, p1=did(), p2=did())
    )
    loud = {f"p{pid}": did(ran_ms=300) for pid in present}
    deaths = [Death(Subject(pid, f"rank {pid}", pid), 106 * S, 9) for pid in failed]
    now = at(107, *(stands(pid, since_s=106) for pid in present), **loud)
    assert ranks.fate(now, deaths) == fate


def test_a_rank_that_is_gone_stays_so_until_it_is_started_anew() -> None:
    ended_standing = stands(1, GONE, 80)
    deaths = [Death(Subject(1, "rank 1", 1), 80 * S, 9)]
    ranks = stuck(at(ASKED_S, ended_standing), at(JUDGED_S, ended_standing))
    assert ranks.fate(at(200, ended_standing), deaths) == "still"
    assert ranks.fate(at(201, stands(7, since_s=200)), deaths) == "ended"


@pytest.mark.parametrize(("after_s", "fate"), [(2.999, "still"), (3.0, "moved")])
def test_a_progress_that_a_job_outlives_for_three_seconds(after_s: float, fate: Fate) -> None:
    ranks = silent(did(), did())
    assert ranks.fate(at(106, stands(1), p1=did(ran_ms=300)), ()) == "still"
    assert ranks.fate(at(106 + after_s, stands(1), p1=did(ran_ms=300)), ()) == fate


@pytest.mark.parametrize(("ran_ms", "fate"), [(11.0, "still"), (11.001, "moved")])
def test_ten_milliseconds_beyond_the_idle_are_no_progress_yet(ran_ms: float, fate: Fate) -> None:
    ranks = silent(did(), did())
    assert ranks.fate(at(JUDGED_S + 1, stands(1), p1=did(ran_ms=ran_ms)), ()) == fate


@pytest.mark.parametrize(("more", "fate"), [(0, "still"), (1, "moved")])
def test_eight_sleeps_beyond_the_idle_are_no_progress_yet(more: int, fate: Fate) -> None:
    ranks = spinning(0)
    sleeps = 7 + 3 + MOVED_SLEEPS + more
    now = at(JUDGED_S + 3, stands(1, SPINNING, 108), p1=did(13_000, sleeps))
    assert ranks.fate(now, ()) == fate


@pytest.mark.parametrize(("judged_s", "fate"), [(102.0, "still"), (120.0, "moved")])
def test_what_it_did_while_it_was_looked_at_is_set_off_by_its_time(
    judged_s: float, fate: Fate
) -> None:
    """Twice that a second explains all of it, or a tenth."""
    before, after = did(ran_ms=500), did(ran_ms=540)
    ranks = stuck(at(ASKED_S, stands(1), p1=before), at(judged_s, stands(1), p1=after))
    assert ranks.fate(at(judged_s + 1, stands(1), p1=did(ran_ms=580)), ()) == fate


def test_sleeps_while_it_was_looked_at_are_set_off_by_their_time() -> None:
    ranks = spinning(5)  # one a second, and twice that explains ten
    for sleeps, fate in ((12 + 10 + MOVED_SLEEPS, "still"), (13 + 10 + MOVED_SLEEPS, "moved")):
        now = at(JUDGED_S + 5, stands(1, SPINNING, 109), p1=did(15_000, sleeps))
        assert ranks.fate(now, ()) == fate


@pytest.mark.parametrize(("state", "fate"), [("T", "moved"), ("S", "still")])
def test_of_a_rank_with_spans_time_on_a_core_counts_where_it_was_stopped(
    state: str, fate: Fate
) -> None:
    before, activity = stands(1, "rollout", 50), did(state=state)
    ranks = stuck(at(ASKED_S, before, p1=activity), at(JUDGED_S, before, p1=activity))
    assert ranks.fate(at(110, before, p1=did(ran_ms=60)), ()) == fate


def test_a_rank_of_which_proc_tells_nothing_is_judged_by_its_spans() -> None:
    before = stands(1, "rollout", 50)
    for earlier, judged in (({"p1": did()}, {}), ({}, {"p1": did(state="T")})):
        ranks = stuck(at(ASKED_S, before, **earlier), at(JUDGED_S, before, **judged))
        assert ranks.fate(at(110, before, p1=did(ran_ms=900)), ()) == "still"
        assert ranks.fate(at(111, stands(1, "train", 110)), ()) == "moved"


def test_those_that_nobody_suspects_are_not_among_them() -> None:
    standings = (stands(1), stands(2))
    earlier, judged = (at(s, *standings, p1=did(), p2=did()) for s in (ASKED_S, JUDGED_S))
    assert StuckRanks([2], earlier, judged).pids == {2}
    assert StuckRanks([2], earlier, at(JUDGED_S, stands(1), p1=did())).pids == frozenset()
    assert StuckRanks([2, 3], at(ASKED_S, stands(1), p1=did()), judged).pids == frozenset()


def test_when_all_had_moved_is_kept_over_what_they_do_later() -> None:
    ranks = silent(did(), did())
    assert ranks.moved_ns is None
    for second in (106, 107):
        ranks.fate(at(second, stands(1), p1=did(ran_ms=300 * second)), ())
    assert ranks.moved_ns == 106 * S


def test_hours_of_rest_leave_nothing_of_the_explained() -> None:
    beyond = Beyond(example_per_s=0.0, idle_per_s=1.0, counted=0, at_ns=0)
    assert beyond.grown(0, 10_000 * S) == 0
    assert beyond.grown(20, 10_001 * S) == 19
    assert beyond.grown(20, 10_010 * S) == 10
