"""Limits of control groups of both versions, on a tree of files."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor_probes.look.limits import frozen, limits_of

STAT = b"7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 -5 1 0 99 0 0\n"


def world(tmp_path: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc with process 7 in this group, and a /sys/fs/cgroup with these files."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "stat").write_bytes(STAT)
    (proc / "7" / "status").write_text("Name:\tx\nCpus_allowed_list:\t0-2,5\n")
    (proc / "7" / "cgroup").write_text(cgroup)
    mount.mkdir()
    for name, text in files.items():
        path = mount / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc, mount


def test_version_2(tmp_path: Path) -> None:
    proc, mount = world(
        tmp_path,
        "0::/jobs/a\n",
        {
            "cgroup.controllers": "cpu memory",
            "jobs/cgroup.freeze": "1\n",
            "jobs/cpu.max": "150000 100000\n",
            "jobs/memory.max": "max\n",
            "jobs/a/cgroup.freeze": "1\n",
            "jobs/a/cpu.max": "max 100000\n",
            "jobs/a/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 7\n",
            "jobs/a/memory.max": "1000\n",
            "jobs/a/memory.current": "900\n",
            "jobs/a/memory.events": "oom 3\noom_kill 2\n",
        },
    )
    limit = limits_of(7, proc, mount)
    assert limit is not None
    # The upper one of two frozen groups thaws it.
    assert (limit.frozen, limit.freezer) == (True, str(mount / "jobs" / "cgroup.freeze"))
    assert (limit.quota_cores, limit.throttled_ns) == (1.5, 7000)
    assert (limit.memory_limit_bytes, limit.memory_used_bytes, limit.oom_kills) == (1000, 900, 2)
    assert (limit.cores, limit.nice) == ((0, 1, 2, 5), -5)


def test_version_1(tmp_path: Path) -> None:
    proc, mount = world(
        tmp_path,
        "6:freezer:/a/b\n4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n",
        {
            "unified/cgroup.procs": "",
            "freezer/a/freezer.self_freezing": "1\n",
            "freezer/a/b/freezer.self_freezing": "0\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/memory.usage_in_bytes": "5\n",
            "memory/a/memory.limit_in_bytes": "2000\n",
            "memory/a/memory.usage_in_bytes": "1500\n",
            "memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "cpu/a/cpu.cfs_quota_us": "50000\n",
            "cpu/a/cpu.cfs_period_us": "100000\n",
            "cpu/a/cpu.stat": "nr_throttled 2\nthrottled_time 12345\n",
        },
    )
    limit = limits_of(7, proc, mount)
    assert limit is not None
    assert limit.freezer == str(mount / "freezer" / "a" / "freezer.state")
    assert frozen(7, proc, mount) == limit.freezer
    assert (limit.quota_cores, limit.throttled_ns) == (0.5, 12345)
    assert (limit.memory_limit_bytes, limit.memory_used_bytes, limit.oom_kills) == (2000, 1500, 1)
