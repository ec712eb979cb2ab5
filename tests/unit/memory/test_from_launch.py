"""Launches as people type them, as setups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.errors import UsageError
from grpo_doctor.launches import read
from grpo_doctor.memory import Job, Machine, Setup, card_bytes, estimate, fixes, setup_of
from grpo_doctor.memory.engine import engine_of
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.models import UnknownModelError

SWIFT = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-7B-Instruct --train_type lora "
    "--deepspeed zero2 --use_vllm true --vllm_gpu_memory_utilization 0.8 --max_length 2048 "
    "--per_device_train_batch_size 2 --num_generations 8 --max_completion_length 1024"
)
EIGHT = Machine(card_bytes("A100-80G"), 8)
FOUR_SMALL = Machine(card_bytes("3090"), 4)


def job(command: str, machine: Machine = EIGHT, cwd: Path | None = None, **versions: str) -> Job:
    packages = {name.replace("_", "-"): version for name, version in versions.items()}
    return setup_of(read([command], versions=packages, environment={}, cwd=cwd), machine)


def trainer(
    command: str, machine: Machine = EIGHT, cwd: Path | None = None, **versions: str
) -> Setup:
    setup = job(command, machine, cwd, **versions).trainer
    assert setup is not None
    return setup


def test_the_users_launch_on_four_3090_runs_out_and_is_told_what_fits() -> None:
    launch = read([SWIFT], versions={"ms-swift": "3.4.0"})
    ledger = estimate(launch, FOUR_SMALL)
    assert ledger.state in ("oom", "invalid")
    assert any("NPROC_PER_NODE" in text for text in launch.assumptions)
    made = setup_of(launch, FOUR_SMALL)
    assert made.trainer is not None
    change = fixes(made.trainer, made.server)
    assert change is not None
    assert change.ledger.state == "fits"


@pytest.mark.parametrize(("version", "groups"), [("3.11.0", 16), ("3.12.3", None), ("4.6.0", 16)])
def test_ms_swift_3_12_gathers_everything_at_once(version: str, groups: int | None) -> None:
    command = SWIFT.replace("zero2", "zero3") + " --vllm_mode colocate --move_model_batches 16"
    assert trainer("NPROC_PER_NODE=8 " + command, ms_swift=version).sync_groups == groups


QWEN_VL = (
    "MAX_PIXELS=602112 NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --train_type full "
    "--model Qwen/Qwen2.5-VL-3B-Instruct --freeze_vit False --per_device_train_batch_size 8 "
    "--max_length 2048 --max_completion_length 1024 --gradient_accumulation_steps $(expr 16 / 4) "
    "--num_generations 8 --deepspeed zero3"
)
"""Ran out of memory on 4 cards of 90 GB: ms-swift issue 4311."""


def test_a_rollout_by_an_old_qwen_vl_holds_a_mask_of_all_patches() -> None:
    ledger = estimate(read([QWEN_VL], versions={"ms-swift": "3.5.0"}), Machine(90 * 10**9, 4))
    assert ledger.state in ("tight", "oom")
    assert ledger.train.peak.name == "rollout"
    sizes = {entry.name: entry.bytes for entry in ledger.train.peak.components}
    assert sizes["mask of the vision tower"] == 3 * (8 * 4 * 768 * 4) ** 2


@pytest.mark.parametrize(("version", "share"), [("0.12.0", 0.9), ("0.24.0", 0.92)])
def test_a_server_alone_has_the_share_of_its_version(version: str, share: float) -> None:
    made = job("vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4", vllm=version)
    assert made.trainer is None
    assert made.server is not None
    assert made.server.rollout_engine.memory_share == share
    launch = read(["vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4"])
    assert estimate(launch, EIGHT).state == "fits"


@pytest.mark.parametrize(("host", "is_said"), [("127.0.0.1", True), ("10.0.0.2", False)])
def test_a_server_on_this_host_is_not_counted_and_that_is_said(host: str, is_said: bool) -> None:
    command = f"python -m verl.trainer.main_ppo retriever.url=http://{host}:8000/retrieve"
    made = job(f"{command} actor_rollout_ref.model.path=Qwen/Qwen2.5-7B")
    server = f"the server at http://{host}:8000/retrieve (retriever.url)"
    assert (f"{server} takes no memory of these GPUs" in made.assumptions) == is_said


def test_ms_swift_before_4_takes_its_model_from_ckpt_dir() -> None:
    launch = "swift rlhf --rlhf_type grpo --ckpt_dir /models/Qwen2.5-7B "
    assert trainer(launch, ms_swift="3.4.0").model.name == "Qwen/Qwen2.5-7B"
    both = trainer(f"{launch} --model Qwen/Qwen2.5-3B", ms_swift="3.4.0")  # of adapters
    assert both.model.name == "Qwen/Qwen2.5-3B"


def test_a_launch_without_a_model_is_refused() -> None:
    with pytest.raises(UsageError, match="names no model"):
        job("swift rlhf --rlhf_type grpo")


def test_an_unknown_model_says_what_to_do() -> None:
    with pytest.raises(UnknownModelError, match="local folder"):
        job(SWIFT.replace("Qwen/Qwen2-7B-Instruct", "Nobody/Knows-It"))


def test_verls_megatron_divides_and_offloads_by_its_own_keys() -> None:
    command = (
        "python -m verl.trainer.main_ppo model_engine=megatron algorithm.adv_estimator=grpo "
        "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B trainer.n_gpus_per_node=8 "
        "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.actor.megatron.param_offload=True "
        "actor_rollout_ref.actor.megatron.optimizer_offload=True "
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
        "actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 "
        "+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True "
        "+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=0.5"
    )
    setup = trainer(command)
    assert (setup.engine, setup.tensor_parallel) == ("megatron", 2)
    assert setup.expert_parallel == 2 * 8  # each expert is divided as each layer is
    whole = command + " actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1"
    assert trainer(whole).expert_parallel == 8
    assert (setup.offload_weights, setup.offload_optimizer) == (True, True)
    assert setup.optimizer_offload_share == 0.5
    launch = read([command])
    assert launch.spell("offload.model", False) == (
        "actor_rollout_ref.actor.megatron.param_offload=false"
    )


def test_asynchronous_openrlhf_has_its_engines_elsewhere() -> None:
    command = "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen3-8B "
    assert trainer(command + "--train.colocate_all").rollout == "colocate"
    assert trainer(command + "--train.colocate_all --train.async_enable").rollout == "server"


def test_qwen3_of_july_2025_reads_longer() -> None:
    setup = trainer("NPROC_PER_NODE=8 " + SWIFT.replace("Qwen2-7B", "Qwen3-4B") + " ")
    assert setup.model.max_positions == 40_960
    setup = trainer(
        "NPROC_PER_NODE=8 " + SWIFT.replace("Qwen2-7B-Instruct", "Qwen3-4B-Thinking-2507")
    )
    assert setup.model.max_positions == 262_144


def test_a_server_is_sent_weights_in_groups_to_make_room() -> None:
    command = (
        "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-32B-Instruct "
        "--tuner_type full --use_vllm true --vllm_mode server --deepspeed zero3 --beta 0 "
        "--max_completion_length 2048"
    )
    change = fixes(trainer(command, Machine(card_bytes("H20"), 8), ms_swift="4.6.0"))
    assert change is not None
    assert [(edit.knob, edit.value) for edit in change.edits] == [("sync.move_model_batches", 16)]


@pytest.mark.parametrize(
    ("verl", "vllm", "level", "asleep"),
    [
        ("0.2.0", None, 0, ["engine cache and buffers", "CUDA graphs"]),  # weights on the host
        ("0.2.0", "0.8.3", 1, ["engine asleep", "CUDA graphs"]),
        ("0.4.1", None, 1, ["engine asleep", "CUDA graphs"]),
        ("0.5.0", None, 0, ["engine weights", "engine cache and buffers", "CUDA graphs"]),
    ],
)
def test_verl_before_0_5_puts_its_engine_to_sleep_whatever_is_set(
    verl: str, vllm: str | None, level: int, asleep: list[str]
) -> None:
    command = (
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.rollout.free_cache_engine=False"
    )
    done = job(command, replace(EIGHT, vllm_version=vllm), verl=verl)
    assert done.trainer is not None
    assert done.trainer.rollout_engine.sleep_level == level
    assert [part.name for part in engine_of(done.trainer, calibration()).asleep] == asleep
    assumed = any(sentence.startswith("vLLM 0.6.3, which") for sentence in done.assumptions)
    assert assumed == (verl == "0.2.0" and vllm is None)


LOADED = """
from trl import GRPOConfig, GRPOTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B"{loaded})
args = GRPOConfig(output_dir="o"{made})
GRPOTrainer(model=model, args=args)
"""


@pytest.mark.parametrize(
    ("loaded", "made", "versions", "size"),
    [
        ("", "", {"trl": "0.17.0"}, 4),
        ("", "", {"trl": "0.17.0", "transformers": "5.1.0"}, 2),
        ("", "", {"trl": "0.27.0"}, 4),
        ("", "", {"trl": "1.16.0"}, 2),  # with transformers 5
        (", torch_dtype=torch.bfloat16", "", {"trl": "0.27.0"}, 2),
        (", dtype='float32'", "", {"trl": "0.17.0"}, 4),
        (", torch_dtype=kind", "", {"trl": "0.17.0"}, 2),
        ("", ", model_init_kwargs={'torch_dtype': torch.bfloat16}", {"trl": "0.17.0"}, 2),
        ("", ", model_init_kwargs=dict(dtype='float16')", {"trl": "0.27.0"}, 2),
    ],
)
def test_the_dtype_in_which_a_script_loads_its_model(
    loaded: str, made: str, versions: dict[str, str], size: int, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(LOADED.format(loaded=loaded, made=made))
    assert trainer("python t.py", EIGHT, tmp_path, **versions).trained_dtype_bytes == size


QUANTIZED = """
from trl import GRPOConfig, GRPOTrainer
bits = {bits}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", {given})
GRPOTrainer(model=model, args=GRPOConfig(output_dir="o"), peft_config=LoraConfig(r=8))
"""
OF_BITS = "BitsAndBytesConfig(load_in_4bit=True)"


@pytest.mark.parametrize(
    ("bits", "given", "loaded"),
    [
        (OF_BITS, "quantization_config=bits", 4),
        (OF_BITS, "", 16),
        ("None", "load_in_8bit=True", 8),
        (f"{OF_BITS} if ok else None", "quantization_config=bits", None),
        (f"{OF_BITS} if __name__ == '__main__' else None", "quantization_config=bits", 4),
        (f"{OF_BITS} if not a.quantize else 0", "quantization_config=bits", 4),
        ("Bits(load_in_4bit=a.quantize or a.x)", "quantization_config=bits", None),
        ("Bits(load_in_4bit=a.quantize)", "quantization_config=bits", 16),
        ("Bits(load_in_4bit=a.unsaid)", "quantization_config=bits", None),
    ],
)
def test_the_bits_in_which_a_script_loads_its_model(
    bits: str, given: str, loaded: int | None, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(QUANTIZED.format(bits=bits, given=given))
    launch = read(["python t.py --quantize false"], environment={}, cwd=tmp_path)
    setup = setup_of(launch, EIGHT).trainer
    assert setup is not None
    problems = [problem.text for problem in launch.problems]
    assert any("computes load_in_4bit" in text for text in problems) is (loaded is None)
    assert loaded is None or setup.base_bits == loaded
