from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor_probes.discover.scan import number_in
from grpo_doctor_probes.samplers.jobtree import SETTLED_NS, Process

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
    stat.write_bytes(STAT.replace(b" 987 ", b" 988 "))  # another one, of the same number
    assert process.usage() is None
    stat.write_bytes(STAT.replace(b") S ", b") Z "))
    assert process.usage() is None
    with pytest.raises(ProcessLookupError):
        Process(4242, tmp_path, now_ns=0)


@contextmanager
def started(environment: Mapping[str, str]) -> Iterator[int]:
    """The number of a process that the kernel has set up with this environment."""
    pipe = subprocess.PIPE
    with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"the kernel has set it up\n")
        child.stdin.flush()
        child.stdout.readline()
        yield child.pid


def test_a_real_process() -> None:
    environ = {"RANK": "5", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": "/tmp/run", "PATH": "/bin"}
    with started(environ) as pid:
        process = Process(pid, PROC, now_ns=0)
        usage = process.usage()
        assert usage is not None
        assert (usage.parent, usage.threads) == (os.getpid(), 1)
        assert process.environment == {
            "RANK": "5", "LOCAL_RANK": "1", "GRPO_DOCTOR_RUN_DIR": "/tmp/run",
        }  # fmt: skip
    assert process.usage() is None


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
    assert _rank(process) == 2


def _rank(process: Process) -> int | None:
    return number_in(process.environment, "RANK")
