"""Hosts of a test: processes in namespaces of their own, joined by a switch that can be cut.

Each has its own host name, process numbers and network, and they share the file system, as the
hosts of a cluster do. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.integration.apart import OWN_MEMORY

_READY_S = 20.0
_INIT = "while :; do sleep 1000 & wait; done"  # a shell, because the first process must reap
NETWORK = "10.77.0."


@dataclass
class Host:
    """One host; `init` is its first process as this machine numbers it."""

    name: str
    number: int
    init: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Its address on the switch."""
        return f"{NETWORK}{self.number}"

    def inside(self, *command: str) -> list[str]:
        """The command as it runs on this host."""
        return [
            "nsenter", "--target", str(self.init), "--uts", "--pid", "--net", "--mount", "--",
            *command,
        ]  # fmt: skip

    def start(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        """Runs a program there until the end of the test."""
        with log.open("ab") as file:
            self.processes.append(
                subprocess.Popen(
                    self.inside(*command),
                    stdout=file,
                    stderr=file,
                    env={**os.environ, **environment},
                )
            )

    def python(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a Python module there, with its output at hand."""
        return subprocess.Popen(
            self.inside(sys.executable, *arguments),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *command: str) -> None:
        """Runs a command there to its end."""
        subprocess.run(self.inside(*command), check=True, capture_output=True)


@dataclass
class Cluster:
    """Hosts at one switch."""

    switch: int
    hosts: list[Host]

    def cut(self, host: Host) -> None:
        """Takes a host's cable out of the switch: what it sends is lost without a word."""
        _in_network(self.switch, "ip", "link", "set", f"port{host.number}", "nomaster")


def refusal() -> str:
    """Why there can be no such hosts here; empty where there can."""
    if os.geteuid() != 0:
        return "namespaces with a network of their own need root"
    isolating = [
        "unshare",
        "--uts",
        "--pid",
        "--net",
        "--mount-proc",
        "--fork",
        "ip",
        "link",
        "add",
    ]
    try:
        probe = subprocess.run(
            [*isolating, "here", "type", "veth", "peer", "name", "there"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as problem:
        return f"namespaces cannot be made here: {problem}"
    return (
        "" if probe.returncode == 0 else f"namespaces cannot be made here: {probe.stderr.strip()}"
    )


@contextmanager
def cluster(names: Sequence[str], folder: Path) -> Iterator[Cluster]:
    """Hosts of these names, which end with the test and all that runs on them."""
    table = folder / "etc-hosts"
    lines = [f"{NETWORK}{number} {name}" for number, name in enumerate(names, 1)]
    table.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(_first_process("--pid", "--net", script=_INIT))
        _in_network(switch, "ip", "link", "add", "switch", "type", "bridge")
        _in_network(switch, "ip", "link", "set", "switch", "up")
        hosts = []
        for number, name in enumerate(names, 1):
            script = f'{OWN_MEMORY}mount --bind "{table}" /etc/hosts; hostname "{name}"; {_INIT}'
            init = stack.enter_context(
                _first_process("--uts", "--pid", "--net", "--mount-proc", script=script)
            )
            _plug_in(switch, init, number)
            hosts.append(Host(name, number, init))
        try:
            yield Cluster(switch, hosts)
        finally:
            for host in hosts:
                for process in host.processes:
                    process.kill()


@contextmanager
def _first_process(*namespaces: str, script: str) -> Iterator[int]:
    """The first process of new namespaces; when it is killed the kernel kills all others of it."""
    holder = subprocess.Popen(
        # A test run that is killed must not leave hosts behind.
        ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "--fork", "--kill-child",
         "sh", "-c", f"echo ready; {script}"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + _READY_S
        while not (children := psutil.Process(holder.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield children[0].pid
    finally:
        holder.kill()
        holder.wait()


def _plug_in(switch: int, init: int, number: int) -> None:
    port = f"port{number}"
    link = ("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(init))
    _in_network(switch, *link)
    _in_network(switch, "ip", "link", "set", port, "master", "switch", "up")
    _in_network(init, "ip", "address", "add", f"{NETWORK}{number}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _in_network(init, "ip", "link", "set", device, "up")


def _in_network(pid: int, *command: str) -> None:
    done = subprocess.run(
        ["nsenter", "--target", str(pid), "--net", "--", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stderr}"
