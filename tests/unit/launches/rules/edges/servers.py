"""Rollout servers beside a trainer: GL023 to GL028."""

from __future__ import annotations

from grpo_doctor.launches.view import Host
from tests.unit.launches.pairs import SERVED, SWIFT, TRL, VLLM
from tests.unit.launches.rules.edges.edge import FLAWED, OURS, ROLLOUT, SOUND, Edge

LOCAL = SERVED.replace("10.0.0.2", "127.0.0.1")
EDGES = (
    Edge("GL023", SWIFT + "--use_vllm true", FLAWED, versions={"ms-swift": "3.12.0"}),
    Edge("GL023", SWIFT + "--use_vllm true", SOUND, versions={"ms-swift": "3.11.9"}),
    Edge("GL023", SWIFT + "--use_vllm false", SOUND),
    Edge("GL023", SWIFT.replace("grpo", "gkd") + "--use_vllm true", FLAWED),
    Edge("GL023", SWIFT.replace("grpo", "dpo") + "--use_vllm true", SOUND),
    Edge("GL023", TRL + "--use_vllm", SOUND),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode server", FLAWED),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode server", SOUND, server=ROLLOUT),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode server --vllm_server_base_url http://x",
         SOUND),
    Edge("GL024", SWIFT + "--use_vllm false --vllm_mode server", SOUND),
    Edge("GL024", SWIFT + "--use_vllm true --vllm_mode colocate", SOUND),
    Edge("GL024", TRL + "--use_vllm", FLAWED, versions={"trl": "0.20.0"}),
    Edge("GL024", TRL + "--use_vllm --vllm_mode server", FLAWED),
    Edge("GL024", OURS + "--use_vllm true --vllm_mode server", SOUND),
    Edge("GL025", "CUDA_VISIBLE_DEVICES=0,1 " + LOCAL, FLAWED,
         server="CUDA_VISIBLE_DEVICES=1,0,2 " + ROLLOUT),
    Edge("GL025", "CUDA_VISIBLE_DEVICES=0,1 " + LOCAL, SOUND,
         server="CUDA_VISIBLE_DEVICES=2 " + ROLLOUT),
    Edge("GL025", LOCAL, FLAWED, server=ROLLOUT),
    Edge("GL025", "CUDA_VISIBLE_DEVICES=0,1 " + LOCAL, FLAWED, server=ROLLOUT),
    Edge("GL025", LOCAL, FLAWED, server="CUDA_VISIBLE_DEVICES=1,2 " + ROLLOUT),
    Edge("GL025", LOCAL, SOUND, Host(cards_per_node=8, server_cards=2), server=ROLLOUT),
    Edge("GL025", "NNODES=2 " + LOCAL, SOUND, server=ROLLOUT),
    Edge("GL025", LOCAL, SOUND, Host(nodes=2), server=ROLLOUT),
    Edge("GL025", LOCAL, SOUND),
    Edge("GL025", SERVED, SOUND, server=ROLLOUT),  # 10.0.0.2 may be another host
    Edge("GL026", "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8001", SOUND),
    Edge("GL026",
         "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8001 --vllm_server_group_port 8001",
         FLAWED),
    Edge("GL026",
         "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8001 --vllm_server_group_port 8000",
         FLAWED),
    Edge("GL026", "MASTER_PORT=8000 " + SERVED, FLAWED, server=ROLLOUT + "--port 8000"),
    Edge("GL026", "trl grpo --main_process_port 8000 --vllm_server_port 8000", FLAWED),
    Edge("GL026", SERVED, SOUND),
    Edge("GL027", SERVED + "--vllm_server_port 8001", FLAWED, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED + "--vllm_server_port 8002", SOUND, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED, FLAWED, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED + "--vllm_server_port 8001", FLAWED, server=ROLLOUT),
    Edge("GL027", SERVED, SOUND, server=ROLLOUT),
    Edge("GL027", SERVED + "--vllm_server_base_url http://x", SOUND,
         server=ROLLOUT + "--port 8002"),
    Edge("GL027", VLLM, SOUND, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED + "--vllm_server_port 0", SOUND, server=ROLLOUT + "--port 8002"),
    Edge("GL027", SERVED, SOUND),
    Edge("GL028", SERVED, SOUND, server="swift rollout --model /models/qwen2.5-7b-instruct/"),
    Edge("GL028", SERVED, FLAWED, server="swift rollout --model Qwen/Qwen2.5-7B"),
    Edge("GL028", SERVED, SOUND, server="swift rollout"),
    Edge("GL028", SERVED.replace("--model Qwen/Qwen2.5-7B-Instruct ", ""), SOUND, server=ROLLOUT),
    Edge("GL028", SERVED, SOUND),
)  # fmt: skip
