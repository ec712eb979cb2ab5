"""ms-swift's own GRPO jobs under `grpo-doctor run`: phases against the job's own stopwatch.

Each version has an environment of its own in FRAMEWORK_ENVIRONMENTS (see `environments`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import unattributed_span_seconds
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.read import load
from tests.frameworks.environments import python_of
from tests.frameworks.inputs import write_model, write_prompts
from tests.frameworks.recorded_jobs import ENVIRONMENTS, phase_seconds, recording, stopwatch
from tests.ports import free_port

PLUGIN = Path(__file__).parent / "user_code" / "swift_stopwatch.py"
MEGATRON = PLUGIN.with_name("swift_megatron.py")
VERSIONS = {"4.6.0": "env-swift", "4.4.0": "env-swift-4.4", "3.12.0": "env-swift-3.12"}
NEWEST = "4.6.0"
SECONDS = {"reward": 0.3, "judge": 0.1, "dataload": 0.3, "callback": 0.2}
STEPS = 6
LOGGED = ("loss", "reward", "reward_std", "grad_norm", "kl")

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@dataclass(frozen=True)
class Done:
    version: str
    code: int
    folder: Path
    stderr: str

    @property
    def losses(self) -> list[dict[str, Any]]:
        (log,) = self.folder.glob("out/**/logging.jsonl")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        return [{name: row[name] for name in LOGGED} for row in rows if "loss" in row]

    @property
    def stopwatch(self) -> dict[str, float]:
        return stopwatch(self.folder)


def job(folder: Path, *prefix: str, version: str = NEWEST, fail_at: int = 0) -> Done:
    python = python_of(ENVIRONMENTS / VERSIONS[version])
    if not python.exists():
        pytest.skip(f"no environment with ms-swift {version} in {ENVIRONMENTS}")
    folder.mkdir()
    model, data = write_model(folder / "model"), write_prompts(folder / "data")
    old = version.startswith("3")
    if old:  # reads no tokenizer that a newer transformers wrote
        settings = model / "tokenizer_config.json"
        text = settings.read_text().replace("TokenizersBackend", "PreTrainedTokenizerFast")
        settings.write_text(text)
    options = {
        "rlhf_type": "grpo", "model": model, "model_type": "qwen2", "template": "qwen2_5",
        "external_plugins": PLUGIN, "train_type" if old else "tuner_type": "lora",
        "torch_dtype": "float32", "dataset": data / "swift.jsonl", "use_cpu": "true",
        "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 16,
        "max_steps": STEPS, "logging_steps": 1, "save_strategy": "no", "eval_strategy": "no",
        "split_dataset_ratio": 0, "report_to": "none", "output_dir": folder / "out",
        "dataset_num_proc": 1, "dataloader_num_workers": 0, "ddp_backend": "gloo", "seed": 3,
        "beta": 0.04, **({} if old else {"callbacks": "slow"}),
    }  # fmt: skip
    words = [str(python.with_name("swift")), "rlhf", "--reward_funcs", "length", "judge"]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    done = subprocess.run(
        [*prefix, *words], cwd=folder, env=_environment(folder, python, fail_at),
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    return Done(version, done.returncode, folder, done.stderr)


def _environment(folder: Path, python: Path, fail_at: int) -> dict[str, str]:
    return {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu",
        "TOKENIZERS_PARALLELISM": "false", "NPROC_PER_NODE": "2", "MASTER_PORT": str(free_port()),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "TIMES": json.dumps(SECONDS), "FOLDER": str(folder), "FAIL_AT": str(fail_at),
    }  # fmt: skip


def recorded(folder: Path, **options: Any) -> Done:
    return job(folder, *recording(Path(f"{folder}.run")), **options)


@pytest.fixture(scope="module", params=list(VERSIONS))
def hooked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    done = recorded(tmp_path_factory.mktemp("swift") / "hooked", version=request.param)
    assert done.code == 0, done.stderr[-3000:]
    return done


def test_injected_sleeps_come_back_in_their_phases(hooked: Done) -> None:
    analysis = analyse(load(str(hooked.folder) + ".run"))
    assert len(analysis.steps.numbers) == STEPS
    seconds = phase_seconds(analysis)
    truth = hooked.stopwatch
    # The phase has its own work beside the sleeps: the other rank's rewards are waited for.
    assert truth["dataload"] * 0.95 <= seconds["dataload"] <= truth["dataload"] * 1.3
    rewards = truth["reward"] + truth["judge"]
    assert rewards * 0.95 <= seconds["reward"] <= rewards * 1.3
    callback = unattributed_span_seconds(analysis)["callback/Slow.on_step_end"]
    assert callback == pytest.approx(truth["callback"] / STEPS, rel=0.05)
    unnamed = analysis.share("unattributed") - callback / float(analysis.step_seconds.mean())
    assert unnamed < 0.05
    assert min(seconds[phase] for phase in ("rollout", "logprob", "train", "optimizer")) > 0


def test_each_reward_has_its_time(hooked: Done) -> None:
    trace = load(str(hooked.folder) + ".run")
    spans = trace.spans
    first = next(index for index, process in enumerate(trace.processes) if process.rank == 0)
    for name, part in (("reward/Length", "reward"), ("reward/Judge", "judge")):
        rows = (spans.name == list(trace.names).index(name)) & (spans.process == first)
        took = float((spans.end_ns[rows] - spans.start_ns[rows]).sum()) / 1e9
        assert took == pytest.approx(hooked.stopwatch[part], rel=0.05)


def test_the_report_speaks_of_ms_swift(hooked: Done) -> None:
    trace = load(str(hooked.folder) + ".run")
    assert (trace.run.framework, trace.run.framework_version) == ("ms-swift", hooked.version)
    assert trace.run.knobs["train.type"] == "lora"
    assert trace.run.knobs["rollout.num_generations"] == 4
    assert not trace.loss.notes


def test_losses_rewards_and_exit_code_are_those_of_the_job_alone(
    hooked: Done, tmp_path: Path
) -> None:
    alone = job(tmp_path / "alone", version=hooked.version)
    assert alone.code == 0
    assert alone.losses == hooked.losses


def test_a_failing_reward_ends_the_job_as_it_does_alone(tmp_path: Path) -> None:
    alone = job(tmp_path / "alone", fail_at=2)
    hooked = recorded(tmp_path / "hooked", fail_at=2)
    assert alone.code == hooked.code != 0
    assert "no reward for this one" in hooked.stderr


def test_the_real_trainer_on_megatron_has_its_phases(tmp_path: Path) -> None:
    python = python_of(ENVIRONMENTS / VERSIONS[NEWEST])
    if not python.exists():
        pytest.skip(f"no environment with ms-swift {NEWEST} in {ENVIRONMENTS}")
    calls = {"dataload": 1, "rollout": 1, "reward": 1, "logprob": 4, "train": 2, "optimizer": 1}
    calls["sync"] = 1
    environment = {
        **_environment(tmp_path, python, 0),
        "TIMES": json.dumps(dict.fromkeys(calls, 0.2)),
    }
    run = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "grpo_doctor", "run", "-o", str(run), "--", str(python), MEGATRON],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    trace = load(run)
    analysis = analyse(trace)
    assert list(analysis.steps.numbers) == [1, 2, 3]
    assert (trace.run.framework, trace.run.framework_version) == ("ms-swift", NEWEST)
    assert trace.run.knobs["train.dtype"] == "bfloat16"
    assert analysis.share("unattributed") < 0.05
    for phase, count in calls.items():
        seconds = analysis.seconds[:, 0, PHASES.index(phase)]
        assert seconds.mean() == pytest.approx(0.2 * count, rel=0.25), phase
    assert analysis.seconds[:, 0, PHASES.index("offload")].min() > 0
