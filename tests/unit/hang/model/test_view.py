"""What a device that its host spins for waits for, by the recorders."""

from __future__ import annotations

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.model.matching.model import Backlog, Matching
from grpo_doctor.hang.model.view import build, has_pending, with_device_waits
from grpo_doctor_probes.evidence import PythonThread, Thread
from tests.evidence import TORCH, EvidenceBuilder, frames

SYNCHRONIZE = frames(
    f"synchronize {TORCH.replace('distributed', 'cuda')}/__init__.py:1085", "step /home/me/t.py:5"
)
REWARD = frames("reward /home/me/train.py:40", "main /home/me/train.py:9")


def of(library: str, backlog: Backlog) -> bool | None:
    recordings = Recordings(ranks=(Recording(rank=0, library=library),))
    return has_pending(recordings, Matching(backlogs=(backlog,), heard=(0,)), 0)


def test_nccls_recorder_tells_what_is_pending() -> None:
    assert of("2.27.5", Backlog(0, pending=2)) is True
    assert of("2.27.5", Backlog(0, idle=True)) is False


def test_gloos_recorder_knows_nothing_of_a_device() -> None:
    assert of("", Backlog(0, idle=True)) is None
    assert has_pending(Recordings(), Matching(), 0) is None


def spinning(build_: EvidenceBuilder, rank: int) -> None:
    process = build_.rank(rank)
    process.works(SYNCHRONIZE, moves=False)
    events = Thread(900 + rank, "cuda-EvtHandlr", "S", last_ran_ns=1)
    process.threads = [(PythonThread(900 + rank, "", ()), events)]


def waiting(build_: EvidenceBuilder, *, lost: bool = False) -> list[int | None]:
    view = build(build_.build())
    procs = with_device_waits(view.procs, view.recordings, view.matching, lost=lost)
    return [proc.rank for proc in procs if proc.outstanding]


def test_who_spins_waits_for_a_rank_that_is_elsewhere() -> None:
    made = EvidenceBuilder(ranks=3, recorded=False)
    for rank in (0, 2):
        spinning(made, rank)
    made.elsewhere(1, REWARD)
    assert waiting(made) == [0, 2]


def test_where_all_spin_nobody_is_known_to_wait_but_for_one_that_is_lost() -> None:
    made = EvidenceBuilder(ranks=3, recorded=False)
    for rank in range(3):
        spinning(made, rank)
    assert waiting(made) == []
    assert waiting(made, lost=True) == [0, 1, 2]


def test_a_rank_comes_before_what_works_for_it_whoever_has_the_lower_number() -> None:
    build_ = EvidenceBuilder(ranks=2)
    build_.child(1, "server", pid=50)
    build_.child(1, "reward", pid=300)
    view = build(build_.build())
    assert [proc.pid for proc in view.procs] == [100, 101, 50, 300]
    assert view.by_rank[1].pid == 101
