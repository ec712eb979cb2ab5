"""Slow reads take turns."""

from __future__ import annotations

from collections import Counter

from grpo_doctor_probes.samplers.gpu_child import Rota

MS = 1_000_000
S = 1000 * MS


class Timer:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_eight_gpus_hold_ten_hertz_and_one_turn_a_second() -> None:
    timer = Timer()
    rota: Rota[tuple[int, str]] = Rota(timer)
    for gpu in range(8):
        rota.add((gpu, "rx"))
        rota.add((gpu, "tx"))
    turns: Counter[tuple[int, str]] = Counter()
    slowest_ns = 0
    for tick in range(100):
        timer.now_ns = tick * 100 * MS
        for job in rota.turns(tick * 100 * MS):
            turns[job] += 1
            timer.now_ns += 20 * MS  # as long as NVML blocks
        slowest_ns = max(slowest_ns, timer.now_ns - tick * 100 * MS)
    assert slowest_ns <= 40 * MS
    assert len(turns) == 16
    assert all(9 <= count <= 10 for count in turns.values())


def test_a_job_has_a_turn_at_most_once_a_second() -> None:
    rota: Rota[str] = Rota(Timer())
    rota.add("a")
    assert list(rota.turns(0)) == ["a"]
    assert list(rota.turns(S - 1)) == []
    assert list(rota.turns(S)) == ["a"]


def test_a_job_slower_than_the_tick_still_gets_its_turn() -> None:
    timer = Timer()
    rota: Rota[str] = Rota(timer)
    for job in ("a", "b"):
        rota.add(job)
    turns = []
    for tick in range(3):
        for job in rota.turns(tick * S):
            timer.now_ns += 5 * S
            turns.append(job)
    assert turns == ["a", "b", "a"]


def test_discarded_jobs_have_no_more_turns() -> None:
    rota: Rota[str] = Rota(Timer())
    rota.add("a")
    rota.add("b")
    rota.discard(lambda job: job == "a")
    assert list(rota.turns(0)) == ["b"]
