"""`attach --slurm` and `--kube` on a job over two hosts: one command, one verdict.

The hosts are namespaces. `squeue`, `srun` and `kubectl` are stand-ins that answer in the form of
the real ones and take the options that are used; `test_attach_slurm.py` has a real Slurm.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration import hosts_job
from tests.integration.namespaced_hosts import refusal
from tests.integration.test_attach_hosts import NAMES, Job, running

_REFUSAL = refusal()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL or "runs here"),
]
_SECONDS = 200.0
# Runs what follows the options of its own on the host that is named among them.
_ENTER = """#!/usr/bin/env python3
import os, sys, time
inits = {inits}
words = sys.argv[1:]
if words[:2] == ["get", "pods"]:
    assert "--selector=app=train" in words and "--namespace=ml" in words, words
    print("".join(f"{{name}} Running\\n" for name in inits) + "node-c Pending")
    sys.exit()
host = next(name for name in inits if name in words or f"--nodelist={{name}}" in words)
if os.path.exists(sys.argv[0] + "-" + host):  # it is down: nothing answers
    time.sleep(1000)
command = words[words.index("--") + 1:] if "--" in words else words[words.index("--quiet") + 2:]
enter = ["nsenter", "--target", str(inits[host]), "--uts", "--pid", "--net", "--mount", "--"]
os.execvp(enter[0], [*enter, *command])
"""
_SQUEUE = """#!/bin/sh
case "$*" in
*--jobs=4711*) echo 'RUNNING|node-a,node-b|None';;
*--jobs=4712*) echo 'PENDING||Resources';;
esac
"""


@dataclass(frozen=True)
class Site:
    """A job that does not move, and the cluster's programs."""

    job: Job
    programs: Path
    environment: dict[str, str]

    def attach(self, *options: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, document and messages of one look at all hosts."""
        done = subprocess.run(
            [sys.executable, "-m", "grpo_doctor", "attach", "--json", *options],
            env=self.environment, capture_output=True, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def once_stuck(self, *options: str) -> tuple[dict[str, Any], str]:
        """The verdict once the wait is old enough to be judged."""
        ends_s = time.monotonic() + _SECONDS
        while True:
            code, document, words = self.attach(*options)
            assert document, words
            if code == 3 or time.monotonic() > ends_s:
                return document, words


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    programs = folder / "bin"
    programs.mkdir()
    with running("stopped", folder) as job:
        enter = _ENTER.format(inits={host.name: host.init for host in job.hosts})
        for name, text in (("srun", enter), ("kubectl", enter), ("squeue", _SQUEUE)):
            (programs / name).write_text(text)
            (programs / name).chmod(stat.S_IRWXU)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        yield Site(job, programs, {**os.environ, "PATH": path})


@pytest.mark.parametrize(
    "options",
    [
        ("--slurm", "4711"),
        ("--kube", "app=train/ml", "--remote", f"{sys.executable} -m grpo_doctor"),
    ],
)
def test_one_command_names_the_rank_and_its_host(site: Site, options: tuple[str, ...]) -> None:
    document, words = site.once_stuck(*options)
    verdict = document["verdict"]
    assert (verdict["state"], verdict["class"]) == ("stuck", "rank-stopped"), verdict["summary"]
    assert verdict["culprits"] == [hosts_job.CULPRIT]
    assert f"Rank {hosts_job.CULPRIT} on {NAMES[1]}" in verdict["summary"]
    assert [host["name"] for host in document["job"]["hosts"]] == list(NAMES)
    assert ("pod node-c is Pending" in words) == (options[0] == "--kube")


def test_the_looks_of_the_hosts_begin_at_one_moment(site: Site, tmp_path: Path) -> None:
    site.attach("--slurm", "4711", "-o", str(tmp_path / "kept"))
    assert (tmp_path / "kept" / "evidence.json.gz").exists()
    left = [path for path in Path("/tmp").glob("grpo-doctor-*") if path.is_dir()]
    assert left == []


def test_a_host_that_is_down_costs_seconds_and_is_named(site: Site) -> None:
    mark = site.programs / f"srun-{NAMES[1]}"
    mark.touch()
    start_s = time.monotonic()
    try:
        code, document, words = site.attach("--slurm", "4711")
    finally:
        mark.unlink()
    with_both_s = time.monotonic()
    site.attach("--slurm", "4711")
    usual_s = time.monotonic() - with_both_s
    assert code in (0, 3)
    assert document["job"]["ranks_seen"] == [0, 1]
    assert not set(document["verdict"]["culprits"]) & {0, 1}
    assert f"{NAMES[1]} did not answer in time" in words
    # Patience after the last answer is 5 s, or half of what that answer took.
    assert with_both_s - start_s < 2 * usual_s + 10


def test_a_job_that_does_not_run_has_no_nodes(site: Site) -> None:
    code, _, words = site.attach("--slurm", "4712")
    assert code == 2
    assert "job 4712 is PENDING (Resources); there is no node to inspect" in words
    code, _, words = site.attach("--slurm", "9")
    assert code == 2
    assert "has ended or never was" in words


def test_a_host_without_grpo_doctor_is_named_with_what_helps(site: Site) -> None:
    code, _, words = site.attach("--slurm", "4711", "--remote", "/nowhere/grpo-doctor")
    assert code == 2
    assert "grpo-doctor does not start there" in words
    assert "--remote" in words
