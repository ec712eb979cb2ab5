"""Ranks without spans: what their /proc tells, of real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.observe import Observer
from grpo_doctor_probes.supervisor.standing import (
    FIRST_S,
    SILENT,
    SPINNING,
    Lengths,
    Standing,
)
from grpo_doctor_probes.supervisor.suspicion import suspect

S = 1_000_000_000
PATIENCE_S = 60
SPINS = "print(flush=True)\nwhile True: pass"
WORKS = "import time; print(flush=True)\nwhile True: time.sleep(0.001); sum(range(50_000))"
SLEEPS = "import time; print(flush=True); time.sleep(1e6)"


@contextmanager
def running(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        if code == SLEEPS:
            wait_until_asleep(process.pid)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def wait_until_asleep(pid: int) -> None:
    """A busy machine may let it run for the last time long after it has printed."""
    deadline = time.monotonic() + PATIENCE_S
    while "nanosleep" not in Path(f"/proc/{pid}/wchan").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ran_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def let_run(pid: int, for_ns: int) -> None:
    """Waits until it has had its core for so long, however much else runs here."""
    enough_ns, deadline = ran_ns(pid) + for_ns, time.monotonic() + PATIENCE_S
    while ran_ns(pid) < enough_ns:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stood(pid: int, lengths: Lengths, *, works: bool = True, seconds: int = 5) -> Standing:
    """Where it stands after so many looks, each a second after the other by our clock alone."""
    observer, groups = Observer(lengths), [RankGroup(0, pid, (pid,))]
    try:
        for second in range(1, seconds + 1):
            if works:
                let_run(pid, S // 20)
            (standing,) = observer.observe((), groups, (), second * S).standings
        return standing
    finally:
        observer.close()


def test_a_rank_that_sleeps_is_silent_since_it_last_ran() -> None:
    with running(SLEEPS) as pid:
        standing = stood(pid, Lengths(), works=False)
    assert (standing.place, standing.since_ns, standing.first) == (SILENT, S, True)


def test_a_rank_that_never_sleeps_is_busy_since_it_last_slept() -> None:
    """As one that waits for a GPU: the driver burns its core."""
    with running(SPINS) as pid:
        standing = stood(pid, Lengths())
    assert (standing.place, standing.since_ns, standing.first) == (SPINNING, S, True)


def test_both_are_worth_a_look_once_they_take_too_long() -> None:
    for code, words in ((SLEEPS, "silent"), (SPINS, "busy without a pause")):
        with running(code) as pid:
            standing = stood(pid, Lengths(), works=code == SPINS)
            assert suspect((standing,), {}, Lengths(), S + int(FIRST_S * S)) is None
            suspicion = suspect((standing,), {}, Lengths(), 2 * S + int(FIRST_S * S))
        assert suspicion is not None
        assert f"rank 0 has been {words} for" in suspicion.in_words()


def test_a_timeout_in_the_command_holds_for_ranks_without_spans() -> None:
    with running(SLEEPS) as pid:
        standing = stood(pid, Lengths(), works=False)
    lengths = Lengths(timeout_s=30)
    assert suspect((standing,), {}, lengths, 24 * S) is None
    suspicion = suspect((standing,), {}, lengths, 26 * S)
    assert suspicion is not None
    assert suspicion.why == "timeout"


def test_a_kernel_that_does_not_count_sleeps_calls_nobody_busy(tmp_path: Path) -> None:
    """gVisor's status has no such line, and some have no schedstat."""
    folder = tmp_path / "7" / "task" / "7"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tpython\nThreads:\t1\n")
    threads = Observer(Lengths(), tmp_path)
    for at_s in range(10):
        times = " ".join(str(at_s * 100) for _ in range(2))
        (folder / "stat").write_text(f"7 (python) R 1 7 7 0 -1 0 0 0 0 0 {times} 0 0 20 0 1 0 5\n")
        (activity,) = threads._look([7], at_s * S).values()
        assert (activity.state, activity.busy_ns, activity.slept_ns) == ("R", at_s * S, at_s * S)
    threads.close()
