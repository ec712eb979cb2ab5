"""`attach --ssh` on a torchrun job over two hosts that run a real sshd; the hosts are namespaces.

Needs root and Debian's openssh-server.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration import hosts_job
from tests.integration.namespaced_hosts import Host, refusal
from tests.integration.test_attach_hosts import NAMES, PER_HOST, running

_SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
REFUSAL = refusal() or ("" if _SSHD and shutil.which("ssh") else "needs openssh-server and ssh")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "runs here"),
]
_SECONDS = 100.0
Answer = tuple[int, dict[str, Any], str]


@contextmanager
def ssh_job(
    fault: str, folder: Path, names: tuple[str, ...] = NAMES, per_host: int = PER_HOST
) -> Iterator[Callable[..., Answer]]:
    """A torchrun job with this fault; what it yields is `attach --json` on the first host.

    With `cut=NAME` that host's network is gone before.
    """
    folder.chmod(stat.S_IRWXU)
    for name in ("key", "host_key"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    client = folder / "bin" / "ssh"
    client.parent.mkdir()
    options = f"-F /dev/null -i {folder}/key -o StrictHostKeyChecking=no"
    log = f"-o UserKnownHostsFile={folder}/known -o LogLevel=ERROR"
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} {log} "$@"\n')
    client.chmod(stat.S_IRWXU)
    Path("/run/sshd").mkdir(exist_ok=True)
    started = tuple(range(len(names)))
    with running(fault, folder, started=started, names=names, per_host=per_host) as job:
        for host in job.hosts:
            _serve(host, folder)
        environment = {**os.environ, "PATH": f"{client.parent}:{os.environ['PATH']}"}
        command = (sys.executable, "-m", "grpo_doctor", "attach", "--json")

        def attach(*arguments: str, cut: str = "") -> Answer:
            for host in job.hosts:
                if host.name == cut:
                    job.cluster.cut(host)
            done = subprocess.run(
                job.hosts[0].inside(*command, *arguments),
                env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS,
            )  # fmt: skip
            return done.returncode, json.loads(done.stdout or "{}"), done.stderr

        yield attach


def _serve(host: Host, folder: Path) -> None:
    assert _SSHD
    settings = {
        "HostKey": folder / "host_key", "AuthorizedKeysFile": folder / "key.pub",
        "StrictModes": "no", "UsePAM": "no", "PidFile": "none", "PermitRootLogin": "yes",
    }  # fmt: skip
    options = [word for pair in settings.items() for word in ("-o", "=".join(map(str, pair)))]
    host.start([_SSHD, "-D", "-f", "/dev/null", *options], folder / "sshd.log", {})


def test_one_command_names_the_rank_of_the_other_host(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("".join(f"{name} slots=2\n" for name in NAMES))
    with ssh_job("reward", tmp_path) as attach:
        ends_s = time.monotonic() + _SECONDS
        code, document, words = attach("--ssh", str(hostfile))
        while code != 3 and time.monotonic() < ends_s:
            code, document, words = attach("--ssh", str(hostfile))
        verdict = document["verdict"]
        assert (verdict["state"], verdict["class"]) == ("stuck", "reward-blocked"), words
        assert f"Rank {hosts_job.CULPRIT} on {NAMES[1]}" in verdict["summary"]
        assert "inspecting 2 hosts of the job (by ssh)" in words
        _, _, words = attach("--ssh", f"{NAMES[0]},nobody@{NAMES[1]}")
        assert f"nobody@{NAMES[1]}: nobody@{NAMES[1]}: Permission denied" in words
        left = subprocess.run(["pgrep", "-f", "attach .*--start-at"], check=False)
        assert left.returncode == 1, "an inspection still runs"
