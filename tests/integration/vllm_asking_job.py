"""A job of torchrun's for `test_attach_vllm.py`: rank 0 asks a vLLM server, all ranks train.

    torchrun vllm_asking_job.py URL FOLDER

Before every step it reads FOLDER/ask.json (`prompts`, `tokens`; `pool`: one request for each prompt
from threads; `sync`: the engine is made to wait for the trainer, which waits for the engine), and
after it each rank writes how many it has done to FOLDER/step.<rank>. FOLDER/waits is there once it
waits for its server.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
import torch
import torch.distributed as dist


def wait_for_server(url: str) -> None:
    while True:
        try:
            if requests.get(f"{url}/health", timeout=5).ok:
                return
        except requests.exceptions.RequestException:
            pass
        time.sleep(1)


def complete(url: str, prompts: list[str], tokens: int) -> list[str]:
    body: dict[str, Any] = {"model": "tiny", "prompt": prompts, "max_tokens": tokens}
    body |= {"temperature": 0, "ignore_eos": True}
    while True:
        answer = requests.post(f"{url}/v1/completions", json=body)
        if answer.ok:
            return [choice["text"] for choice in answer.json()["choices"]]
        time.sleep(1)  # as clients that try again until the server is well


def generate(url: str, ask: dict[str, Any]) -> list[str]:
    prompts = [f"prompt {number}" for number in range(ask["prompts"])]
    completions: list[Any] = [None]
    if dist.get_rank() == 0:
        if ask.get("pool"):
            with ThreadPoolExecutor(8) as pool:
                batches = pool.map(lambda prompt: complete(url, [prompt], ask["tokens"]), prompts)
                completions = [[text for texts in batches for text in texts]]
        else:
            completions = [complete(url, prompts, ask["tokens"])]
    dist.broadcast_object_list(completions, src=0)
    return list(completions[0])


def update_weights(url: str, ask: dict[str, Any]) -> None:
    if dist.get_rank() == 0 and ask.get("sync"):
        body = {"method": "update_policy_weights", "args": [ask["sync"]]}
        requests.post(f"{url}/collective_rpc", json=body)
    dist.barrier()


def main(url: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    if dist.get_rank() == 0:
        (folder / "waits").touch()
        wait_for_server(url)
    dist.barrier()
    for step in range(1_000_000):
        ask = json.loads((folder / "ask.json").read_text())
        texts = generate(url, ask)
        dist.all_reduce(torch.ones(64))
        update_weights(url, ask)
        if dist.get_rank() == 0:
            (folder / "texts.json").write_text(json.dumps(texts))
        done = folder / f"step.{dist.get_rank()}.part"
        done.write_text(str(step))
        done.rename(folder / f"step.{dist.get_rank()}")
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
