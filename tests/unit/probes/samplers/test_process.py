from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.discover.scan import number_in, parse_environment
from grpo_doctor_probes.samplers.process import (
    SETTLED_NS,
    Process,
    ProcFile,
)

PROC = Path("/proc")
STAT = (
    b"4242 (a) R (b)) S 17 1 1 0 -1 4194304 100 200 9 8 150 50 70 80 20 0 33 0 987 1000000 25"
    b" 18446744073709551615 0 0 0\n"
)


@pytest.fixture(autouse=True)
def stat(tmp_path: Path) -> Path:
    """That of process 4242 in a /proc of its own."""
    (tmp_path / "4242").mkdir()
    (tmp_path / "4242" / "stat").write_bytes(STAT)
    return tmp_path / "4242" / "stat"


def test_stat_with_a_name_made_to_mislead_and_a_zombie(tmp_path: Path, stat: Path) -> None:
    process = Process(4242, tmp_path, now_ns=0)
    assert (process.parent, process.started_ticks) == (17, 987)
    usage = process.usage()
    assert usage is not None
    assert (usage.cpu_ticks, usage.major_faults, usage.threads) == (200, 9, 33)
    assert usage.rss_bytes == 25 * os.sysconf("SC_PAGE_SIZE")
    stat.write_bytes(STAT.replace(b") S ", b") Z "))
    assert process.usage() is None
    process.close()
    with pytest.raises(ProcessLookupError):
        Process(4242, tmp_path, now_ns=0)


@pytest.mark.parametrize(
    ("environ", "rank", "has_local_rank"),
    [
        (b"A=1\0RANK=3\0LOCAL_RANK=1\0", 3, True),
        (b"RANK=0\0", 0, False),
        (b"XRANK=3\0RANK=\0LOCAL_RANK=x\0", None, False),
        (b"RANK=-1", None, False),
        (b"RANK=\xff\0LOCAL_RANK=\xd9\xa3", None, False),  # no text, and a digit that is not ours
        (b"", None, False),
    ],
)
def test_environment(environ: bytes, rank: int | None, has_local_rank: bool) -> None:
    parsed = parse_environment(environ)
    assert number_in(parsed, "RANK") == rank
    assert (number_in(parsed, "LOCAL_RANK") is not None) is has_local_rank


def test_a_real_process() -> None:
    environ = {"RANK": "5", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": "/tmp/run", "PATH": "/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, env=environ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"the kernel has set it up\n")
        child.stdin.flush()
        child.stdout.readline()
        process = Process(child.pid, PROC, now_ns=0)
        usage = process.usage()
        assert usage is not None
        assert (usage.parent, usage.threads) == (os.getpid(), 1)
        assert process.environment == {
            "RANK": "5", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": "/tmp/run",
        }  # fmt: skip
    assert process.usage() is None
    process.close()


def test_the_environment_is_read_again_until_it_has_settled(tmp_path: Path) -> None:
    folder = tmp_path / "4242"
    (folder / "environ").write_bytes(b"PATH=/bin\0")
    process = Process(4242, tmp_path, now_ns=7 * SETTLED_NS)
    assert _rank(process) is None
    (folder / "environ").write_bytes(b"RANK=2\0")  # as after exec
    process.read_environment(8 * SETTLED_NS)
    assert _rank(process) == 2
    (folder / "environ").write_bytes(b"RANK=9\0")
    process.read_environment(8 * SETTLED_NS + 1)
    process.close()
    assert _rank(process) == 2


def _rank(process: Process) -> int | None:
    return number_in(process.environment, "RANK")


@pytest.mark.parametrize(("running_s", "young"), [(0.0, True), (1.99, True), (2.0, False)])
def test_who_is_young_may_be_between_fork_and_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running_s: float, *, young: bool
) -> None:
    process = Process(4242, tmp_path, now_ns=0)
    started_s = process.started_ticks / os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(time, "clock_gettime", lambda _: started_s + running_s)
    assert process.is_young() is young
    process.close()


@pytest.mark.parametrize(
    ("schedstat", "waited_ns"),
    [("5 77 9\n", 77), ("0 0 0\n", 0), ("5\n", None), ("", None), ("5 x 9\n", None), (None, None)],
)
def test_how_long_its_main_thread_has_waited_for_a_processor(
    tmp_path: Path, schedstat: str | None, waited_ns: int | None
) -> None:
    if schedstat is not None:
        (tmp_path / "4242" / "schedstat").write_text(schedstat)
    process = Process(4242, tmp_path, now_ns=0)
    assert process.main_thread_waited_ns() == waited_ns
    process.close()


def test_how_many_processors_it_may_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(os.getpid(), PROC, now_ns=0)
    assert process.processors() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert process.processors() is None
    process.close()


def test_a_process_that_has_gone() -> None:
    with subprocess.Popen(["true"]) as child:
        pass
    with pytest.raises(OSError, match=r"No such|ended"):
        Process(child.pid, PROC, now_ns=0)


def test_an_open_file_is_of_one_process_for_good() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        file = ProcFile(PROC / str(child.pid) / "stat")
        assert [b"(cat)" in file.read() for _ in range(2)] == [True, True]
    with pytest.raises(ProcessLookupError):
        file.read()
    file.close()
