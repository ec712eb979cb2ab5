"""`attach --slurm`, `--kube`, `--ray`, `--ssh`: one inspection of all hosts of a job at one time.

The way to a host is the cluster's own: `srun --overlap`, `kubectl exec`, a task of Ray, `ssh`. The
same `attach` runs there, only reads, writes its evidence to its standard output, and ends. Nothing
has to be installed as a service, no port is opened, and no disk has to be shared.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, NamedTuple, Protocol

from grpo_doctor.bounded import BUNDLE
from grpo_doctor.cli.attach_evidence import replayed
from grpo_doctor.cli.console import inform, say
from grpo_doctor.errors import NoJobError, PermissionNeededError, UsageError
from grpo_doctor_probes.evidence import Evidence, Problem, RayFact
from grpo_doctor_probes.placement import MOST_HOSTS, expanded

# Looks begin this long after they are asked for, so that slow hosts have started by then.
_LEAD_S, _LEAD_OF_MANY_S, _MANY = 3.0, 8.0, 16
# A host may take this much longer than the last one that answered.
_LATE_S, _LATE_SHARE = 5.0, 0.5
_ASKED_S = 20.0
_GZIP = b"\x1f\x8b\x08"
_WORDS_BYTES = 20_000
_JOB = re.compile(r"[0-9]+(?:[_+][0-9]+)?", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SSH_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\-]{0,252}", re.ASCII)
_PODS = '{range .items[*]}{.metadata.name}{" "}{.status.phase}{"\\n"}{end}'
_NO_JOB, _NO_PERMISSION = NoJobError.exit_code, PermissionNeededError.exit_code
_NO_PROGRAM = (126, 127)


class Said(NamedTuple):
    """How an inspection ended: its exit code, its output, and its last words."""

    code: int
    output: bytes
    words: str


class Host(Protocol):
    """A host to inspect."""

    @property
    def name(self) -> str:
        """As the cluster calls it."""

    def look(self) -> Said:
        """Inspect the host, however long that takes."""

    def end(self) -> None:
        """End an inspection that is no longer waited for."""


@dataclass(slots=True)
class Program:
    """A host that a program of the cluster leads to."""

    name: str
    command: Sequence[str]
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def look(self) -> Said:
        """Runs the command to its end."""
        with tempfile.TemporaryFile() as words:
            try:
                process = self._process = subprocess.Popen(
                    self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words
                )
            except OSError as problem:
                return Said(_NO_PROGRAM[1], b"", f"{self.command[0]}: {problem.strerror}")
            assert process.stdout is not None
            output = process.stdout.read(BUNDLE.bytes + 1)
            if len(output) > BUNDLE.bytes:
                process.kill()
            process.stdout.close()
            return Said(process.wait(), output, _last_words(words))

    def end(self) -> None:
        """Ends the command; what it started on the host ends by itself in seconds."""
        if self._process is not None:
            self._process.terminate()


def _last_words(file: IO[bytes]) -> str:
    file.seek(0, 2)
    file.seek(max(0, file.tell() - _WORDS_BYTES))
    return file.read().decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The hosts of a job; `name` is for sentences, `absent` says what could not be asked."""

    name: str
    hosts: Sequence[Host]
    absent: tuple[str, ...] = ()
    ray: tuple[RayFact, ...] = ()


def look_command(program: Sequence[str], seconds: float, *, stop: bool, hosts: int) -> list[str]:
    """`attach` as it is run on each of so many hosts, at one moment by their clocks."""
    lead_s = _LEAD_S if hosts < _MANY else _LEAD_OF_MANY_S
    moment = f"{time.time() + lead_s:.3f}"
    options = ["--seconds", f"{seconds:g}", "--start-at", moment, *([] if stop else ["--no-stop"])]
    return [*program, "attach", *options, "-o", "-"]


Look = Callable[[Sequence[str], int], list[str]]


