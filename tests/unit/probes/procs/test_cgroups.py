"""Control groups of a process and all above them, by controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.procs.cgroups import VERSION_2, control_groups


def groups(folder: Path, cgroup: str, *made: str) -> dict[str, list[str]]:
    """Those of process 7, below the mount, where these folders are."""
    (folder / "proc/7").mkdir(parents=True)
    (folder / "proc/7/cgroup").write_text(cgroup)
    mount = folder / "mount"
    for name in ("", *made):
        (mount / name).mkdir(parents=True, exist_ok=True)
    folders = control_groups(7, folder / "proc", mount)
    return {
        controller: [path.relative_to(mount).as_posix() for path in paths]
        for controller, paths in folders.items()
    }


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
    assert groups(tmp_path, cgroup, *made) == expected


def test_a_process_that_has_gone_has_none(tmp_path: Path) -> None:
    assert control_groups(7, tmp_path, tmp_path) == {}
