"""Launches at the very edge of each flaw, and what rules say of those that have it.

`python -m tests.unit.launches.rules.edges` writes the words down anew, in `edges.txt` beside this;
read its diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_doctor.launches import read
from grpo_doctor.launches.rule import Flaw
from grpo_doctor.launches.rules import load
from grpo_doctor.launches.view import Host, ModelFacts, View
from tests.unit.launches.pairs import (
    EIGHT,
    FOUR,
    GIB,
    MEGATRON,
    OPENRLHF,
    POOL,
    QWEN_7B,
    QWEN_MOE,
    QWEN_VL,
    REWARDS,
    SERVED,
    SLEEPS,
    SWIFT,
    TRL,
    VERL,
    VLLM,
)

RECORDED = Path(__file__).with_name("edges.txt")
RULES = {rule.RULE.id: rule for rule in load()}
FLAWED, SOUND = True, False


@dataclass(frozen=True)
class Edge:
    """A launch, on a host and beside a server, and whether it has the flaw of a rule."""

    rule: str
    command: str
    flawed: bool
    host: Host = EIGHT
    model: ModelFacts | None = QWEN_7B
    versions: Mapping[str, str] = field(default_factory=dict)
    server: str | None = None

    @property
    def name(self) -> str:
        """The launch in one line, with what is unusual about it."""
        lines = " ; ".join(self.command.splitlines()).replace(str(REWARDS), "REWARDS")
        versions = " ".join(f"{name} {version}" for name, version in self.versions.items())
        unusual = (
            "" if self.host == EIGHT else str(self.host),
            "" if self.model == QWEN_7B else str(self.model),
            versions,
            f"beside {self.server}" if self.server else "",
        )
        return "  # ".join([f"{self.rule} {lines}", *filter(None, unusual)])

    def flaw(self) -> Flaw | None:
        """What the rule says."""
        launch = read([self.command], versions=self.versions)
        if self.server is not None:
            launch = replace(launch, companions=(read([self.server]),))
        return RULES[self.rule].check(View(launch, self.host, self.model))


def cards(count: int | None) -> Host:
    """A host of which only the number of GPUs is known."""
    return Host(cards_per_node=count)


def recorded() -> Iterator[str]:
    """A paragraph for each launch that has a flaw: all that is said of it."""
    for edge in EDGES:
        flaw = edge.flaw()
        if flaw is not None:
            how = ["ends the job"] * flaw.ends + ["comes first"] * flaw.first
            said = [f"{', '.join([flaw.severity, *how])}: {flaw.headline}", *flaw.evidence]
            source = [f"in {flaw.source.text}"] if flaw.source else []
            text = "\n".join([edge.name, *said, *(f"> {fix}" for fix in flaw.fixes), *source])
            yield text.replace(str(REWARDS), "REWARDS")


GRPO = "swift rlhf --rlhf_type grpo --model m "
AUTO = "torchrun --nproc_per_node auto swift/cli/rlhf.py --rlhf_type grpo"
OURS = "torchrun --nproc_per_node 1 -m grpo_doctor_trainer --model m "
ROLLOUT = "swift rollout --model Qwen/Qwen2.5-7B-Instruct "
SERVE = "vllm serve Qwen/Qwen2.5-7B-Instruct "
FULL = VLLM + "--tuner_type full "
OFFLOADED = (
    """--deepspeed '{{"zero_optimization": {{"stage": {}, "offload_param": """
    """{{"device": "cpu"}}}}}}'"""
)
MICRO, OF = "--per_device_train_batch_size", "--num_generations"
EVALUATED = "--eval_strategy steps --per_device_eval_batch_size"
COMPLETION, TENSOR = "--max_completion_length", "--vllm_tensor_parallel_size"
SHARE, SERVED_SHARE = "--vllm_gpu_memory_utilization", "--gpu-memory-utilization"
EXPANDABLE = "PYTORCH_ALLOC_CONF=expandable_segments:True"
NAMELESS = VERL.replace("actor_rollout_ref.rollout.name=vllm ", "")
ADVANTAGE = VERL.replace("algorithm.adv_estimator=grpo ", "")
BARE = VERL.replace("_micro_batch_size_per_gpu=4", "_x=1")
PROMPTS, GROUP = "data.train_batch_size=", "actor_rollout_ref.rollout.n="
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size="
TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu="
OF_2000 = "data.max_prompt_length=1000 data.max_response_length=1000"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz=True"
BY_MEGATRON = "actor_rollout_ref.actor.strategy=megatron"
ULYSSES = "actor_rollout_ref.actor.ulysses_sequence_parallel_size="
UNPADDED = "actor_rollout_ref.model.use_remove_padding="
ENGINE_OF = "actor_rollout_ref.rollout.tensor_model_parallel_size="
TENSORS, STAGES = "--tensor_model_parallel_size", "--pipeline_model_parallel_size"
MODE = "actor_rollout_ref.rollout.mode="
OLD = {"ms-swift": "3.4.1"}
CHECKPOINT = 14 * QWEN_7B.parameters
EDGES = (
    Edge("GL001", "NPROC_PER_NODE=1 " + GRPO + "--deepspeed zero3", FLAWED, cards(2)),
    Edge("GL001", "NPROC_PER_NODE=1 " + GRPO + "--deepspeed zero3", SOUND, cards(1)),
    Edge("GL001", "NPROC_PER_NODE=1 " + GRPO + "--deepspeed zero3", SOUND, cards(None)),
    Edge("GL001", "NPROC_PER_NODE=2 " + GRPO + "--deepspeed zero3", SOUND, cards(4)),
    Edge("GL001", "NPROC_PER_NODE=1 " + GRPO + "--fsdp full_shard", FLAWED, cards(9)),
    Edge("GL001", "NPROC_PER_NODE=1 " + GRPO, FLAWED, cards(3)),
    Edge("GL001", "NPROC_PER_NODE=1 " + GRPO + "--use_vllm true", FLAWED, cards(3)),
    Edge("GL001", GRPO, FLAWED, FOUR),
    Edge("GL001", GRPO, SOUND, cards(1)),
    Edge("GL001", "NNODES=2 " + GRPO, SOUND, FOUR),
    Edge("GL001", "torchrun --nproc_per_node 2 swift/cli/rlhf.py --rlhf_type grpo", SOUND, FOUR),
    Edge("GL001", "torchrun --nproc_per_node 1 swift/cli/rlhf.py --rlhf_type grpo", FLAWED, FOUR),
    Edge("GL001", TRL.replace(" 4", " 1"), FLAWED, FOUR),
    Edge("GL001", TRL, SOUND, FOUR),
    Edge("GL001", "trl grpo --model_name_or_path m --deepspeed zero2", SOUND, FOUR),
    Edge("GL001", OURS + "--deepspeed zero2", FLAWED, FOUR),
    Edge(
        "GL001",
        OURS.replace("torchrun --nproc_per_node", "accelerate launch --num_processes"),
        FLAWED,
        FOUR,
    ),
    Edge("GL001", VERL.replace("node=8", "node=1"), SOUND, FOUR),
    Edge("GL002", SWIFT, SOUND, FOUR),
    Edge("GL002", SWIFT, FLAWED, cards(3)),
    Edge("GL002", SWIFT, FLAWED, cards(1)),
    Edge("GL002", SWIFT, SOUND, cards(None)),
    Edge("GL002", "NPROC_PER_NODE=4 " + ROLLOUT, SOUND, cards(1)),
    Edge("GL003", SWIFT, SOUND, FOUR),
    Edge("GL003", SWIFT, FLAWED, cards(5)),
    Edge("GL003", SWIFT, SOUND, cards(3)),
    Edge("GL003", SWIFT, SOUND, cards(None)),
    Edge("GL003", SWIFT.replace("=4", "=2"), FLAWED, cards(3)),
    Edge("GL003", SWIFT.replace("=4", "=1"), SOUND, cards(3)),
    Edge("GL003", SERVED, SOUND, EIGHT),
    Edge("GL003", SWIFT, SOUND, EIGHT, server=ROLLOUT),
    Edge("GL003", "NPROC_PER_NODE=4 " + ROLLOUT, SOUND, EIGHT),
    Edge("GL003", SWIFT + "--use_vllm true", SOUND, EIGHT, versions=OLD),
    Edge("GL004", VLLM + f"{MICRO} 2 {OF} 9", FLAWED),
    Edge("GL004", VLLM + f"{MICRO} 1 {OF} 4", SOUND),
    Edge("GL004", VLLM + f"{MICRO} 1 {OF} 5", FLAWED),
    Edge("GL004", VLLM + f"{MICRO} 1 {OF} 0", SOUND),
    Edge("GL004", VLLM + f"{MICRO} 0 {OF} 3", SOUND),
    Edge("GL004", f"{AUTO} {OF} 3", SOUND, cards(None)),
    Edge("GL004", VLLM.replace("grpo", "gkd") + f"{MICRO} 1 {OF} 5", SOUND),
    Edge("GL004", MEGATRON + f"--micro_batch_size 1 {OF} 5", SOUND),
    Edge("GL004", VERL + f"{GROUP}5", SOUND),
    Edge("GL004", OURS + f"{MICRO} 2 {OF} 3", FLAWED),
    Edge("GL004", OURS.replace("--model m", "") + f"{MICRO} 2 {OF} 3", SOUND),
    Edge("GL004", SWIFT + f"{MICRO} 1 {OF} 4 --sequence_parallel_size 2", FLAWED),
    Edge("GL004", SWIFT + f"{MICRO} 2 {OF} 4 --sequence_parallel_size 8", FLAWED),
    Edge(
        "GL004",
        SWIFT + f"{MICRO} 1 {OF} 8 --steps_per_generation 2",
        SOUND,
        versions={"ms-swift": "3.3.0"},
    ),
    Edge(
        "GL004",
        SWIFT + f"{MICRO} 1 {OF} 8 --steps_per_generation 2",
        FLAWED,
        versions={"ms-swift": "3.2.9"},
    ),
    Edge("GL004", TRL + f"--generation_batch_size 12 {OF} 6 {MICRO} 1", SOUND),
    Edge("GL004", TRL + f"{MICRO} 1 {OF} 7 --gradient_accumulation_steps 1", FLAWED),
    Edge(
        "GL004",
        TRL.replace(" 4", " 1") + f"{MICRO} 1 {OF} 2 --gradient_accumulation_steps 1",
        FLAWED,
    ),
    Edge("GL005", TRL + f"{MICRO} 2 --generation_batch_size 12", FLAWED),
    Edge("GL005", TRL + f"{MICRO} 2 --generation_batch_size 8", SOUND),
    Edge("GL005", TRL + f"{MICRO} 2 --generation_batch_size 8 --steps_per_generation 1", FLAWED),
    Edge("GL005", TRL + f"{MICRO} 0 --generation_batch_size 7", SOUND),
    Edge("GL005", TRL, SOUND),
    Edge("GL005", OURS + f"--generation_batch_size 7 {MICRO} 2", SOUND),
    Edge("GL005", f"{AUTO} {MICRO} 2 --generation_batch_size 7", SOUND, cards(None)),
    Edge("GL006", VERL + f"{GROUP}2", SOUND),
    Edge("GL006", VERL + f"{GROUP}1", FLAWED),
    Edge("GL006", VERL + f"{GROUP}1 algorithm.adv_estimator=gae", SOUND),
    Edge("GL006", VERL + f"{GROUP}1 algorithm.adv_estimator=rloo", FLAWED),
    Edge("GL006", VERL + f"{GROUP}1 +teacher_model.path=x", SOUND),
    Edge("GL006", SWIFT + f"{OF} 1", FLAWED),
    Edge("GL006", SWIFT.replace("grpo", "gkd") + f"{OF} 1", SOUND),
    Edge("GL006", TRL + f"{OF} 1", FLAWED),
    Edge(
        "GL006",
        OPENRLHF + "--rollout.n_samples_per_prompt 1 --algo.advantage.estimator group_norm",
        FLAWED,
    ),
    Edge(
        "GL006",
        OPENRLHF + "--rollout.n_samples_per_prompt 1 --algo.advantage.estimator grpo",
        SOUND,
    ),
    Edge("GL006", ROLLOUT + f"{OF} 1", SOUND),
    Edge("GL007", TRL + f"{EVALUATED} 2 {OF} 8", SOUND),
    Edge("GL007", TRL + f"{EVALUATED} 2 {OF} 6", FLAWED),
    Edge("GL007", TRL + f"--eval_strategy no --per_device_eval_batch_size 1 {OF} 8", SOUND),
    Edge("GL007", TRL + f"--per_device_eval_batch_size 1 {OF} 8", SOUND),
    Edge("GL007", TRL + f"{EVALUATED} 1 {OF} 8 --num_generations_eval 2", SOUND),
    Edge("GL007", TRL + f"{EVALUATED} 0 {OF} 8", SOUND),
    Edge("GL007", TRL + f"{EVALUATED} 1 {OF} 0", SOUND),
    Edge("GL007", SWIFT + f"{EVALUATED} 1 {OF} 8", SOUND, versions={"ms-swift": "3.5.0"}),
    Edge("GL007", SWIFT + f"{EVALUATED} 1 {OF} 8", FLAWED, versions={"ms-swift": "3.4.9"}),
    Edge("GL007", MEGATRON + f"{EVALUATED} 1 {OF} 7", SOUND, versions={"ms-swift": "3.4.9"}),
    Edge(
        "GL007",
        f"torchrun --nproc_per_node auto -m trl.scripts.grpo {EVALUATED} 1 {OF} 7",
        SOUND,
        cards(None),
    ),
    Edge("GL008", VERL + f"{PROMPTS}3", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}4", FLAWED),
    Edge("GL008", VERL + f"{PROMPTS}1 {GROUP}3", FLAWED),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}4 {DYNAMIC}", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}4 {BY_MEGATRON}", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}0 {GROUP}3", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}0", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}3 trainer.n_gpus_per_node=$N", SOUND, cards(None)),
    Edge("GL009", VERL + f"{PROMPTS}64 {MINI}65", FLAWED),
    Edge("GL009", VERL + f"{PROMPTS}64 {MINI}64", SOUND),
    Edge("GL009", VERL + f"{PROMPTS}0 {MINI}64", SOUND),
    Edge("GL009", VERL + f"{PROMPTS}64 {MINI}0", SOUND),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}16", SOUND),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}8", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}8", SOUND, versions={"verl": "0.8.0"}),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}8 {DYNAMIC}", SOUND, versions={"verl": "0.7.0"}),
    Edge("GL010", VERL + f"{MINI}7 {GROUP}1", FLAWED, versions={"verl": "0.8.0"}),
    Edge(
        "GL010",
        VERL + f"{MINI}7 {GROUP}1 {ULYSSES}2 {UNPADDED}True",
        FLAWED,
        versions={"verl": "0.7.0"},
    ),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}1 {ULYSSES}16", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL010", VERL + f"{MINI}0 {GROUP}8", SOUND),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}0", SOUND),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}1 {BY_MEGATRON}", SOUND),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}1 trainer.n_gpus_per_node=$N", SOUND, cards(None)),
    Edge(
        "GL010",
        VERL.replace("ppo_micro_batch_size_per_gpu=4", "ppo_micro_batch_size_per_gpu=0")
        + f"{MINI}2 {GROUP}8",
        SOUND,
        versions={"verl": "0.7.0"},
    ),
    Edge("GL011", VERL.replace("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size"), SOUND),
    Edge("GL011", VERL.replace("log_prob_micro_batch_size_per_gpu=4", "x=1"), FLAWED),
    Edge("GL011", BARE, FLAWED),
    Edge("GL011", BARE + DYNAMIC, SOUND),
    Edge("GL011", BARE.replace("main_ppo", "main_eval"), SOUND),
    Edge("GL011", BARE + "--config-path own --config-name mine", SOUND),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}2000", SOUND),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}1999", FLAWED),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}1000 {ULYSSES}2", SOUND),
    Edge("GL012", VERL + f"{OF_2000} {TOKENS}1000", SOUND),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}0", SOUND),
    Edge(
        "GL012", VERL + f"{DYNAMIC} data.max_prompt_length=0 data.max_response_length=20000", SOUND
    ),
    Edge("GL013", OPENRLHF + "--train.batch_size 16 --train.micro_batch_size 2", SOUND),
    Edge("GL013", OPENRLHF + "--train.batch_size 24 --train.micro_batch_size 2", FLAWED),
    Edge(
        "GL013",
        OPENRLHF + "--train.batch_size 24 --train.micro_batch_size 2 --train.dynamic_batch_enable",
        SOUND,
    ),
    Edge("GL013", OPENRLHF + "--train.batch_size 0 --train.micro_batch_size 2", SOUND),
    Edge("GL013", OPENRLHF + "--train.batch_size 24 --train.micro_batch_size 0", SOUND),
    Edge(
        "GL013",
        OPENRLHF + "--train.batch_size 25 --train.micro_batch_size 2 --ds.tensor_parallel_size 2 "
        "--ds.ring_attn_size 2",
        FLAWED,
    ),
    Edge(
        "GL013",
        OPENRLHF + "--train.batch_size 25 --train.micro_batch_size 2 --ds.tensor_parallel_size 16",
        FLAWED,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 4 --vllm.tensor_parallel_size 4",
        FLAWED,
    ),
    Edge("GL014", OPENRLHF + "--vllm.num_engines 4 --vllm.tensor_parallel_size 4", SOUND),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --train.async_enable --vllm.num_engines 4 "
        "--vllm.tensor_parallel_size 4",
        SOUND,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 0 --vllm.tensor_parallel_size 4",
        SOUND,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 3 --vllm.tensor_parallel_size 16",
        FLAWED,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 3 --vllm.tensor_parallel_size 0",
        SOUND,
    ),
    Edge("GL015", OPENRLHF + "--vllm.enable_sleep --train.async_enable", FLAWED),
    Edge(
        "GL015", OPENRLHF + "--vllm.enable_sleep --train.async_enable --train.colocate_all", FLAWED
    ),
    Edge("GL015", OPENRLHF + "--vllm.enable_sleep", FLAWED),
    Edge("GL015", OPENRLHF, SOUND),
    Edge(
        "GL016",
        MEGATRON + f"{TENSORS} 2 {STAGES} 2 --context_parallel_size 2",
        SOUND,
        model=QWEN_MOE,
    ),
    Edge(
        "GL016",
        MEGATRON + f"{TENSORS} 2 {STAGES} 2 --context_parallel_size 4",
        FLAWED,
        model=QWEN_MOE,
    ),
    Edge("GL016", MEGATRON + "--expert_model_parallel_size 3", FLAWED, model=QWEN_MOE),
    Edge("GL016", MEGATRON + "--expert_model_parallel_size 4", SOUND, model=QWEN_MOE),
    Edge("GL016", MEGATRON + "--expert_model_parallel_size 3", SOUND, model=QWEN_7B),
    Edge("GL016", MEGATRON + "--expert_model_parallel_size 3", SOUND, model=None),
    Edge(
        "GL016",
        VERL + f"{BY_MEGATRON} actor_rollout_ref.actor.megatron.tensor_model_parallel_size=3",
        FLAWED,
    ),
    Edge("GL016", VERL + "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=3", SOUND),
    Edge("GL017", MEGATRON + "--micro_batch_size 2 --global_batch_size 16", SOUND),
    Edge("GL017", MEGATRON + "--micro_batch_size 2 --global_batch_size 24", FLAWED),
    Edge(
        "GL017",
        MEGATRON + "--micro_batch_size 2 --global_batch_size 24 --tensor_model_parallel_size 2",
        SOUND,
    ),
    Edge(
        "GL017",
        MEGATRON + f"--micro_batch_size 2 --global_batch_size 9 {TENSORS} 2 {STAGES} 2 "
        "--context_parallel_size 2",
        FLAWED,
    ),
    Edge(
        "GL017",
        MEGATRON + "--micro_batch_size 2 --global_batch_size 9 --tensor_model_parallel_size 16",
        SOUND,
    ),
    Edge("GL017", MEGATRON + "--micro_batch_size 0 --global_batch_size 9", SOUND),
    Edge("GL017", MEGATRON + "--micro_batch_size 2 --global_batch_size 0", SOUND),
    Edge("GL017", SWIFT + "--micro_batch_size 2 --global_batch_size 9", SOUND),
    Edge("GL017", VERL + f"{BY_MEGATRON} {MINI}9", SOUND),
    Edge("GL018", MEGATRON + "--tensor_model_parallel_size 8", FLAWED),
    Edge("GL018", MEGATRON + "--tensor_model_parallel_size 7", SOUND),
    Edge("GL018", MEGATRON + "--pipeline_model_parallel_size 8", FLAWED),
    Edge("GL018", MEGATRON + "--pipeline_model_parallel_size 7", SOUND),
    Edge(
        "GL018",
        MEGATRON + "--pipeline_model_parallel_size 8 --decoder_first_pipeline_num_layers 7",
        SOUND,
    ),
    Edge(
        "GL018",
        MEGATRON + "--pipeline_model_parallel_size 8 --pipeline_model_parallel_layout x",
        SOUND,
    ),
    Edge("GL018", MEGATRON + "--pipeline_model_parallel_size 8", SOUND, model=None),
    Edge("GL018", SWIFT + "--tensor_model_parallel_size 8", SOUND),
    Edge("GL019", VLLM + f"{TENSOR} 7", SOUND),
    Edge("GL019", VLLM + f"{TENSOR} 3", FLAWED),
    Edge("GL019", VLLM + f"{TENSOR} 3", SOUND, model=None),
    Edge("GL019", VLLM + f"{TENSOR} 0", SOUND),
    Edge("GL020", SERVE + "--tensor-parallel-size 4 --data-parallel-size 2", SOUND),
    Edge(
        "GL020",
        SERVE + "--tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 2",
        FLAWED,
    ),
    Edge("GL020", SERVE + "--tensor-parallel-size 9", FLAWED),
    Edge("GL020", SERVE + "--tensor-parallel-size 9", SOUND, Host()),
    Edge(
        "GL020", SERVE + "--tensor-parallel-size 4", FLAWED, Host(cards_per_node=8, server_cards=2)
    ),
    Edge("GL020", "CUDA_VISIBLE_DEVICES=0,1,2 " + SERVE + "--tensor-parallel-size 4", FLAWED),
    Edge("GL020", VLLM + f"{TENSOR} 4", SOUND),
    Edge("GL020", VLLM + f"{TENSOR} 8", FLAWED),
    Edge("GL020", VLLM + f"{TENSOR} 2 --vllm_pipeline_parallel_size 4", FLAWED),
    Edge("GL020", SERVED + f"{TENSOR} 3", SOUND),
    Edge("GL020", OPENRLHF + "--train.colocate_all --vllm.tensor_parallel_size 3", SOUND),
    Edge("GL020", VERL + f"{ENGINE_OF}3", FLAWED),
    Edge("GL020", VERL + f"{ENGINE_OF}3 trainer.n_gpus_per_node=$N", SOUND, cards(None)),
    Edge("GL021", VLLM + f"--vllm_max_model_len 3072 {COMPLETION} 2048 --max_length 1024", SOUND),
    Edge("GL021", VLLM + f"--vllm_max_model_len 3071 {COMPLETION} 2048 --max_length 1024", FLAWED),
    Edge("GL021", VLLM + f"--vllm_max_model_len 2048 {COMPLETION} 2048 --max_length 1024", FLAWED),
    Edge("GL021", VLLM + f"--vllm_max_model_len 2048 {COMPLETION} 2047", SOUND),
    Edge("GL021", TRL + f"--use_vllm --vllm_max_model_length 2048 {COMPLETION} 2048", FLAWED),
    Edge("GL021", VLLM + f"{COMPLETION} 2048 --max_length 1024", SOUND),
    Edge(
        "GL021",
        SERVED + f"{COMPLETION} 2048 --max_length 1024",
        FLAWED,
        server=ROLLOUT + "--vllm_max_model_len 2304",
    ),
    Edge(
        "GL021",
        SERVED + f"{COMPLETION} 2048 --max_length 2048",
        FLAWED,
        server=ROLLOUT + "--vllm_max_model_len 2303",
    ),
    Edge("GL021", SERVED + f"{COMPLETION} 2048 --max_length 2048", SOUND, server=ROLLOUT),
    Edge("GL021", ROLLOUT + f"--vllm_max_model_len 100 {COMPLETION} 200", SOUND),
    Edge("GL021", OPENRLHF + "--rollout.max_new_tokens 2048 --vllm.max_model_len 1024", SOUND),
    Edge("GL021", VLLM + f"--vllm_max_model_len 1279 {COMPLETION} 512 --max_length 1024", FLAWED),
    Edge("GL022", VLLM + "--vllm_max_model_len 32769", FLAWED),
    Edge("GL022", VLLM + f"--max_length 16384 {COMPLETION} 16384", SOUND),
    Edge("GL022", VLLM + f"--max_length 16384 {COMPLETION} 16385", FLAWED),
    Edge("GL022", VLLM + f"{COMPLETION} 32769", FLAWED),
    Edge("GL022", VLLM + f"--vllm_max_model_len 4096 {COMPLETION} 32769", FLAWED),
    Edge("GL022", VLLM + "--vllm_max_model_len 65536 --rope_scaling yarn", SOUND),
    Edge("GL022", VLLM + "--vllm_max_model_len 65536 --hf_overrides x", SOUND),
    Edge("GL022", VLLM + "--vllm_max_model_len 65536", SOUND, model=None),
    Edge("GL022", VLLM, SOUND),
    Edge("GL022", SERVE + "--max-model-len 65536 ", FLAWED),
    Edge("GL022", SERVE, SOUND),
    Edge("GL023", SWIFT + "--use_vllm true", FLAWED, versions={"ms-swift": "3.12.0"}),
    Edge("GL023", SWIFT + "--use_vllm true", SOUND, versions={"ms-swift": "3.11.9"}),
    Edge("GL023", SWIFT + "--use_vllm false", SOUND),
    Edge("GL023", SWIFT.replace("grpo", "gkd") + "--use_vllm true", FLAWED),
    Edge("GL023", SWIFT.replace("grpo", "dpo") + "--use_vllm true", SOUND),
    Edge("GL023", TRL + "--use_vllm", SOUND),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode server", FLAWED),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode server", SOUND, server=ROLLOUT),
    Edge(
        "GL024", SWIFT + "--use_vllm true --vllm_mode server --vllm_server_base_url http://x", SOUND
    ),
    Edge("GL024", SWIFT + "--use_vllm false --vllm_mode server", SOUND),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode colocate", SOUND),
    Edge("GL024", TRL + "--use_vllm", FLAWED, versions={"trl": "0.20.0"}),
    Edge("GL024", TRL + "--use_vllm --vllm_mode server", FLAWED),
    Edge("GL024", OURS + "--use_vllm true --vllm_mode server", SOUND),
    Edge(
        "GL025",
        "CUDA_VISIBLE_DEVICES=0,1 " + SERVED,
        FLAWED,
        server="CUDA_VISIBLE_DEVICES=1,0,2 " + ROLLOUT,
    ),
    Edge(
        "GL025",
        "CUDA_VISIBLE_DEVICES=0,1 " + SERVED,
        SOUND,
        server="CUDA_VISIBLE_DEVICES=2 " + ROLLOUT,
    ),
    Edge("GL025", SERVED, FLAWED, server=ROLLOUT),
    Edge("GL025", "CUDA_VISIBLE_DEVICES=0,1 " + SERVED, FLAWED, server=ROLLOUT),
    Edge("GL025", SERVED, FLAWED, server="CUDA_VISIBLE_DEVICES=1,2 " + ROLLOUT),
    Edge("GL025", SERVED, SOUND, Host(cards_per_node=8, server_cards=2), server=ROLLOUT),
    Edge("GL025", "NNODES=2 " + SERVED, SOUND, server=ROLLOUT),
    Edge("GL025", SERVED, SOUND, Host(nodes=2), server=ROLLOUT),
    Edge("GL025", SERVED, SOUND),
    Edge("GL026", "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8001", SOUND),
    Edge(
        "GL026",
        "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8001 --vllm_server_group_port 8001",
        FLAWED,
    ),
    Edge(
        "GL026",
        "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8001 --vllm_server_group_port 8000",
        FLAWED,
    ),
    Edge("GL026", "MASTER_PORT=8000 " + SERVED, FLAWED, server=ROLLOUT + "--port 8000"),
    Edge("GL026", "trl grpo --main_process_port 8000 --vllm_server_port 8000", FLAWED),
    Edge("GL026", SERVED, SOUND),
    Edge("GL027", SERVED + "--vllm_server_port 8001", FLAWED, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED + "--vllm_server_port 8002", SOUND, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED, FLAWED, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED + "--vllm_server_port 8001", FLAWED, server=ROLLOUT),
    Edge("GL027", SERVED, SOUND, server=ROLLOUT),
    Edge(
        "GL027", SERVED + "--vllm_server_base_url http://x", SOUND, server=ROLLOUT + "--port 8002"
    ),
    Edge("GL027", VLLM, SOUND, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED + "--vllm_server_port 0", SOUND, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED, SOUND),
    Edge("GL028", SERVED, SOUND, server="swift rollout --model /models/qwen2.5-7b-instruct/"),
    Edge("GL028", SERVED, FLAWED, server="swift rollout --model Qwen/Qwen2.5-7B"),
    Edge("GL028", SERVED, SOUND, server="swift rollout"),
    Edge("GL028", SERVED.replace("--model Qwen/Qwen2.5-7B-Instruct ", ""), SOUND, server=ROLLOUT),
    Edge("GL028", SERVED, SOUND),
    Edge(
        "GL029", "PYTORCH_CUDA_ALLOC_CONF='a:1, expandable_segments: True' " + TRL + SLEEPS, FLAWED
    ),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS, FLAWED),
    Edge("GL029", "PYTORCH_ALLOC_CONF=expandable_segments:False " + TRL + SLEEPS, SOUND),
    Edge("GL029", f"{EXPANDABLE} " + TRL + "--use_vllm --vllm_mode colocate", SOUND),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS.replace("colocate", "server"), SOUND),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS, SOUND, versions={"vllm": "0.32.0"}),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS, FLAWED, versions={"vllm": "0.31.9"}),
    Edge(
        "GL029", f"{EXPANDABLE} " + VLLM + "--sleep_level 1", SOUND, versions={"ms-swift": "3.9.0"}
    ),
    Edge(
        "GL029", f"{EXPANDABLE} " + VLLM + "--sleep_level 1", FLAWED, versions={"ms-swift": "3.8.9"}
    ),
    Edge("GL029", f"{EXPANDABLE} " + VERL, SOUND),
    Edge("GL030", VLLM + f"{SHARE} 0.8", SOUND),
    Edge("GL030", VLLM + f"{SHARE} 0.81", FLAWED),
    Edge("GL030", VLLM, FLAWED),
    Edge("GL030", VLLM + f"{SHARE} 0.9 --sleep_level 1", SOUND),
    Edge("GL030", SERVED + f"{SHARE} 0.9", SOUND),
    Edge(
        "GL030",
        VERL + "actor_rollout_ref.rollout.gpu_memory_utilization=0.9 "
        "actor_rollout_ref.rollout.free_cache_engine=False",
        SOUND,
    ),
    Edge("GL030", OURS + f"--use_vllm true --vllm_mode colocate {SHARE} 0.9", SOUND),
    Edge("GL030", SERVE + f"{SERVED_SHARE} 0.95", SOUND),
    Edge("GL030", VLLM + f"{SHARE} 0", SOUND),
    Edge("GL031", VLLM + f"{SHARE} 0.5", SOUND, Host(card_bytes=35_031_836_000)),
    Edge("GL031", VLLM + f"{SHARE} 0.5", FLAWED, Host(card_bytes=35_031_835_000)),
    Edge("GL031", VLLM + f"{SHARE} 0.5", FLAWED, Host(card_bytes=16 * GIB)),
    Edge("GL031", VLLM + f"{SHARE} 0.5 {TENSOR} 4", FLAWED, Host(card_bytes=8 * GIB)),
    Edge(
        "GL031",
        VLLM + f"{SHARE} 0.5 {TENSOR} 4 --vllm_pipeline_parallel_size 2",
        FLAWED,
        Host(card_bytes=3 * GIB),
    ),
    Edge("GL031", VLLM + f"{SHARE} 0.5", SOUND, Host()),
    Edge("GL031", VLLM + f"{SHARE} 0.5", SOUND, FOUR, model=None),
    Edge("GL031", VLLM + f"{SHARE} 0", SOUND, FOUR),
    Edge("GL031", SERVED + f"{SHARE} 0.4", SOUND, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4", FLAWED, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4 --quantization awq", SOUND, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4 --kv-cache-memory-bytes 9", SOUND, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4", FLAWED, Host(card_bytes=18_439_000_000)),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4", FLAWED, Host(card_bytes=18_430_000_000)),
    Edge("GL032", SERVED + "--offload_optimizer true", FLAWED),
    Edge("GL032", SERVED + "--offload_optimizer true --offload_model true", FLAWED),
    Edge(
        "GL032",
        VLLM + "--offload_optimizer true --offload_model true --deepspeed zero3_offload",
        FLAWED,
    ),
    Edge("GL032", VLLM + "--offload_model true --deepspeed zero3_offload", SOUND),
    Edge("GL032", VLLM + "--offload_optimizer true --deepspeed zero3", SOUND),
    Edge("GL032", SWIFT + "--offload_optimizer true", FLAWED),
    Edge("GL032", SWIFT + "--offload_optimizer false", SOUND),
    Edge("GL032", OURS + "--offload_optimizer true --use_vllm false", SOUND),
    Edge("GL032", OURS + "--offload_optimizer true --use_vllm true --vllm_mode server", FLAWED),
    Edge("GL032", VERL + "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True", SOUND),
    Edge("GL033", SERVED + "--sleep_level 1", FLAWED),
    Edge("GL033", VLLM + "--sleep_level 1", SOUND),
    Edge("GL033", VLLM + "--sleep_level 1 --async_generate true", FLAWED),
    Edge("GL033", SERVED + "--sleep_level 0", SOUND),
    Edge("GL033", TRL + SLEEPS.replace("colocate", "server"), FLAWED),
    Edge("GL033", OURS + "--use_vllm true --vllm_mode server --sleep_level 1", SOUND),
    Edge("GL034", SWIFT + OFFLOADED.format(1), FLAWED),
    Edge("GL034", SWIFT + OFFLOADED.format(3), SOUND),
    Edge("GL034", SWIFT + "--deepspeed zero2", SOUND),
    Edge("GL034", SWIFT, SOUND),
    Edge("GL035", VLLM + "--move_model_batches 8 --deepspeed zero1", FLAWED),
    Edge("GL035", VLLM + "--move_model_batches 8", FLAWED),
    Edge("GL035", VLLM + "--move_model_batches 8 --deepspeed zero3", SOUND),
    Edge("GL035", VLLM + "--move_model_batches 8 --fsdp full_shard", SOUND),
    Edge("GL035", VLLM + "--move_model_batches 8 --deepspeed my.json", SOUND),
    Edge("GL035", MEGATRON + "--move_model_batches 8", SOUND),
    Edge("GL035", VLLM + "--move_model_batches 0", SOUND),
    Edge("GL035", VLLM, SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 17 --vllm_max_lora_rank 16", FLAWED),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 16 --vllm_max_lora_rank 16", SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --tuner_type full --lora_rank 64", FLAWED),
    Edge("GL036", VLLM + "--vllm_enable_lora false --tuner_type full", SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 0 --vllm_max_lora_rank 16", SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 17 --vllm_max_lora_rank 0", SOUND),
    Edge("GL036", ROLLOUT + "--vllm_enable_lora true --tuner_type full", SOUND),
    Edge("GL037", TRL + "--lora_r 16", FLAWED),
    Edge("GL037", TRL + "--use_peft --lora_r 16", SOUND),
    Edge("GL037", VLLM + "--tuner_type full --lora_rank 8 --lora_alpha 16", FLAWED),
    Edge("GL037", VLLM + "--tuner_type full", SOUND),
    Edge("GL037", ROLLOUT + "--tuner_type full --lora_rank 8", SOUND),
    Edge("GL038", VLLM + "--ref_model m --beta 0", FLAWED),
    Edge("GL038", VLLM + "--ref_model m --beta 0.01", SOUND),
    Edge("GL038", VLLM + "--sync_ref_model true --beta 0", FLAWED),
    Edge("GL038", VLLM + "--sync_ref_model false --beta 0", SOUND),
    Edge(
        "GL038",
        VERL + "actor_rollout_ref.actor.kl_loss_coef=0 actor_rollout_ref.ref.model.path=x",
        SOUND,
    ),
    Edge("GL039", VLLM + "--async_generate true", FLAWED),
    Edge("GL039", SWIFT + "--use_vllm true --async_generate true", FLAWED),
    Edge("GL039", SERVED + "--async_generate true", SOUND),
    Edge("GL039", VLLM + "--async_generate false", SOUND),
    Edge("GL039", SWIFT + "--use_vllm true --async_generate true", SOUND, EIGHT, versions=OLD),
    Edge("GL039", OPENRLHF + "--train.colocate_all --train.async_enable", SOUND),
    Edge("GL040", VLLM + "--ddp_timeout 86400", FLAWED),
    Edge("GL040", VLLM + "--ddp_timeout 86399", SOUND),
    Edge("GL040", VLLM + "--ddp_timeout 300", SOUND),
    Edge("GL040", VLLM + "--ddp_timeout 299", FLAWED),
    Edge("GL040", VLLM, FLAWED),
    Edge("GL040", VLLM.replace("=4", "=1") + "--ddp_timeout 299", SOUND),
    Edge("GL040", ROLLOUT + "--ddp_timeout 299", SOUND),
    Edge("GL041", VLLM + "--bf16 true --fp16 true", FLAWED),
    Edge("GL041", VLLM + "--bf16 false --fp16 true", SOUND),
    Edge("GL041", VLLM + "--bf16 true --fp16 false", SOUND),
    Edge("GL042", SWIFT, SOUND, versions={"ms-swift": "4.6.0", "trl": "0.26.0"}),
    Edge("GL042", SWIFT, FLAWED, versions={"ms-swift": "4.6.0", "trl": "0.25.9"}),
    Edge("GL042", SWIFT, FLAWED, versions={"ms-swift": "4.6.0", "trl": "1.0.0"}),
    Edge(
        "GL042",
        SWIFT,
        FLAWED,
        versions={"ms-swift": "4.6.0", "trl": "0.26.0", "transformers": "5.20.0"},
    ),
    Edge("GL042", SWIFT, FLAWED, versions={"ms-swift": "4.0.0", "trl": "0.29.0"}),
    Edge("GL042", SWIFT, SOUND, versions={"ms-swift": "4.1.0", "trl": "0.29.0"}),
    Edge("GL042", SWIFT, SOUND, versions={"ms-swift": "3.9.9", "trl": "0.29.0"}),
    Edge("GL042", SWIFT, SOUND, versions={"trl": "0.1"}),
    Edge("GL042", SWIFT, SOUND, versions={"ms-swift": "4.6.0"}),
    Edge("GL042", TRL, FLAWED, versions={"trl": "1.16.0", "vllm": "0.31.1"}),
    Edge("GL042", TRL, SOUND, versions={"trl": "1.16.0", "vllm": "0.31.0"}),
    Edge(
        "GL042",
        VERL,
        FLAWED,
        versions={"verl": "0.9.1", "vllm": "0.24.0", "transformers": "5.11.0"},
    ),
    Edge("GL043", VLLM + "--max_length 2048", FLAWED, model=QWEN_VL),
    Edge("GL043", VLLM + "--max_length 20480", SOUND, model=QWEN_VL),
    Edge("GL043", "MAX_PIXELS=1605632 " + VLLM + "--max_length 2048", FLAWED, model=QWEN_VL),
    Edge("GL043", "MAX_PIXELS=1605632 " + VLLM + "--max_length 2049", SOUND, model=QWEN_VL),
    Edge(
        "GL043", "MAX_PIXELS=1605632 " + VLLM + "--vllm_max_model_len 2048", FLAWED, model=QWEN_VL
    ),
    Edge("GL043", VLLM + "--max_length 2048", SOUND),
    Edge("GL043", VLLM + "--max_length 2048", SOUND, model=None),
    Edge("GL043", VERL + "data.max_prompt_length=2048", FLAWED, model=QWEN_VL),
    Edge("GL043", ROLLOUT + "--vllm_max_model_len 2048", SOUND, model=QWEN_VL),
    Edge("GL044", VLLM + "--temperature 0", FLAWED),
    Edge("GL044", VLLM + "--temperature 0.1 --top_k 1", FLAWED),
    Edge("GL044", VLLM + "--temperature 0 --top_k 1", FLAWED),
    Edge("GL044", VLLM + "--temperature 1 --top_k 2", SOUND),
    Edge("GL044", VLLM, SOUND),
    Edge("GL044", ROLLOUT + "--temperature 0", SOUND),
    Edge("GL045", VLLM + "--deepspeed zero2 --fsdp full_shard", FLAWED),
    Edge("GL045", VLLM + "--deepspeed my.json --fsdp full_shard", FLAWED),
    Edge("GL045", VLLM + "--fsdp full_shard", SOUND),
    Edge("GL045", VLLM + "--deepspeed zero2", SOUND),
    Edge("GL045", OURS + "--deepspeed zero2 --fsdp full_shard", SOUND),
    Edge("GL046", SWIFT + "--vllm_mode colocate", FLAWED, versions={"ms-swift": "3.12.0"}),
    Edge("GL046", SWIFT + "--vllm_mode colocate", FLAWED, versions={"ms-swift": "3.11.9"}),
    Edge("GL046", SWIFT + f"{TENSOR} 2", FLAWED),
    Edge("GL046", TRL + "--vllm_mode colocate", FLAWED),
    Edge("GL046", SWIFT, SOUND),
    Edge("GL046", VLLM, SOUND),
    Edge("GL046", MEGATRON + "--vllm_mode colocate", SOUND),
    Edge("GL046", VERL + "actor_rollout_ref.rollout.gpu_memory_utilization=0.5", SOUND),
    Edge("GL047", SERVED + f"{TENSOR} 2 --vllm_max_model_len 100", FLAWED),
    Edge("GL047", TRL + f"--use_vllm --vllm_mode server {TENSOR} 2", FLAWED),
    Edge("GL047", SERVED, SOUND),
    Edge("GL047", VLLM + f"{TENSOR} 2", SOUND),
    Edge("GL047", SWIFT + f"--vllm_mode server {TENSOR} 2", SOUND),
    Edge("GL047", OURS + f"--use_vllm true --vllm_mode server {TENSOR} 2", SOUND),
    Edge("GL048", VLLM + "--padding_free true --attn_impl eager", FLAWED),
    Edge("GL048", VLLM + "--padding_free true --attn_impl flash_attention_2", SOUND),
    Edge("GL048", VLLM + "--padding_free true", SOUND),
    Edge("GL048", VLLM + "--padding_free false --attn_impl eager", SOUND),
    Edge("GL048", MEGATRON + "--padding_free true --attn_impl eager", SOUND),
    Edge("GL048", TRL + "--padding_free true --attn_implementation eager", SOUND),
    Edge("GL049", VLLM + "--use_liger_kernel true --sequence_parallel_size 2", FLAWED),
    Edge("GL049", VLLM + "--use_liger_kernel true --sequence_parallel_size 1", SOUND),
    Edge("GL049", VLLM + "--use_liger_kernel true --delta 0.1", FLAWED),
    Edge("GL049", VLLM + "--use_liger_kernel true --top_entropy_quantile 0.9", FLAWED),
    Edge("GL049", VLLM + "--use_liger_kernel true --top_entropy_quantile 1.0", SOUND),
    Edge("GL049", VLLM + "--use_liger_kernel true --padding_free true --delta 0.1", FLAWED),
    Edge("GL049", VLLM + "--use_liger_kernel false --padding_free true", SOUND),
    Edge(
        "GL049",
        VLLM + "--use_liger_kernel true --padding_free true",
        SOUND,
        versions={"ms-swift": "3.12.9"},
    ),
    Edge(
        "GL049", VLLM.replace("grpo", "gkd") + "--use_liger_kernel true --padding_free true", SOUND
    ),
    Edge("GL049", MEGATRON + "--use_liger_kernel true --padding_free true", SOUND),
    Edge("GL049", TRL + "--use_liger_kernel true --padding_free true", SOUND),
    Edge("GL050", NAMELESS, FLAWED, versions={"verl": "0.6.0"}),
    Edge("GL050", NAMELESS, SOUND, versions={"verl": "0.5.9"}),
    Edge("GL050", VERL, SOUND),
    Edge("GL050", NAMELESS.replace("main_ppo", "main_eval"), SOUND),
    Edge("GL050", NAMELESS + "--config-path own --config-name mine", SOUND),
    Edge("GL051", ADVANTAGE + f"{GROUP}2", FLAWED),
    Edge("GL051", ADVANTAGE + f"{GROUP}1", SOUND),
    Edge("GL051", ADVANTAGE + f"{GROUP}2 critic.model.path=x", SOUND),
    Edge("GL051", VERL, SOUND),
    Edge("GL051", ADVANTAGE.replace("main_ppo", "main_eval"), SOUND),
    Edge("GL051", ADVANTAGE + "--config-path own --config-name mine", SOUND),
    Edge("GL052", VERL + f"{MODE}sync", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL052", VERL + f"{MODE}sync", SOUND, versions={"verl": "0.6.9"}),
    Edge("GL052", VERL, SOUND),
    Edge("GL053", VERL + ULYSSES + f"2 {UNPADDED}False", FLAWED),
    Edge("GL053", VERL + ULYSSES + f"1 {UNPADDED}False", SOUND),
    Edge("GL053", VERL + ULYSSES + f"2 {UNPADDED}True", SOUND),
    Edge("GL053", SWIFT + "--sequence_parallel_size 2", SOUND),
    Edge("GL054", FULL, FLAWED, Host(free_disk_bytes=2 * CHECKPOINT - 1)),
    Edge("GL054", FULL, SOUND, Host(free_disk_bytes=2 * CHECKPOINT)),
    Edge("GL054", FULL, FLAWED, Host(free_disk_bytes=CHECKPOINT - 1)),
    Edge("GL054", FULL, FLAWED, Host(free_disk_bytes=CHECKPOINT)),
    Edge("GL054", FULL + "--save_total_limit 1", FLAWED, Host(free_disk_bytes=2 * CHECKPOINT - 1)),
    Edge("GL054", FULL + "--save_total_limit 2", FLAWED, Host(free_disk_bytes=3 * CHECKPOINT - 1)),
    Edge("GL054", FULL + "--save_total_limit 2", SOUND, Host(free_disk_bytes=3 * CHECKPOINT)),
    Edge(
        "GL054",
        FULL + "--save_only_model true",
        FLAWED,
        Host(free_disk_bytes=2 * CHECKPOINT // 7 - 1),
    ),
    Edge(
        "GL054", FULL + "--save_only_model true", SOUND, Host(free_disk_bytes=2 * CHECKPOINT // 7)
    ),
    Edge("GL054", FULL + "--save_steps 0", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL054", FULL + "--save_steps -1", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL054", VLLM + "--tuner_type lora", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL054", FULL, SOUND, Host()),
    Edge("GL054", FULL, SOUND, Host(free_disk_bytes=1000), model=None),
    Edge("GL054", ROLLOUT + "--tuner_type full", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL055", FULL, FLAWED),
    Edge("GL055", FULL + "--save_total_limit 2", SOUND),
    Edge("GL055", FULL + "--save_only_model true", SOUND),
    Edge("GL055", FULL + "--save_steps 0", SOUND),
    Edge("GL055", FULL, FLAWED, model=ModelFacts(8, 8, 8, 2_142_857_143)),
    Edge("GL055", FULL, SOUND, model=ModelFacts(8, 8, 8, 2_142_857_142)),
    Edge("GL055", FULL, SOUND, model=None),
    Edge("GL055", VLLM + "--tuner_type lora", SOUND),
    Edge("GL055", VERL + "trainer.save_freq=20", FLAWED),
    Edge("GL055", VERL + "trainer.save_freq=-1", SOUND),
    Edge("GL055", OPENRLHF + "--ckpt.save_steps 10", SOUND),
    Edge("GL056", VLLM, FLAWED, Host(shm_bytes=GIB - 1)),
    Edge("GL056", VLLM, SOUND, Host(shm_bytes=GIB)),
    Edge("GL056", VLLM, FLAWED, Host(shm_bytes=0)),
    Edge("GL056", VLLM, SOUND, Host()),
    Edge(
        "GL056", VLLM.replace("=4", "=1") + "--dataloader_num_workers 0", SOUND, Host(shm_bytes=0)
    ),
    Edge(
        "GL056", VLLM.replace("=4", "=1") + "--dataloader_num_workers 1", FLAWED, Host(shm_bytes=0)
    ),
    Edge(
        "GL056", VLLM.replace("=4", "=2") + "--dataloader_num_workers 0", FLAWED, Host(shm_bytes=0)
    ),
    Edge("GL056", ROLLOUT, SOUND, Host(shm_bytes=0)),
    Edge("GL057", VLLM, FLAWED, Host(open_files=4095)),
    Edge("GL057", VLLM, SOUND, Host(open_files=4096)),
    Edge("GL057", VLLM, FLAWED, Host(open_files=0)),
    Edge("GL057", VLLM, SOUND, Host()),
    Edge("GL057", VLLM.replace("=4", "=1"), SOUND, Host(open_files=1024)),
    Edge("GL057", ROLLOUT, SOUND, Host(open_files=1024)),
    Edge("GL058", OPENRLHF + "--train.async_enable --train.async_queue_size 3", FLAWED),
    Edge("GL058", OPENRLHF + "--train.async_enable --train.async_queue_size 2", SOUND),
    Edge("GL058", OPENRLHF + "--train.async_queue_size 3", SOUND),
    Edge("GL058", OPENRLHF + "--train.async_enable", SOUND),
    Edge("GL059", FULL + "--learning_rate 1.1e-5", FLAWED),
    Edge("GL059", FULL + "--learning_rate 1e-5", SOUND),
    Edge("GL059", FULL, SOUND),
    Edge("GL059", VLLM + "--tuner_type lora --learning_rate 1e-3", SOUND),
    Edge(
        "GL059",
        "NPROC_PER_NODE=4 swift sft --model m --tuner_type full --learning_rate 1e-3",
        SOUND,
    ),
    Edge("GL059", ROLLOUT + "--tuner_type full --learning_rate 1e-3", SOUND),
    Edge("GL060", SWIFT, FLAWED),
    Edge("GL060", SWIFT + "--deepspeed zero3", FLAWED),
    Edge("GL060", SWIFT + "--deepspeed zero3 --ds3_gather_for_generation false", FLAWED),
    Edge("GL060", SWIFT + "--deepspeed zero2 --ds3_gather_for_generation false", FLAWED),
    Edge("GL060", VLLM, SOUND),
    Edge("GL060", SWIFT.replace("grpo", "dpo"), SOUND),
    Edge("GL060", MEGATRON, SOUND),
    Edge("GL060", SWIFT + "--vllm_mode colocate", SOUND),
    Edge("GL060", SWIFT + f"{SHARE} 0.5", SOUND),
    Edge("GL060", "trl grpo", SOUND),
    Edge("GL060", VERL, SOUND),
    Edge("GL061", f"{POOL}{REWARDS}/top_level.py", FLAWED, versions={"verl": "0.4.9"}),
    Edge("GL061", f"{POOL}{REWARDS}/top_level.py", SOUND, versions={"verl": "0.5.0"}),
    Edge("GL061", f"{POOL}{REWARDS}/made_anew.py", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL061", f"{POOL}{REWARDS}/made_anew.py", FLAWED, versions={"verl": "0.7.1"}),
    Edge("GL061", VERL + "reward_model.reward_manager=prime", SOUND, versions={"verl": "0.4.9"}),
    Edge(
        "GL061",
        VERL + f"custom_reward_function.path={REWARDS}/top_level.py",
        SOUND,
        versions={"verl": "0.4.9"},
    ),
    Edge("GL062", SWIFT + "--tuner_backend unsloth", FLAWED),
    Edge("GL062", SWIFT + "--tuner_backend peft", SOUND),
    Edge("GL062", SWIFT.replace("grpo", "dpo") + "--tuner_backend unsloth", SOUND),
    Edge("GL062", TRL + "--tuner_backend unsloth", SOUND),
    Edge("GL063", f"MAX_PIXELS=9\nNPROC_PER_NODE=2\nNNODES=2\n{GRPO}", FLAWED),
    Edge("GL063", f"MAX_PIXELS=9\nNPROC_PER_NODE=2\n{GRPO}", FLAWED),
    Edge("GL063", f"MAX_PIXELS=9\n{GRPO}", FLAWED),
    Edge("GL063", f"export MAX_PIXELS=9\n{GRPO}", SOUND),
)

if __name__ == "__main__":
    RECORDED.write_text("\n\n".join(recorded()) + "\n", encoding="utf-8")
