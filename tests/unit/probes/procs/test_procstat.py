"""The line of /proc/PID/stat, with names that try to look like fields."""

from __future__ import annotations

import os
import subprocess

import pytest

from grpo_doctor_probes.procs import procstat
from grpo_doctor_probes.procs.procstat import Stat, read_stat, state_of


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    stat = Stat(b"7 (a) R 1 (b\n) S 1 2 3\n")
    assert stat.name == b"a) R 1 (b\n"
    assert (stat.state, stat.parent, stat.group, stat.session) == ("S", 1, 2, 3)
    with pytest.raises(IndexError):
        _ = stat.nice


@pytest.mark.parametrize("text", [b"", b"7 (cut off"])
def test_what_is_no_stat_record_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not found"):
        Stat(text)


def test_this_process_as_the_kernel_tells_it() -> None:
    stat = read_stat("/proc/self")
    assert (stat.parent, stat.group) == (os.getppid(), os.getpgrp())
    assert (stat.session, stat.nice) == (os.getsid(0), os.nice(0))
    assert (stat.state, stat.dead) == ("R", False)
    assert not stat.flags & (procstat.EXITING | procstat.KERNEL_THREAD | procstat.FORKED)
    assert 0 < stat.rss_bytes < stat.virtual_bytes
    assert stat.threads >= 1
    assert stat.core in range(os.cpu_count() or 1)


def test_a_zombie_tells_how_it_ended_and_one_that_is_gone_nothing() -> None:
    with subprocess.Popen(["sh", "-c", "exit 3"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(f"/proc/{child.pid}")
        assert (stat.state, stat.dead, stat.wait_status) == ("Z", True, 3 << 8)
    assert state_of(f"/proc/{child.pid}") == ""


def test_an_image_is_hidden_where_either_part_is() -> None:
    fields = [b"0"] * 50
    for code, stack, expected in ((b"1", b"2", (1, 2)), (b"0", b"2", None), (b"1", b"0", None)):
        fields[23], fields[25] = code, stack
        assert Stat(b"7 (a) " + b" ".join(fields)).image == expected


def test_the_states_of_what_has_ended() -> None:
    for state in (b"Z", b"X", b"x", b"R", b"S", b"D", b"T"):
        assert Stat(b"7 (a) " + state).dead is (state in b"ZXx")
