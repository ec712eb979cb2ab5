"""slime's own rollouts against a stand-in of its router, called with MODEL FOLDER WAY.

WAY: `samples` are scored one by one, `turns` by a function of the user's that asks twice, and
`groups` are scored as a whole and filtered. Each part writes when it began and ended.
"""

# mypy: disable-error-code=import-not-found

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from slime.utils.http_utils import init_http_client, post
from slime.utils.types import Sample

MODEL, FOLDER, WAY = sys.argv[1:4] if __name__ == "__main__" else ("", "", "")
WHOLE_S, OWN_S, REWARD_S = 0.6, 0.25, 0.4
ROLLOUTS, BATCH, GROUP = 2, 4, 4
LOCK = threading.Lock()


def write(part: str, start_ns: int) -> None:
    with LOCK, (Path(FOLDER) / f"{part}.txt").open("a") as file:
        file.write(f"{start_ns} {time.monotonic_ns()}\n")


class Router(BaseHTTPRequestHandler):
    """Answers as SGLang 0.5.23 behind its router, after sleeping."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = f"http://{self.headers['Host']}"
        self.answer({"workers": [{"url": url}], "urls": [url], "num_reqs": 0})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self.path.startswith("/generate"):
            self.answer({})
            return
        start_ns = time.monotonic_ns()
        time.sleep(WHOLE_S)
        write("engine", start_ns)
        whole_s = (time.monotonic_ns() - start_ns) / 1e9
        meta = {
            "id": f"request {start_ns}", "finish_reason": {"type": "stop"}, "weight_version": "1",
            "e2e_latency": whole_s, "queue_time": whole_s / 3, "first_token_latency": whole_s / 2,
            "completion_tokens": 3, "prompt_tokens": 2, "cached_tokens": 0,
            "output_token_logprobs": [[-0.1, token, None] for token in (5, 6, 7)],
        }  # fmt: skip
        self.answer({"text": "answer", "meta_info": meta})

    def answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


async def reward(_args: Namespace, sample: Any, **_: Any) -> Any:
    start_ns = time.monotonic_ns()
    await asyncio.sleep(REWARD_S)
    write("reward", start_ns)
    return [1.0] * len(sample) if isinstance(sample, list) else 1.0


async def turns(args: Namespace, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    url = f"http://127.0.0.1:{args.sglang_router_port}/generate"
    for _ in range(2):
        output = await post(url, {"input_ids": [1, 2], "sampling_params": sampling_params})
        start_ns = time.monotonic_ns()
        await asyncio.sleep(OWN_S)
        write("own", start_ns)
    sample.response, sample.response_length, sample.reward = output["text"], 6, 0.5
    sample.tokens, sample.weight_versions = [1, 2, 5, 6, 7], ["1", "2"]
    sample.status = Sample.Status.COMPLETED
    return sample


def keeps(_args: Namespace, group: list[Sample]) -> bool:
    return bool(group[0].group_index % 2 == 0)


class Arguments(Namespace):
    """What is not set is None."""

    def __getattr__(self, name: str) -> None:
        if name == "args" or name.startswith("__"):
            raise AttributeError(name)


def main() -> None:
    from slime.rollout.sglang_rollout import generate_rollout_async
    from slime.utils.async_utils import run

    server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    args = Arguments(
        hf_checkpoint=MODEL, sglang_router_ip="127.0.0.1", sglang_router_port=server.server_port,
        sglang_server_concurrency=4, rollout_num_gpus=1, rollout_num_gpus_per_engine=1,
        rollout_temperature=1.0, rollout_top_p=1.0, rollout_top_k=-1, rollout_max_response_len=16,
        rollout_skip_special_tokens=True, rollout_global_dataset=True, rollout_batch_size=BATCH,
        over_sampling_batch_size=BATCH, n_samples_per_prompt=GROUP, num_gpus_per_node=1,
        custom_rm_path="slime_rollout.reward", group_rm=WAY == "groups", sglang_dp_size=1,
        custom_generate_function_path="slime_rollout.turns" if WAY == "turns" else None,
        dynamic_sampling_filter_path="slime_rollout.keeps" if WAY == "groups" else None,
    )  # fmt: skip
    init_http_client(args)
    groups = iter(range(1000))

    def data_source(count: int) -> list[list[Sample]]:
        return [
            [
                Sample(group_index=group, index=group * GROUP + member, prompt="a b")
                for member in range(GROUP)
            ]
            for group in (next(groups) for _ in range(count))
        ]

    for rollout in range(ROLLOUTS):
        output, _ = run(generate_rollout_async(args, rollout, data_source))
        sys.stdout.write(f"rollout {rollout}: {len(output.samples)} groups\n")


if __name__ == "__main__":
    sys.modules["slime_rollout"] = sys.modules["__main__"]
    main()
