"""Control groups of a process and all above them, by controller, and what their limits leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.procs.cgroups import VERSION_2, control_groups, memory_available_bytes


def of_process_7(folder: Path, cgroup: str) -> dict[str, list[Path]]:
    """Its groups, by what the kernel says of them."""
    (folder / "proc/7").mkdir(parents=True)
    (folder / "proc/7/cgroup").write_text(cgroup)
    return control_groups(7, folder / "proc", folder / "mount")


@pytest.mark.parametrize(
    ("cgroup", "made", "expected"),
    [
        ("0::/a/b\n", ["a/b"], {VERSION_2: ["a/b", "a", "."]}),
        ("0::/\n", [], {VERSION_2: ["."]}),
        ("0::/a/b\n", ["unified/a/b"], {VERSION_2: ["unified/a/b", "unified/a", "unified"]}),
        # A container reads the path that its host has, or one above its own.
        ("0::/kubepods/x\n", ["a"], {VERSION_2: ["."]}),
        ("0::/../a\n", ["a"], {VERSION_2: ["."]}),
        ("0::/a/..b\n", ["a/..b"], {VERSION_2: ["a/..b", "a", "."]}),
        (
            "4:memory:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/\n",
            ["memory/a", "cpu/b", "cpuacct", "unified"],
            {
                "memory": ["memory/a", "memory"],
                "cpu": ["cpu/b", "cpu"],
                "cpuacct": ["cpuacct"],
                VERSION_2: ["unified"],
            },
        ),
        ("4:memory:/a:b\n", ["memory/a:b"], {"memory": ["memory/a:b", "memory"]}),
        ("", ["a"], {}),
    ],
)
def test_the_group_of_a_process_and_all_above_it(
    tmp_path: Path, cgroup: str, made: list[str], expected: dict[str, list[str]]
) -> None:
    for name in ("", *made):
        (tmp_path / "mount" / name).mkdir(parents=True, exist_ok=True)
    found = {
        controller: [path.relative_to(tmp_path / "mount").as_posix() for path in paths]
        for controller, paths in of_process_7(tmp_path, cgroup).items()
    }
    assert found == expected
    assert control_groups(8, tmp_path / "proc", tmp_path / "mount") == {}  # it has gone


GB = 10**9


def group(folder: Path, version: int, limit: int | str, used: int, inactive_file: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {inactive_file}\nslab 5\n")


V1_NONE = 9223372036854771712


@pytest.mark.parametrize(
    ("made", "cgroup", "left"),
    [
        ({"pod": (2, 10 * GB, 9 * GB), "pod/job": (2, 8 * GB, 2 * GB)}, "0::/pod/job", GB),
        ({"job": (2, 8 * GB, 7 * GB, 5 * GB)}, "0::/job", 6 * GB),  # pages that can be dropped
        ({"job": (2, "max", 7 * GB)}, "0::/job", None),
        ({"job": (2, 2**62 - 1, GB)}, "0::/job", 2**62 - 1 - GB),
        ({"job": (2, 2**62, GB)}, "0::/job", None),
        ({"job": (2, GB, 2 * GB)}, "0::/job", 0),
        (
            {"memory": (1, V1_NONE, 90 * GB), "memory/docker/c": (1, 8 * GB, 3 * GB, GB)},
            "5:cpu:/x\n4:memory:/docker/c\n0::/", 6 * GB,
        ),
        # A container sees the path of its host; one that leaves the mount is not followed.
        ({"memory": (1, 8 * GB, 3 * GB)}, "4:memory:/docker/not-mounted-here", 5 * GB),
        ({"": (2, 8 * GB, 3 * GB), "../other": (2, GB, 0)}, "0::/../other", 5 * GB),
    ],
)  # fmt: skip
def test_what_the_tightest_group_leaves(
    tmp_path: Path, made: dict[str, tuple[int, ...]], cgroup: str, left: int | None
) -> None:
    for name, facts in made.items():
        group(tmp_path / "mount" / name, *facts)
    assert memory_available_bytes(of_process_7(tmp_path, f"{cgroup}\n")) == left
