from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.discover.permission import has_our_network, ptrace_remedy, why_refused

ALL, NONE = "000001ffffffffff", "0000000000000000"


@pytest.mark.parametrize(
    ("rights", "scope", "owner", "begins", "words"),
    [
        (NONE, "1", 1000, "Run it as root", ("ptrace_scope is 1", "as root", "sysctl")),
        (NONE, "2", 1000, "Run it as root", ("ptrace_scope is 2", "as root")),
        (ALL, "3", 1000, "kernel.yama", ("ptrace_scope is 3", "forbids all tracing")),
        (NONE, "0", 0, "it belongs to user 0. Run it", ("as root",)),
        (NONE, None, 0, "it belongs to user 0. Run it", ()),
        (NONE, "0", 1000, "not even its own user may trace it", ("not dumpable", "as root")),
        (ALL, "0", 1000, "CAP_SYS_PTRACE is there", ("security module", "on the host")),
    ],
)
def test_why_a_trace_is_refused(
    tmp_path: Path, rights: str, scope: str | None, owner: int, begins: str, words: tuple[str, ...]
) -> None:
    for name, user in (("self", 1000), ("7", owner)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status").write_text(
            f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{rights}\nSeccomp:\t0\n"
        )
    if scope:
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(scope + "\n")
    message = why_refused(7, tmp_path)
    assert message.startswith(begins)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("cgroup", "spaces", "contained"),
    [
        (f"0::/docker/{'ab' * 32}\n", "7", True),
        ("0::/user.slice\n", "7", False),
        (None, "7 3 1", True),
        (None, "", False),
    ],
)
def test_a_container_without_the_right_to_trace_is_named(
    tmp_path: Path, cgroup: str | None, spaces: str, contained: bool
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Uid:\t0\t0\t0\t0\nNSpid:\t{spaces}\n")
    if cgroup is not None:
        (tmp_path / "self" / "cgroup").write_text(cgroup)
    remedy = ptrace_remedy(tmp_path)
    assert ("docker run --cap-add SYS_PTRACE" in remedy) is contained
    assert ("This root lacks CAP_SYS_PTRACE" in remedy) is not contained


@pytest.mark.parametrize(
    ("space", "same"), [("net:[1]", True), ("net:[2]", False), (None, True)], ids=str
)
def test_whether_an_address_is_the_same_for_us(
    tmp_path: Path, space: str | None, same: bool
) -> None:
    for pid, link in (("self", "net:[1]"), ("7", space)):
        (tmp_path / pid / "ns").mkdir(parents=True)
        if link:
            (tmp_path / pid / "ns" / "net").symlink_to(link)
    assert has_our_network(tmp_path, 7) is same
