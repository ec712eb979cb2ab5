"""Launches of many forms, and all that is read and judged of each: `readings.txt` beside this.

`python -m tests.unit.launches.readings` writes that file again; look at what changed in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from grpo_doctor.errors import UsageError
from grpo_doctor.launches import Launch, read
from grpo_doctor.launches.judge import judge
from grpo_doctor.launches.view import View
from tests.unit.launches.pairs import (
    EIGHT,
    MEGATRON,
    OPENRLHF,
    PAIRS,
    QWEN_7B,
    SWIFT,
    TRL,
    VERL,
)

RECORDED = Path(__file__).with_name("readings.txt")
BARE = "swift rlhf --rlhf_type grpo --model m "
PPO = "python -m verl.trainer.main_ppo "
MEGATRON_OF_VERL = "actor_rollout_ref.actor.strategy=megatron"
FILES = {
    "ds.json": '{\n "zero_optimization": {\n  "stage": 3,\n  "overlap_comm": true,\n'
    '  "offload_optimizer": {"device": "cpu"}\n }\n}\n',
    "ds.yaml": "zero_optimization:\n  stage: 1\n",
    "fsdp1.yaml": "distributed_type: FSDP\nmixed_precision: fp16\nnum_processes: 4\n"
    "fsdp_config:\n  fsdp_reshard_after_forward: FULL_SHARD\n  fsdp_offload_params: true\n",
    "fsdp2.yaml": "distributed_type: fsdp\nnum_processes: 16\nnum_machines: 2\nfsdp_config:\n"
    "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n  fsdp_offload_params: 'yes'\n",
    "multi.yaml": "distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_machines: 0\n"
    "fsdp_config: {fsdp_version: 2}\ndeepspeed_config: none\n",
    "zero.yaml": "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n"
    "  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: nvme\n",
    "named.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n"
    "  deepspeed_config_file: ds.json\n",
    "listed.yaml": "distributed_type: FSDP\nfsdp_config: [1]\n",
    "swift.yaml": "rlhf_type: grpo\nmodel: m\nnum-generations: 4\nENV:\n  NPROC_PER_NODE: 2\n"
    "  HOME: /root\n",
    "vllm.yaml": "tensor-parallel-size: 4\nmodel: of-the-file\n",
    "list.json": "[1, 2]\n",
    "own/ppo_trainer.yaml": "actor_rollout_ref:\n  rollout:\n    n: 4\n    name: ${x}\n"
    "  actor: {}\ntrainer:\n  nnodes: 3\n",
    "own/mine.yaml": "trainer:\n  n_gpus_per_node: 2\n",
    "train.py": "from trl import GRPOConfig, GRPOTrainer\nfrom peft import LoraConfig\n"
    "N = 8\nM = 2\nM = 3\nA, B = 1, 2\nd = {}\nd['x'] = 5\n"
    "args = GRPOConfig('x', num_generations=N, max_completion_length=M, beta=open('x'),"
    " use_vllm=True, **d)\n"
    "peft = LoraConfig(r=16, target_modules=['q'], lora_alpha=A)\nprint('x')\n"
    "model = AutoModel.from_pretrained('Qwen/Qwen3-4B')\n",
    "other.py": "args = RLOOConfig(num_generations=4)\n"
    "m = AutoModelForCausalLM.from_pretrained(pretrained_model_name_or_path='m')\n"
    "t = GRPOTrainer(model=m)\ntok = AutoTokenizer.from_pretrained('tok')\n",
    "async.py": "c = AsyncGRPOConfig()\nt = trl.AsyncGRPOTrainer('Qwen/Qwen3-4B', args=c)\n",
    "spread.py": "c = GRPOConfig(**{'beta': 0.5}, num_generations=make(), temperature=0.5)\n"
    "print(beta=0.5)\nLoraConfig(r=4)\n",
    "nothing.py": "print('hello')\n",
    "broken.py": "def (:\n",
    "train.sh": "swift rlhf --rlhf_type grpo --model m --beta 0.3\n",
    "deep/a.sh": "bash deep/b.sh\n",
    "deep/b.sh": "cd deep && swift rlhf --rlhf_type grpo --model m --deepspeed ds.json\n",
    "two.sh": "export NPROC_PER_NODE=4\nCUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --model m "
    "--tensor_parallel_size 2 &\nswift rlhf --model a\nswift rlhf --model b\npython nothing.py\n",
}
COMMANDS = (
    "--model m --max_steps 3 --num_generations 0",
    BARE + "--deepspeed ds.json --num_generations 8 --num_generations 8",
    BARE + "--deepspeed ds.yaml",
    BARE + "--deepspeed list.json",
    BARE + "--deepspeed missing.json",
    BARE + """--deepspeed '{"zero_optimization": {"stage": 2}}'""",
    BARE + "--deepspeed '{broken' --lora_rank none --beta -.5",
    BARE + "--deepspeed zero3_offload --use_vllm",
    BARE + "--use_ray true --vllm_gpu_memory_utilization= --learning_rate 1e-5x",
    BARE + "--no_gradient_checkpointing --no_such_thing 1 --num_gene 4 --num_generation 4",
    BARE + "--num_generations $N --beta $B$C --no_cuda true --tp 2",
    "NPROC_PER_NODE=$N " + BARE,
    "NNODES=2 " + BARE,
    "NNODES=$N NPROC_PER_NODE=2 " + BARE,
    "NPROC_PER_NODE= " + BARE,
    "NPROC_PER_NODE=two " + BARE,
    "CUDA_VISIBLE_DEVICES=' 1, 2,' NPROC_PER_NODE=2 MAX_PIXELS=many " + BARE,
    "CUDA_VISIBLE_DEVICES=$GPUS MAX_PIXELS=1003520 HOME=/x NCCL_DEBUG=INFO " + BARE,
    "swift rlhf swift.yaml --beta 0.1",
    "swift rlhf list.json",
    "swift rlhf words --model m",
    "swift sft --model m",
    "NPROC_PER_NODE=2 swift pt --model m",
    "swift deploy --model m --vllm_tensor_parallel_size 2",
    "swift rollout --model m --vllm_tensor_parallel_size 2 --port 8001",
    "swift export --model m",
    "megatron export --model m",
    "NPROC_PER_NODE=2 python swift/cli/_megatron/rlhf.py --model m --train_type lora",
    "python -u -X dev -W ignore swift/cli/rlhf.py --model m",
    "python -m swift.cli.main",
    "python -m swift.cli.rollout --model m",
    MEGATRON + "--save x --num_workers 2 --tensor_model_parallel_size 2",
    "trl grpo --config ds.yaml --accelerate_config fsdp1.yaml --model_name_or_path m",
    "trl grpo --config_file zero.yaml --num_processes 6 --num_machines 2 --local_rank 1",
    "trl grpo --accelerate_config fsdp2 --model_name_or_path m --torch_dtype bfloat16",
    "trl env",
    "trl",
    "trl --version",
    "trl sft --model_name_or_path m --anything 1",
    "trl vllm-serve --model m --tensor_parallel_size 2",
    "python trl/scripts/vllm_serve.py --model m",
    "python -m trl.scripts.grpo --model_name_or_path m",
    "accelerate launch --config_file fsdp1.yaml train.py --num_generations 2",
    "accelerate launch --config_file fsdp2.yaml other.py",
    "accelerate launch --config_file multi.yaml train.py",
    "accelerate launch --config_file zero.yaml --multi_gpu --quiet train.py --beta 0.1",
    "accelerate launch --config_file named.yaml python -u other.py",
    "accelerate launch --config_file listed.yaml other.py",
    "accelerate launch --config_file=fsdp1.yaml --num_processes 2 -m swift rlhf --model m",
    "accelerate launch --config_file zero.yaml --zero_stage 2 other.py",
    "accelerate launch --use_deepspeed --offload_optimizer_device cpu other.py",
    "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_offload_params true other.py",
    "accelerate launch --gpu_ids all --num_processes 4 async.py",
    "accelerate launch --gpu_ids 1,2 broken.py --deepspeed ds.json",
    "accelerate launch",
    "accelerate config",
    "accelerate launch python",
    "python -m accelerate.commands.launch --num_processes 2 other.py",
    "python -m accelerate launch --num_processes 2 other.py",
    "python -m accelerate",
    "python -m deepspeed --num_gpus 2 --num_nodes 3 other.py",
    "python -m deepspeed.launcher.runner --num_gpus 2 other.py",
    "deepspeed --include localhost:0,3 --module other.py",
    "deepspeed other.py",
    "python -m torch.distributed.launch --nproc_per_node 4 --nnodes 2 --use_env other.py",
    "torchrun --nproc-per-node auto --nnodes $N --standalone other.py",
    "torchrun --nproc_per_node $N other.py",
    "torchrun --nproc_per_node=many --nnodes 1:4 other.py",
    "torchrun --nproc_per_node",
    "python train.py",
    "./train.py --x 1",
    "python nothing.py",
    "python spread.py",
    "python gone.py",
    "python -c 'import x'",
    "time env A=1 CUDA_VISIBLE_DEVICES=3 python other.py",
    "timeout 5 nsys profile -o x swift rlhf --model m",
    "conda run -n env swift rlhf --model m",
    "srun",
    "ls -l",
    "bash train.sh",
    "nohup bash train.sh > log 2>&1 &",
    "bash deep/a.sh",
    "bash two.sh",
    "bash gone.sh",
    "gone.sh",
    "bash -lc 'cd deep && swift rlhf --model m --deepspeed ../ds.json'",
    "A=$B bash -c 'swift rlhf --model $A --beta 0.1'",
    "cd nowhere; " + BARE + "--deepspeed ds.json",
    PPO + "algorithm.adv_estimator=grpo trainer.nnodes=$N trainer.n_gpus_per_node=4",
    PPO + "--config-name=ppo_megatron_trainer.yaml actor_rollout_ref.rollout.name=vllm",
    PPO + "--config-name ppo_trainer",
    PPO + "--config-name",
    PPO + "--config-name mine --config-path own",
    PPO + "-cp own",
    PPO + "--config-dir=file://own -cn mine trainer.nnodes=5",
    PPO + "-cd gone trainer.nope=5",
    PPO + "model_engine=megatron",
    PPO + "model_engine=dp trainer.nnodes=2",
    PPO + "model_engine=veomni",
    PPO + MEGATRON_OF_VERL + " trainer.n_gpus_per_node=x",
    PPO + "+trainer.nnodes=2 +trainer.new=1 ++trainer.any=2 ~trainer.logger hydra.run.dir=x",
    PPO + "+trainer.logger=[a,b] data.train_batch_siz=4 trainer@x=1 '' words",
    PPO + "actor_rollout_ref.model.lora_rank=16 actor_rollout_ref.rollout.n='8'",
    PPO + "actor_rollout_ref.model.lora_rank=0 reward_model.launch_reward_fn_async=True",
    PPO + "a.b=1 a.c=2",
    PPO + "data.rollout_n=1 trainer.nnodess=2 actor_rollout_ref.rollout.nn=1 rollout.name=vllm",
    "B=2; declare A=1 B; A=3; export A; B=4; python other.py ${A:?no} ${A+x} ${#A} $((B*2))",
    "N=1; if x; then N=2; else N=3; M=4; fi; N+=1; swift rlhf --model $N$M --beta ${B:-0.${M}}",
    "swift rlhf --model m --num_generations $((" + "8" + " " * 199 + "))",
    "swift rlhf --model m --num_generations $((" + "8" + " " * 200 + "))",
    "swift rlhf --model m --num_generations $(('1' + 'x')) --max_length $((8 / 0)) --beta $((-2))",
    "python -m verl.trainer.main_eval a.b=1",
    "python -m recipe.dapo.main_dapo a.b=1",
    VERL + "custom_reward_function.path=train.py custom_reward_function.name=gone",
    OPENRLHF + "--actor.num_nodes 2 --rollout.async_train",
    (
        "python -m openrlhf.cli.train_ppo_ray --actor_num_nodes $N --lora_rank 8 --async_train "
        "--advantage_estimator group_norm --colocate_all_models"
    ),
    "python -m openrlhf.cli.train_sft --pretrain m --zero_stage 3",
    (
        'ray job submit --runtime-env-json=\'{"env_vars": {"NCCL_DEBUG": "INFO", "A": 1}}\' '
        "-- python -m verl.trainer.main_ppo trainer.nnodes=2"
    ),
    "ray job submit --runtime-env-json='[1]' -- python -m verl.trainer.main_ppo a=1",
    "ray job submit --runtime-env-json={ -- CUDA_VISIBLE_DEVICES=1 ls",
    "ray job submit --working-dir . python -m verl.trainer.main_ppo",
    "ray start --head",
    "vllm serve m -tp 2 -O3 --max_model_len 4096 --enforce-eager --unheard-of 3",
    "vllm serve --config vllm.yaml",
    "vllm bench",
    "vllm",
    "python -m vllm.entrypoints.openai.api_server --model m -dp=2",
    "sglang serve --model m --tp 4 --ep 2 --mem-fraction-statc 0.8",
    "python -m grpo_doctor_trainer --model m --max_step 3",
    "swit rlhf",
    "toruchrun x",
)
VERSIONED = (
    (SWIFT + "--train_type lora --sleep_level 1", "4.6.0"),
    (SWIFT + "--tuner_type lora", "3.4.0"),
    (SWIFT + "--vllm_device auto --num_infer_workers 2", "3.6.0"),
    (SWIFT + "--gc_collect_after_offload true --multi_turn_func x", "3.10.0"),
    (SWIFT + "--gc_collect_after_offload true", "3.9.3"),
    (SWIFT + "--overwrite_output_dir true --vllm_enable_lora true", "3.9.0"),
    (MEGATRON + "--train_type lora --save_interval 3", "4.6.0"),
    (TRL + "--vllm_guided_decoding_regex x --torch_dtype auto", "0.29.0"),
    ("trl grpo --vllm_device auto --vllm_max_model_len 5 --max_prompt_length 5", "1.0.0"),
    (VERL + "trainer.nope=1 reward_model.launch_reward_fn_async=True +data.x=1", "0.9.1"),
    (VERL + "actor_rollout_ref.rollout.enforce_eager=True trainer.project_nam=x", "0.4.0"),
    (OPENRLHF + "--zero_stage 2 --num_gpu 3", "0.9.0"),
    ("vllm serve m --swap-space 4", "0.10.0"),
)


def answers(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command and what is read of it, line by line; its files are written to `folder`."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for command in COMMANDS:
        yield command, _answer(command, folder, {})
    for command, version in VERSIONED:
        framework = read([command]).framework
        yield f"{command} @ {version}", _answer(command, folder, {framework: version})
    for pair in PAIRS:
        versions, passing = pair.versions, pair.passing_versions or pair.versions
        yield pair.fails, _answer(pair.fails, folder, versions)[-1:]
        yield pair.passes, _answer(pair.passes, folder, passing)[-1:]


def _answer(command: str, folder: Path, versions: dict[str, str]) -> list[str]:
    arguments = command.split() if command.startswith("--") else [command]
    try:
        launch = read(arguments, cwd=folder, versions=versions)
    except UsageError as error:
        return [f"refused: {error}"]
    judged = [
        f"{each.id} {each.command}{' ends' * each.flaw.ends}{' first' * each.flaw.first}"
        for each in judge(View(launch, EIGHT, QWEN_7B))
    ]
    return [*_described(launch), *([f"judged: {', '.join(judged)}"] if judged else [])]


def _described(launch: Launch) -> Iterator[str]:
    words = (launch.framework, launch.version, launch.role, launch.subcommand, launch.backend)
    yield " ".join(word for word in words if word)
    yield (
        f"{launch.algorithm}, {launch.processes_per_node} x {launch.nodes} by "
        f"{launch.launcher or 'none'}, GPUs {launch.gpu_ids}, known {launch.processes_known}, "
        f"complete {launch.complete}, model {launch.model}"
    )
    if launch.environment:
        yield f"environment: {dict(launch.environment)}"
    for knob, value in launch.settings.items():
        source = launch.sources[knob]
        yield f"{knob} = {value!r} from {source.text!r} in {source}"
    for assumption in launch.assumptions:
        yield f"assumed: {assumption}"
    for problem in launch.problems:
        ends = " (ends)" * problem.ends
        yield f"{problem.kind}{ends}: {problem.text} | {problem.fix} | {problem.source}"
    for companion in launch.companions:
        yield from (f"  {line}" for line in _described(companion))


def rendered(folder: Path) -> str:
    """All of it as one text, a paragraph per command."""
    blocks = ("\n".join((f"$ {command}", *lines)) for command, lines in answers(folder))
    return (
        "\n\n".join(blocks).replace(str(folder), "FOLDER").replace(str(RECORDED.parents[3]), "HERE")
        + "\n"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        RECORDED.write_text(rendered(Path(temporary)), encoding="utf-8")