def slurm(job: str, remote: str | None, look: Look) -> Cluster:
    """The nodes of a running Slurm job.

    Raises:
        UsageError: it is not a job's number, it does not run, or this is not a host of the cluster.
    """
    if not _JOB.fullmatch(job):
        raise UsageError(f"--slurm {job}: give the job's number, as squeue lists it.")
    lines = _asked("--slurm", ["squeue", "--noheader", f"--jobs={job}", "--format=%T|%N|%r"])
    states = [line.strip().split("|", 2) for line in lines if line.count("|") >= 2]
    nodes = [node for row in states if row[1] for node in expanded(row[1], MOST_HOSTS)]
    if not nodes:
        state = f"is {states[0][0]} ({states[0][2]})" if states else "has ended or never was"
        raise UsageError(f"--slurm {job}: job {job} {state}; there is no node to inspect.")
    program = look(_started_by(remote), len(nodes))
    step = ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet"]
    hosts = [
        Program(node, [*step, f"--nodelist={node}", *program]) for node in dict.fromkeys(nodes)
    ]
    return Cluster(f"Slurm job {job}", hosts)


def kubernetes(selector: str, remote: str | None, look: Look) -> Cluster:
    """The running pods that a label selector, or `SELECTOR/NAMESPACE`, chooses.

    Raises:
        UsageError: there is none, or kubectl does not answer.
    """
    labels, _, last = selector.rpartition("/")
    space = [f"--namespace={last}"] if labels and _NAMESPACE.fullmatch(last) else []
    labels = labels if space else selector
    if not labels or labels.startswith(("-", "/")):
        raise UsageError(f"--kube {selector}: give a label selector, such as app=train.")
    listing = [
        "kubectl",
        "get",
        "pods",
        *space,
        f"--selector={labels}",
        f"--output=jsonpath={_PODS}",
    ]
    pods = [line.split() for line in _asked("--kube", listing)]
    running = [pod[0] for pod in pods if pod[1:] == ["Running"]]
    absent = tuple(f"pod {pod[0]} is {' '.join(pod[1:])}" for pod in pods if pod[1:] != ["Running"])
    if not running:
        raise UsageError(
            "\n".join((f"--kube {selector}: no running pod has these labels.", *absent))
        )
    program = look(_started_by(remote, "grpo-doctor"), len(running))
    hosts = [Program(pod, ["kubectl", "exec", *space, pod, "--", *program]) for pod in running]
    return Cluster(f"the pods of {labels}", hosts, absent)


def ssh(where: str, remote: str | None, look: Look) -> Cluster:
    """The hosts of a list such as `node[1-4],root@login`, or of a hostfile of DeepSpeed or MPI.

    Raises:
        UsageError: no list of hosts, or the file can't be read.
    """
    names: Sequence[str] = expanded(where, MOST_HOSTS)
    if Path(where).is_file():
        try:
            lines = Path(where).read_text("utf-8").splitlines()
        except (OSError, ValueError) as problem:
            raise UsageError(f"--ssh {where}: can't read the hostfile: {problem}.") from problem
        words = (line.partition("#")[0].split() for line in lines)
        names = [re.sub(r":\d+$", "", each[0]) for each in words if each]  # MPICH: host:ranks
    wrong = [name for name in names if not _SSH_HOST.fullmatch(name)]
    if wrong or not names:
        raise UsageError(
            f"--ssh {where}: {wrong[0] if wrong else 'it'!r} is no host. Give hosts with commas "
            "between them, or a hostfile."
        )
    names = list(dict.fromkeys(names))
    program = look(_started_by(remote), len(names))
    step = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_LATE_S:.0f}"]
    here = {os.uname().nodename, "localhost"}
    hosts = [Program(n, program if n in here else [*step, n, shlex.join(program)]) for n in names]
    return Cluster("the job (by ssh)", hosts)


def _started_by(remote: str | None, *default: str) -> list[str]:
    """Return how grpo-doctor is started on a host; by default as here, from the same path."""
    return shlex.split(remote) if remote else [*(default or (sys.executable, "-m", "grpo_doctor"))]


