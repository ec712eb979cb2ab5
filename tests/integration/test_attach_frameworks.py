"""`grpo-doctor attach` on TRL's own GRPOTrainer, started as its users start it, with no PID."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs TRL: pip install trl==1.16.0")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from tests.integration.apart import Apart, apart
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("frameworks_job.py")
RANKS, GUILTY = 2, 1
LAUNCHERS = {
    "torchrun": ("torchrun", "--standalone", f"--nproc_per_node={RANKS}"),
    "accelerate": (
        "accelerate", "launch", "--multi_gpu", f"--num_processes={RANKS}", "--num_machines=1",
        "--main_process_port=0", "--mixed_precision=no", "--dynamo_backend=no",
    ),
    "deepspeed": ("deepspeed", f"--num_gpus={RANKS}", "--no_local_rank"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 of a few thousand weights, as files."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, 32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def job(launcher: str, fault: str, model: Path, folder: Path) -> Iterator[Apart]:
    """Two ranks of TRL, once the fault is due in both."""
    script = folder / "train_grpo.py"
    shutil.copy(SCRIPT, script)
    program, *options = LAUNCHERS[launcher]
    if launcher == "deepspeed":  # knows no "any free one"
        options.append(f"--master_port={free_port()}")
    command = [str(Path(sys.executable).with_name(program)), *options]
    command += [str(script), fault, str(model), str(folder)]
    environment = {name: "" for name in os.environ if name.startswith("GRPO_DOCTOR")}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with apart(command, folder, RANKS, environment) as training:
        yield training


def verdict_on(training: Apart) -> dict[str, Any]:
    """The verdict, of a job of TRL with two ranks."""
    document = training.document()
    assert document["job"]["framework"] == "trl"
    assert document["job"]["ranks_seen"] == [0, 1]
    verdict: dict[str, Any] = document["verdict"]
    assert verdict["state"] == "stuck", verdict["summary"]
    assert verdict["culprits"] == [GUILTY], verdict["summary"]
    assert verdict["victims"] == [0]
    return verdict


def line_of(text: str) -> str:
    """`train_grpo.py:NUMBER` of the line of the job's script that has this text."""
    lines = SCRIPT.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.strip() == text]
    return f"train_grpo.py:{number}"


ASKS = "answer: bytes = urllib.request.urlopen(url, data=text.encode()).read()"
STOPS = "os.kill(os.getpid(), signal.SIGSTOP)"


@pytest.mark.parametrize(
    ("launcher", "fault", "cause", "line"),
    [
        ("torchrun", "judge", "reward-blocked", ASKS),
        ("deepspeed", "stopped", "rank-stopped", STOPS),
    ],
)
def test_a_reward_that_does_not_return(
    launcher: str, fault: str, cause: str, line: str, model: Path, tmp_path: Path
) -> None:
    with job(launcher, fault, model, tmp_path) as training:
        verdict = verdict_on(training)
    assert verdict["class"] == cause
    assert verdict["phase"] == "reward"
    assert verdict["summary"].startswith("Rank 1 ")
    assert line_of(line) in verdict["summary"]


def test_a_collective_that_one_rank_alone_calls(model: Path, tmp_path: Path) -> None:
    with job("torchrun", "branch", model, tmp_path) as training:
        verdict = verdict_on(training)
    assert verdict["class"] in ("collective-mismatch", "collective-skipped")
    assert "broadcast" in verdict["summary"]
    text = " ".join([verdict["summary"], *(item["text"] for item in verdict["evidence"])])
    assert line_of("dist.broadcast(torch.ones(3), src=GUILTY)") in text


def test_a_worker_of_the_loader(model: Path, tmp_path: Path) -> None:
    with job("accelerate", "loader", model, tmp_path) as training:
        verdict = verdict_on(training)
    assert (verdict["class"], verdict["phase"]) == ("dataload-blocked", "dataload")
    assert "train_grpo.py" in verdict["summary"]
