"""The limits of control groups that a job has, version 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.procs.cgroups import control_groups, memory_available_bytes

GB = 10**9


def group(folder: Path, version: int, limit: int | str, used: int, inactive_file: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {inactive_file}\nslab 5\n")


def available(tmp_path: Path, cgroup: str) -> int | None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(cgroup)
    groups = control_groups(7, tmp_path / "proc", tmp_path / "sys/fs/cgroup")
    return memory_available_bytes(groups)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    return tmp_path / "sys/fs/cgroup"


def test_version_2_takes_the_tightest_level(tmp_path: Path, mount: Path) -> None:
    group(mount / "pod", 2, 10 * GB, 9 * GB)
    group(mount / "pod/job", 2, 8 * GB, 2 * GB)
    assert available(tmp_path, "0::/pod/job\n") == 1 * GB


def test_file_pages_not_used_lately_are_available(tmp_path: Path, mount: Path) -> None:
    group(mount / "job", 2, 8 * GB, 7 * GB, inactive_file=5 * GB)
    assert available(tmp_path, "0::/job\n") == 6 * GB


def test_no_limit_is_none(tmp_path: Path, mount: Path) -> None:
    group(mount / "job", 2, "max", 7 * GB)
    assert available(tmp_path, "0::/job\n") is None


def test_version_1_and_its_way_to_say_no_limit(tmp_path: Path, mount: Path) -> None:
    group(mount / "memory", 1, 9223372036854771712, 90 * GB)
    group(mount / "memory/docker/c", 1, 8 * GB, 3 * GB, inactive_file=1 * GB)
    assert available(tmp_path, "5:cpu:/x\n4:memory:/docker/c\n0::/\n") == 6 * GB


def test_a_container_that_sees_the_path_of_its_host(tmp_path: Path, mount: Path) -> None:
    group(mount / "memory", 1, 8 * GB, 3 * GB)
    assert available(tmp_path, "4:memory:/docker/not-mounted-here\n") == 5 * GB


def test_a_path_that_leaves_the_mount_is_not_followed(tmp_path: Path, mount: Path) -> None:
    group(mount, 2, 8 * GB, 3 * GB)
    group(tmp_path / "sys/fs/other", 2, 1 * GB, 0)
    assert available(tmp_path, "0::/../other\n") == 5 * GB


@pytest.mark.parametrize(("limit", "remaining"), [(2**62 - 1, 2**62 - 1 - GB), (2**62, None)])
def test_where_no_limit_begins(
    tmp_path: Path, mount: Path, limit: int, remaining: int | None
) -> None:
    group(mount / "job", 2, limit, GB)
    assert available(tmp_path, "0::/job\n") == remaining


def test_an_overdrawn_limit_leaves_nothing(tmp_path: Path, mount: Path) -> None:
    group(mount / "job", 2, 1 * GB, 2 * GB)
    assert available(tmp_path, "0::/job\n") == 0


def test_a_process_that_has_gone_has_no_limit(tmp_path: Path) -> None:
    assert memory_available_bytes(control_groups(7, tmp_path, tmp_path)) is None
