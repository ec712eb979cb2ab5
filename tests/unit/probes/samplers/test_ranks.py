"""What ranks have used, of processes made of files: each number, and who counts in it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from grpo_doctor_probes.samplers.ranks import RankSampler, loaded

S = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
JOB = 10


@dataclass
class Processes:
    """A /proc of processes below one."""

    proc: Path

    def has(
        self,
        pid: int,
        parent: int = JOB,
        *,
        rank: int | None = None,
        cpu_s: float = 0,
        pages: int = 1,
        waited_s: float | None = None,
        state: str = "S",
        maps: str = "",
    ) -> None:
        """A process, or how it is now."""
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        ticks = round(cpu_s * TICKS)
        (folder / "stat").write_text(
            f"{pid} (python) {state} {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 "
            f"1 0 {pid} 1000 {pages} 0 0 0"
        )
        variables = "" if rank is None else f"RANK={rank}\0LOCAL_RANK={rank}\0"
        (folder / "environ").write_text(variables)
        (folder / "maps").write_text(maps)
        if waited_s is not None:
            (folder / "schedstat").write_text(f"1 {round(waited_s * S)} 1\n")

    def ends(self, pid: int) -> None:
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """A launcher without a rank."""
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(pid)))
    processes = Processes(tmp_path / "proc")
    processes.has(JOB, 1)
    return processes


@pytest.fixture
def sampler(job: Processes) -> RankSampler:
    return RankSampler(JOB, run_dir=job.proc.parent, host="a", proc=job.proc)


def read(sampler: RankSampler, at_s: float) -> dict[tuple[str, int | None], float | None]:
    """Of ranks alone."""
    values = sampler.read(round(at_s * S)).values.items()
    return {(track.name, track.rank): value for track, value in values if track.rank is not None}


def test_a_rank_that_has_ended_has_no_values_once(job: Processes, sampler: RankSampler) -> None:
    job.has(20, rank=0, waited_s=1)
    job.has(21, 20, rank=0)  # a worker that outlives it is no rank
    job.has(30, rank=1)
    read(sampler, 100)
    read(sampler, 101)
    job.has(20, rank=0, state="Z")  # before it is looked for again
    after_end = read(sampler, 101.5)
    assert {name: value for (name, rank), value in after_end.items() if rank == 0} == dict.fromkeys(
        ("rank.rss", "rank.threads", "rank.processors", "rank.cpu", "rank.major_faults",
         "rank.cpu_wait")
    )  # fmt: skip
    assert after_end["rank.threads", 1] == 1
    job.ends(20)
    job.ends(21)
    assert {rank for _, rank in read(sampler, 102)} == {1}


def test_ranks_are_sampled_five_times_a_second_and_looked_for_once(
    job: Processes, sampler: RankSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long this thread has run before."""
    monkeypatch.setattr(time, "thread_time_ns", lambda: 900 * S)
    job.has(20, rank=0)
    sampled = [bool(read(sampler, 100 + tick / 10)) for tick in range(31)]
    assert sampled == [tick % 2 == 0 for tick in range(31)]
    job.has(30, rank=1)
    assert {rank for _, rank in read(sampler, 103.2)} == {0}
    assert {rank for _, rank in read(sampler, 104)} == {0, 1}


def test_a_job_is_sampled_as_a_whole_with_ranks_and_without(
    job: Processes, sampler: RankSampler
) -> None:
    job.has(JOB, 1, cpu_s=1, pages=2, maps="/site-packages/torch/lib/libtorch.so\n")
    job.has(20, cpu_s=5, pages=3)
    first = sampler.read(100 * S)
    assert {track.name: value for track, value in first.values.items()} == {
        "job.rss": 5 * PAGE,
        "job.processes": 2,
    }
    assert (first.libraries, first.notes) == (["torch"], [])
    job.has(JOB, 1, cpu_s=1.5, pages=2, maps="/x/torch/lib/libtorch.so\n")
    maps = "/x/vllm/_C.abi3.so\n/x/numpy/b.so\n/x/mine/jaxlib_like.so\n"
    job.has(20, cpu_s=6.5, pages=3, maps=maps)
    second = sampler.read(102 * S)
    assert {track.name: value for track, value in second.values.items()} == {
        "job.rss": 5 * PAGE,
        "job.processes": 2,
        "job.cpu": 100.0,
    }
    assert second.libraries == ["NumPy", "vLLM"]
    assert loaded(job.proc / "gone") == set()
    job.has(30, rank=0, maps="/x/jaxlib/a.so\n")
    third = sampler.read(104 * S)
    assert third.libraries == []
    assert {track.name for track, value in third.values.items() if value is not None} == {
        "rank.rss", "rank.threads", "rank.processors", "job.rss", "job.processes", "job.cpu",
    }  # fmt: skip
