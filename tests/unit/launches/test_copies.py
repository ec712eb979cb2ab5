"""Launches next to a copy of verl, whose version, options and defaults count."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.launches import read
from grpo_doctor.launches.judge import judge
from grpo_doctor.launches.view import View
from tests.unit.launches.pairs import EIGHT, QWEN_7B
from tests.unit.launches.test_reading import problems

ROLLOUT = "actor_rollout_ref.rollout."


def test_a_copy_of_verl_in_the_folder_says_its_version(tmp_path: Path) -> None:
    command = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
        "actor_rollout_ref.actor.fsdp_config.grad_offload=true"
    )
    assert not any(problem.ends for problem in read([command], cwd=tmp_path).problems)
    copy = tmp_path / "verl/version"
    copy.mkdir(parents=True)
    for version, outside in (("0.0.9\n", "verl 0.0.9 is older than 0.1"), ("0.8.0.dev", None)):
        (copy / "version").write_text(version)
        launch = read([command], cwd=tmp_path)
        assert launch.version == version.strip()
        assert (launch.outside or "").startswith(outside or "")
        assert bool(launch.problems) == (outside is None)
    (copy / "version").write_text("0.7.0.dev")
    synchronous = read([f"{command} actor_rollout_ref.rollout.mode=sync"], cwd=tmp_path)
    assert synchronous.oldest is not None
    assert synchronous.oldest.version == "0.6.1"
    found = {j.id: j.flaw for j in judge(View(synchronous, EIGHT, QWEN_7B))}
    assert not found["GL052"].ends
    typed = read(["python3 -m verl.trainer.main_ppo trainer.n_gpu_per_node=4"], cwd=tmp_path)
    assert problems(typed)["unknown-flag"]
    assert any(problem.ends for problem in typed.problems)


def test_a_copy_above_the_script_is_the_one_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "fork/verl/version").mkdir(parents=True)
    (tmp_path / "fork/verl/version/version").write_text("0.2.0")
    (tmp_path / "fork/examples").mkdir()
    (tmp_path / "fork/examples/run.sh").write_text("python3 -m verl.trainer.main_ppo a.b=1\n")
    (tmp_path / "fork/setup.py").write_text("VLLM = ['tensordict<=0.6.2', 'vllm>=0.7,<=0.8.3.']\n")
    launch = read(["fork/examples/run.sh"], cwd=tmp_path)
    assert (launch.version, launch.versions) == ("0.2.0", {"vllm": "0.8.3"})
    assert "vLLM 0.8.3, the newest that setup.py of this copy allows" in launch.assumptions
    own = {"vllm": "0.7.3"}
    assert read(["fork/examples/run.sh"], cwd=tmp_path, versions=own).versions == own


def test_a_copy_of_verl_has_options_and_defaults_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "verl/trainer/config/ppo_trainer.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        "algorithm: {adv_estimator: grpo}\ndata: {max_obs_length: 500, train_batch_size: 1024}\n"
        "actor_rollout_ref: {rollout: {n: 1, n_agent: 1, gpu_memory_utilization: 0.3, name: '???'},"
        " actor: {optim: {lr: 1e-6}, kl_loss_coef: 0.001}}\n"
    )
    (tmp_path / "verl/version").mkdir()
    (tmp_path / "verl/version/version").write_text("0.2.0")
    command = (
        "python3 -m verl.trainer.main_ppo data.max_obs_length=9 data.train_batch_size=256 "
        "actor_rollout_ref.rollout.n_agent=5"
    )
    launch = read([command], cwd=tmp_path)
    assert (launch.trainer, launch.options["data.train_batch_size"]) == ("grpo", "256")
    taken = {name for name in launch.options if name.startswith("actor_rollout_ref.")}
    assert taken == {f"{ROLLOUT}n_agent", f"{ROLLOUT}gpu_memory_utilization"}
    assert launch.settings["vllm.gpu_memory_utilization"] == 0.3
    assert not launch.problems
    found = {judged.id: judged.flaw for judged in judge(View(launch, EIGHT, QWEN_7B))}
    assert "GL006" not in found
    # No fix is a key that this copy lacks, whatever its version has.
    lacking = [f"actor_rollout_ref.{key}_micro_batch_size_per_gpu=1" for key in
               ("actor.ppo", "rollout.log_prob")]  # fmt: skip
    assert list(found["GL011"].fixes) == lacking
    assert (
        launch.spell("vllm.gpu_memory_utilization", 0.4) == f"{ROLLOUT}gpu_memory_utilization=0.4"
    )
    assert launch.spell("checkpoint.save_total_limit", 2) is None
    (tmp_path / "verl/trainer/main_ppo.py").write_text("@hydra.main(config_name='long_trainer')")
    config.with_name("long_trainer.yaml").write_text("data: {max_obs_length: 2}")
    (strange,) = read([command], cwd=tmp_path).problems
    assert "n_agent" in strange.text
    (tmp_path / "verl/trainer/main_ppo.py").unlink()
    config.write_text("trainer: {max_actor_ckpt_to_keep: null}")
    assert read([command], cwd=tmp_path).versions == {"vllm": "0.8.2"}
    config.write_text("- no mapping")
    launch = read([command], cwd=tmp_path)
    assert launch.trainer == "ppo"
    assert problems(launch).keys() == {"unknown-flag"}
