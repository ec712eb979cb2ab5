"""GPUs of OpenRLHF's groups, required options, files and rewards: GL064 to GL067."""

from __future__ import annotations

from grpo_doctor.launches.view import Host
from tests.unit.launches.pairs import APART, MEGATRON, OPENRLHF, PLUGIN, REWARDS, SWIFT, TRL, VERL
from tests.unit.launches.rules.edges.edge import FLAWED, SOUND, Edge, cards

HERE = Host(is_here=True)
NO_KL = "--algo.kl.init_coef 0"
OLD = (
    "python -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 1 --ref_num_gpus_per_node 1 "
    "--critic_num_gpus_per_node 1 --reward_num_gpus_per_node 1 --vllm_num_engines 1 "
)
GROUPED = f"{OLD} --advantage_estimator group_norm"
GIVEN = "--pretrain m --prompt_data d"
CUSTOM = f"{VERL} custom_reward_function.path={REWARDS}/top_level.py custom_reward_function.name="
EDGES = (
    Edge("GL064", APART, SOUND, cards(20)),  # 8 for the actor, 8 for its reference, 4 engines
    Edge("GL064", APART, FLAWED, cards(19)),
    Edge("GL064", APART, SOUND, Host(cards_per_node=10, nodes=2)),
    Edge("GL064", f"{APART} --train.colocate_actor_ref", SOUND, cards(12)),
    Edge("GL064", f"{APART} --train.colocate_actor_ref", FLAWED, cards(11)),
    Edge("GL064", f"{APART} --train.colocate_all --vllm.num_engines 8", SOUND, cards(8)),
    Edge("GL064", f"{APART} --train.colocate_all --train.async_enable", FLAWED, cards(11)),
    Edge("GL064", f"{APART} {NO_KL} --vllm.tensor_parallel_size 2", FLAWED, cards(15)),
    Edge("GL064", f"{APART} {NO_KL} --actor.num_nodes 2", SOUND, cards(8)),  # of how many hosts?
    Edge("GL064", f"{APART} --ref.num_gpus_per_node $N", SOUND, cards(12)),
    Edge("GL064", APART, SOUND, Host()),
    Edge("GL064", GROUPED, FLAWED, cards(3)),
    Edge("GL064", GROUPED, SOUND, cards(4)),
    Edge("GL064", f"ray job submit -- {GROUPED}", FLAWED, cards(3)),  # reported, and not a no
    Edge("GL064", f"{GROUPED} --agent_func_path a.py", SOUND, cards(3)),
    Edge("GL064", OLD, FLAWED, cards(4)),  # PPO: with a critic
    Edge("GL064", OLD, SOUND, cards(5)),
    Edge("GL064", f"{OLD} --colocate_critic_reward", SOUND, cards(4)),
    Edge("GL064", f"{OLD} --colocate_all_models --colocate_critic_reward", FLAWED, cards(1)),
    Edge("GL064", f"{OLD} --colocate_all_models", SOUND, cards(1)),
    Edge("GL064", OLD.replace("ppo_ray", "dpo"), SOUND, cards(1)),
    Edge("GL065", SWIFT, FLAWED),
    Edge("GL065", SWIFT + "--dataset x --reward_model m", SOUND),
    Edge("GL065", SWIFT + "--cached_dataset x --use_gym_env true", SOUND),
    Edge("GL065", SWIFT + "--reward_funcs accuracy $MORE", SOUND),
    Edge("GL065", MEGATRON + "--reward_funcs accuracy", FLAWED),
    Edge("GL065", "swift rlhf gone.yaml --rlhf_type grpo", SOUND),
    Edge("GL065", TRL, FLAWED),
    Edge("GL065", TRL + "--dataset_name x", SOUND),
    Edge("GL065", "torchrun --nproc_per_node 2 mine.py --num_generations 8", SOUND),
    Edge("GL065", GROUPED, FLAWED),
    Edge("GL065", f"{GROUPED} {GIVEN}", SOUND),
    Edge("GL065", OPENRLHF + "--algo.advantage.estimator rloo", FLAWED),
    Edge("GL065", VERL, SOUND),
    Edge("GL066", SWIFT + "--dataset gone.jsonl --model ./gone", FLAWED, HERE),
    Edge("GL066", SWIFT + "--dataset gone.jsonl --external_plugins gone.py", FLAWED),
    Edge("GL066", SWIFT + "--dataset hf::a/b:main#10 ms://a/b $DATA/x.jsonl", SOUND, HERE),
    Edge("GL066", SWIFT + PLUGIN, SOUND, HERE),
    Edge("GL066", VERL + "data.train_files=\"['/gone/a.parquet','hdfs://b.parquet']\"", FLAWED,
         HERE),
    Edge("GL066", f"{SWIFT}--dataset /tmp/gone/gone.jsonl", FLAWED, HERE),
    Edge("GL066", f"{SWIFT}--dataset /home/nobody-here/x.jsonl /home/x.jsonl", FLAWED, HERE),
    Edge("GL066", f"{GROUPED} --prompt_data a/b@c,/gone/x.jsonl", FLAWED, HERE),
    Edge("GL066", f"{GROUPED} --remote_rm_url http://10.0.0.2:5000/score", SOUND, HERE),
    Edge("GL067", SWIFT + "--reward_funcs accuracy format", SOUND),
    Edge("GL067", SWIFT + f"--reward_funcs accuracy other {PLUGIN}", FLAWED),
    Edge("GL067", SWIFT + "--reward_funcs other --external_plugins gone.py", SOUND),
    Edge("GL067", TRL + "--reward_funcs accuracy_reward mine.reward", SOUND),
    Edge("GL067", TRL + "--reward_funcs accuracy", FLAWED),
    Edge("GL067", f"{CUSTOM}compute_score", SOUND),
    Edge("GL067", f"{CUSTOM}compute_scores", FLAWED),
    Edge("GL067", f"{GROUPED} --remote_rm_url {REWARDS}/top_level.py", FLAWED),
)  # fmt: skip