def _asked(option: str, command: Sequence[str]) -> list[str]:
    """What a program of the cluster lists."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASKED_S, check=False
        )
    except FileNotFoundError as problem:
        raise UsageError(
            f"{option} needs {command[0]}, which is not on PATH: run this on a host of the cluster "
            "that has it, such as the login node."
        ) from problem
    except (OSError, subprocess.TimeoutExpired) as problem:
        reason = getattr(problem, "strerror", None) or f"no answer within {_ASKED_S:g} s"
        raise UsageError(f"{option}: {command[0]} failed: {reason}. Try it by hand.") from problem
    if done.returncode:
        words = _sentence(done.stderr.decode("utf-8", "replace")) or f"exit code {done.returncode}"
        end = "" if words.endswith("?") else "."
        raise UsageError(f"{option}: {command[0]} failed: {words}{end}")
    return [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]


def gathered(cluster: Cluster, timeout_s: float) -> Evidence:
    """What was seen on the hosts, as one.

    Raises:
        NoJobError: no host has a process of a job.
        UsageError: no host could be looked at, or the evidence is of several jobs.
        PermissionNeededError: no host lets its processes be read.
    """
    count = len(cluster.hosts)
    inform(f"inspecting {count} host{'s' * (count != 1)} of {cluster.name} ...")
    codes: dict[str, int | None] = {}
    problems = list(cluster.absent)
    with tempfile.TemporaryDirectory(prefix="grpo-doctor-") as folder:
        bundles: list[Path] = []
        for name, said in _answers(cluster.hosts, timeout_s):
            codes[name] = said.code if said else None
            begin = said.output.find(_GZIP) if said else -1
            if said and begin >= 0 and len(said.output) <= BUNDLE.bytes:
                bundles.append(_written(Path(folder), len(bundles), name, said.output[begin:]))
            elif said is None or said.code != _NO_JOB:
                problems.append(problem_of(name, said))
        for line in problems:
            say(line)
        if not bundles:
            _raise(cluster, codes, problems)
        evidence = replayed(bundles)
    without = sorted(name for name, code in codes.items() if code == _NO_JOB)
    if without:
        say(f"no process of the job on {', '.join(without[:8])}{' ...' * (len(without) > 8)}")
    unseen = (Problem(line, "The ranks of this host are not in this verdict.") for line in problems)
    return replace(evidence, problems=(*evidence.problems, *unseen), ray=cluster.ray)


def _written(folder: Path, number: int, name: str, content: bytes) -> Path:
    """A bundle of one host; a host may be called anything."""
    place = folder / f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}"
    place.mkdir()
    (place / "evidence.json.gz").write_bytes(content)
    return place


def _raise(cluster: Cluster, codes: dict[str, int | None], problems: Sequence[str]) -> None:
    if set(codes.values()) <= {_NO_JOB}:
        raise NoJobError(f"none of the {len(codes)} hosts of {cluster.name} has a training job.")
    kind = PermissionNeededError if set(codes.values()) == {_NO_PERMISSION} else UsageError
    raise kind(f"no host of {cluster.name} could be inspected: {problems[-1]}")


def problem_of(name: str, said: Said | None) -> str:
    """Return why a host, by its name, gave no answer that can be used."""
    if said is None:
        return f"{name} did not answer in time: it may be down or overloaded"
    if len(said.output) > BUNDLE.bytes:
        return f"{name} answered with more than {BUNDLE.bytes >> 20} MiB, which is no evidence"
    words = _sentence(said.words)
    if said.code in _NO_PROGRAM or "No module named" in words:
        return (
            f"{name}: grpo-doctor does not start there ({words}). Install it there, or give its "
            "command with --remote"
        )
    return f"{name}: {words or f'grpo-doctor ended with exit code {said.code} and no answer'}"


def _sentence(words: str) -> str:
    """The last line that says something, without our own name before it."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1].removeprefix("grpo-doctor:").strip().rstrip(".")[:300] if lines else ""


def _answers(hosts: Sequence[Host], timeout_s: float) -> Iterator[tuple[str, Said | None]]:
    """The answer of each host as it comes; None for those that are given up: some time after the
    last answer, so that a dead host costs seconds."""
    answers: SimpleQueue[tuple[Host, Said]] = SimpleQueue()
    for host in hosts:
        threading.Thread(target=lambda it=host: answers.put((it, it.look())), daemon=True).start()
    waiting = {id(host): host for host in hosts}
    begun_s = time.monotonic()
    until_s = begun_s + timeout_s
    try:
        while waiting:
            host, said = answers.get(timeout=max(0.0, until_s - time.monotonic()))
            del waiting[id(host)]
            if said.output:  # a host without the job answers sooner
                took_s = time.monotonic() - begun_s
                until_s = begun_s + min(timeout_s, took_s + max(_LATE_S, _LATE_SHARE * took_s))
            yield host.name, said
    except Empty:
        for host in waiting.values():
            yield host.name, None
    finally:
        for host in waiting.values():
            host.end()
