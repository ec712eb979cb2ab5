"""What a device that its host spins for waits for, by the recorders."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.dumps import Recording, Recordings
from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor.hang.model.view import build, has_pending, with_device_waits
from grpo_doctor_probes.evidence import PythonThread, Thread
from tests.evidence import TORCH, EvidenceBuilder, frames

SYNCHRONIZE = frames(
    f"synchronize {TORCH.replace('distributed', 'cuda')}/__init__.py:1085", "step /home/me/t.py:5"
)
REWARD = frames("reward /home/me/train.py:40", "main /home/me/train.py:9")


@pytest.mark.parametrize(
    ("library", "idle", "pending"),
    [("2.27.5", (), True), ("2.27.5", (0,), False), ("", (0,), None)],  # gloo knows no device
)
def test_nccls_recorder_tells_what_is_pending(
    library: str, idle: tuple[int, ...], pending: bool | None
) -> None:
    recordings = Recordings(ranks=(Recording(rank=0, library=library),))
    assert has_pending(recordings, Matching(heard=(0,), idle=frozenset(idle)), 0) is pending
    assert has_pending(recordings, Matching(), 0) is None


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
