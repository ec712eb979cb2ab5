"""One look on many hosts: whom it asks, whom it waits for, what it makes of the answers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from grpo_doctor.bounded import BUNDLE
from grpo_doctor.cli import hosts, main
from grpo_doctor.cli.attach_evidence import wait_for
from grpo_doctor.cli.hosts import Cluster, Program, Said, gathered, kubernetes, look_command, slurm
from grpo_doctor.errors import NoJobError, PermissionNeededError, UsageError
from grpo_doctor.hang.collection.bundle import packed
from tests.evidence import EvidenceBuilder
from tests.ports import free_port
from tests.several_hosts import on_hosts
from tests.unit.cli.attached import Captured

EVIDENCE = on_hosts(EvidenceBuilder(ranks=8).build(), 2)
SEEN = {evidence.job.host: Said(0, packed(evidence), "") for evidence in EVIDENCE}
NO_JOB = Said(5, b"", "grpo-doctor: no training job on this host.")


@dataclass
class FakeHost:
    """Answers at once, or never."""

    name: str
    said: Said | None
    ended: threading.Event = field(default_factory=threading.Event)

    def look(self) -> Said:
        if self.said is None:
            self.ended.wait(60)
        return self.said or Said(-15, b"", "")

    def end(self) -> None:
        self.ended.set()


def cluster(answers: dict[str, Said | None], *absent: str) -> Cluster:
    return Cluster("job 7", [FakeHost(*item) for item in answers.items()], absent)


def test_all_hosts_are_one_evidence(capsys: Captured) -> None:
    evidence = gathered(cluster(dict(SEEN), "pod c is Pending"), 10.0)
    assert [placement.host for placement in evidence.job.placements] == list(SEEN)
    assert [problem.what for problem in evidence.problems] == ["pod c is Pending"]
    said = capsys.readouterr().err.splitlines()
    assert said == ["grpo-doctor: inspecting 4 hosts of job 7 ...", "grpo-doctor: pod c is Pending"]


def test_a_host_that_never_answers_is_given_up_ended_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(hosts, "_LATE_S", 0.2)
    asked = cluster({**SEEN, "node9": None})
    evidence = gathered(asked, 30.0)
    assert len(evidence.job.placements) == len(SEEN)
    (problem,) = evidence.problems
    assert problem.what == "node9 did not answer in time: it may be down or overloaded"
    assert "node9 did not answer" in capsys.readouterr().err
    last = asked.hosts[-1]
    assert isinstance(last, FakeHost)
    assert last.ended.is_set()


def test_hosts_without_the_job_are_named_and_no_problem(capsys: Captured) -> None:
    evidence = gathered(cluster({**SEEN, "head": NO_JOB, "login": NO_JOB}), 10.0)
    assert evidence.problems == ()
    assert "no process of the job on head, login" in capsys.readouterr().err


def test_a_banner_before_the_evidence_is_skipped() -> None:
    first, second = list(SEEN.items())[:2]
    banner = first[1]._replace(output=b"Welcome to node0\n" + first[1].output)
    evidence = gathered(cluster({first[0]: banner, second[0]: second[1]}), 10.0)
    assert len(evidence.job.placements) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Said(4, b"", "x\ngrpo-doctor: may not read pid 7: run it as root.\n"), "may not read pid"),
        (Said(127, b"", "sh: grpo-doctor: not found"), "give its command with --remote"),
        (Said(1, b"", "python: No module named grpo_doctor"), "Install it there"),
        (Said(9, b"", ""), "grpo-doctor ended with exit code 9 and no answer"),
        (Said(0, b"\x1f\x8b\x08rubbish", ""), "damaged"),
        (Said(0, b"\x1f\x8b\x08" + bytes(BUNDLE.bytes), ""), "MiB, which is no evidence"),
    ],
)
def test_what_went_wrong_on_a_host_is_in_the_verdict(said: Said, words: str) -> None:
    evidence = gathered(cluster({**SEEN, "node9": said}), 10.0)
    assert any(words in problem.what for problem in evidence.problems), evidence.problems


def test_no_host_with_a_job() -> None:
    with pytest.raises(NoJobError, match="none of the 2 hosts of job 7 has a training job"):
        gathered(cluster({"a": NO_JOB, "b": NO_JOB}), 10.0)


def test_no_host_that_may_be_read() -> None:
    refused = Said(4, b"", "grpo-doctor: may not read")
    with pytest.raises(PermissionNeededError, match="no host of job 7 could be inspected"):
        gathered(cluster({"a": refused, "b": refused}), 10.0)
    with pytest.raises(UsageError, match="no host of job 7 could be inspected: b: may not read"):
        gathered(cluster({"a": NO_JOB, "b": refused}), 10.0)


def program(text: str) -> Program:
    return Program("here", [sys.executable, "-c", text])


def test_a_program_gives_its_output_code_and_last_words_and_one_that_is_not_there_127() -> None:
    text = (
        "import sys; sys.stdout.write('out'); sys.stderr.write('a\\n' * 40_000 + 'z'); sys.exit(3)"
    )
    said = program(text).look()
    assert (said.code, said.output, said.words[-3:]) == (3, b"out", "a\nz")
    assert len(said.words) <= 20_000
    absent = Program("here", ["/nowhere/srun"]).look()
    assert (absent.code, absent.output) == (127, b"")
    assert "No such file" in absent.words


def test_a_program_that_is_given_up_ends() -> None:
    here = program("import time; print('on', flush=True); time.sleep(600)")
    answers: list[Said] = []
    thread = threading.Thread(target=lambda: answers.append(here.look()))
    thread.start()
    while here._process is None:
        time.sleep(0.01)
    here.end()
    thread.join(timeout=30)
    assert answers[0].code == -15


def listing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, script: str) -> None:
    place = tmp_path / name
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def look(words: Sequence[str], count: int) -> list[str]:
    return [*words, f"at {count}"]


def commands(found: Cluster) -> list[list[str]]:
    return [list(host.command) for host in found.hosts if isinstance(host, Program)]


def test_the_nodes_of_a_slurm_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "echo 'RUNNING|gpu[01-02],login|None'; echo 'RUNNING|gpu02|None'"
    listing(monkeypatch, tmp_path, "squeue", script)
    found = slurm("4711_3", "env X=1 grpo-doctor", look)
    assert [host.name for host in found.hosts] == ["gpu01", "gpu02", "login"]
    step = ["srun", "--jobid=4711_3", "--overlap", "--nodes=1", "--ntasks=1", "--quiet"]
    assert commands(found)[1] == [*step, "--nodelist=gpu02", "env", "X=1", "grpo-doctor", "at 4"]
    assert commands(slurm("4711", None, look))[0][7:10] == [sys.executable, "-m", "grpo_doctor"]


@pytest.mark.parametrize(
    ("job", "script", "words"),
    [
        ("4711; rm", "", "give the job's number"),
        ("4711", "echo 'PENDING||Priority'", r"job 4711 is PENDING \(Priority\)"),
        ("4711", "true", "job 4711 has ended or never was"),
        ("4711", "echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1", "Invalid job id"),
        ("4711", "exit 3", r"squeue failed: exit code 3\.$"),
        ("4711", "echo 'did you give the right host?' >&2; exit 1", r"the right host\?$"),
    ],
)
def test_a_slurm_job_without_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: str, script: str, words: str
) -> None:
    listing(monkeypatch, tmp_path, "squeue", script)
    with pytest.raises(UsageError, match=words):
        slurm(job, None, look)


def test_a_cluster_whose_programs_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="--slurm needs squeue, which is not on PATH"):
        slurm("4711", None, look)


@pytest.mark.parametrize(
    ("selector", "labels", "space"),
    [
        ("app=train", "app=train", []),
        ("app=train/ml", "app=train", ["--namespace=ml"]),
        ("training.kubeflow.org/job-name=x", "training.kubeflow.org/job-name=x", []),
        ("a.org/job=x/ml", "a.org/job=x", ["--namespace=ml"]),
    ],
)
def test_the_pods_of_a_selector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, selector: str, labels: str, space: list[str]
) -> None:
    asked = tmp_path / "asked"
    script = f'printf "%s\\n" "$@" > {asked}; printf "w-0 Running\\nw-1 Failed\\n"'
    listing(monkeypatch, tmp_path, "kubectl", script)
    found = kubernetes(selector, None, look)
    assert commands(found) == [["kubectl", "exec", *space, "w-0", "--", "grpo-doctor", "at 1"]]
    assert found.absent == ("pod w-1 is Failed",)
    words = asked.read_text().splitlines()
    assert words[:2] == ["get", "pods"]
    assert f"--selector={labels}" in words
    assert [word for word in words if "namespace" in word] == space


def test_no_selector_and_no_running_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for selector in ("/ml", "-n", "-n/ml"):
        with pytest.raises(UsageError, match="give a label selector"):
            kubernetes(selector, None, look)
    listing(monkeypatch, tmp_path, "kubectl", 'printf "w-1 Pending\\n"')
    with pytest.raises(UsageError, match=r"no running pod has these labels\.\npod w-1 is Pending"):
        kubernetes("app=train", None, look)


@pytest.mark.parametrize(("count", "lead_s"), [(2, 3.0), (16, 8.0)])
def test_all_hosts_are_to_look_at_one_moment(count: int, lead_s: float) -> None:
    words = look_command(["grpo-doctor"], 1.5, stop=False, hosts=count)
    moment_s = float(words[words.index("--start-at") + 1])
    assert lead_s - 1 < moment_s - time.time() <= lead_s + 0.01
    assert words[:4] == ["grpo-doctor", "attach", "--seconds", "1.5"]
    assert words[-3:] == ["--no-stop", "-o", "-"]


def test_a_moment_that_has_passed_or_is_far_away_is_not_waited_for() -> None:
    begun_s = time.monotonic()
    wait_for(None)
    wait_for(time.time() - 5)
    wait_for(time.time() + 3_600)
    assert time.monotonic() - begun_s < 1
    wait_for(time.time() + 0.2)
    assert time.monotonic() - begun_s >= 0.15


def test_no_ray_here(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["attach", "--ray"]) == 2
    assert "--ray needs Ray in the Python that runs grpo-doctor" in capsys.readouterr().err


def test_nothing_listens_at_the_address_of_ray(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    strategies = ModuleType("ray.util.scheduling_strategies")
    vars(strategies)["NodeAffinitySchedulingStrategy"] = object
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    assert main(["attach", "--ray", f"127.0.0.1:{free_port()}"]) == 2
    assert "Connection refused; the cluster may have ended." in capsys.readouterr().err


def names_of(where: str) -> list[str]:
    """The hosts to which `attach --ssh` goes."""
    return [host.name for host in hosts.ssh(where, "doctor", lambda program, _: [*program]).hosts]


def test_hosts_of_a_list_and_of_a_hostfile(tmp_path: Path) -> None:
    assert names_of("node[08-10],me@login") == ["node08", "node09", "node10", "me@login"]
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# mine\nworker-1 slots=8\n\nworker-2:8  # MPI\nworker-1\n")
    assert names_of(str(hostfile)) == ["worker-1", "worker-2"]
    hostfile.write_bytes(b"\xff\xfe")
    for wrong in ("-oProxyCommand=x", "a b", "", "a,,$(x)", str(hostfile)):
        with pytest.raises(UsageError, match="--ssh"):
            names_of(wrong)


def test_the_command_for_a_host_is_one_word_for_ssh() -> None:
    here, there = hosts.ssh(
        "localhost,n2", "doctor --x 'a b'", lambda program, _: [*program, "-o", "-"]
    ).hosts
    assert isinstance(here, Program)
    assert isinstance(there, Program)
    assert here.command == ["doctor", "--x", "a b", "-o", "-"]
    assert there.command[-2:] == ["n2", "doctor --x 'a b' -o -"]
