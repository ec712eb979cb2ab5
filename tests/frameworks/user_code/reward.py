"""A user's rewards: they ask a judge, take locks, run a sandbox; each may come to a standstill.

The comment `# act: NAME` marks the line in which the process stands during that fault.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import orders  # type: ignore[import-not-found, unused-ignore]

COROUTINES = ("future", "async-socket", "async-judge")
ENOUGH = 0.01
CLOSED_PORT, MORE_THAN_A_PIPE = 1, 1 << 19


def ask_socket(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as judge:
        judge.sendall(b"score this\n")
        judge.recv(1)  # act: socket


def ask_judge(port: int, seconds: float) -> None:
    url = f"http://127.0.0.1:{port}/{seconds}"
    urllib.request.urlopen(url).read()  # act: judge


def take_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # act: lock


def run_sandbox() -> None:
    subprocess.run(["tail", "-f", "/dev/null"], check=False)  # act: child


def read_fifo(path: str) -> None:
    with Path(path).open() as file:  # act: fifo
        file.read()


def ask_ray() -> None:
    import ray  # type: ignore[import-not-found, unused-ignore]

    def count(texts: list[str]) -> int:  # Ray takes no built-in function
        return len(texts)

    never = ray.remote(count).options(resources={"missing": 1}).remote([])
    ray.get(never)  # act: answer


def print_much() -> None:
    print("." * MORE_THAN_A_PIPE)  # noqa: T201 # act: print


def ask_dead_judge() -> None:
    while orders.due("refused")["act"]:
        try:
            ask_judge(CLOSED_PORT, 1.0)
        except OSError:
            time.sleep(ENOUGH * 50)  # act: refused


WITHOUT_ARGUMENTS = {
    "lock": take_lock, "child": run_sandbox, "answer": ask_ray, "print": print_much,
    "refused": ask_dead_judge,
}  # fmt: skip
ACTS = ("socket", "sleep", "event", "fifo", "judge", *WITHOUT_ARGUMENTS)


def obey(order: dict[str, Any]) -> None:
    act = order["act"]
    if act == "socket":
        ask_socket(order["silent"])
    if act == "judge":
        ask_judge(order["judge"], order["seconds"])
    if act == "sleep":
        time.sleep(10_000)  # act: sleep
    if act == "event":
        threading.Event().wait()  # act: event
    if act == "fifo":
        read_fifo(order["fifo"])
    if act in WITHOUT_ARGUMENTS:
        WITHOUT_ARGUMENTS[act]()


async def obey_async(order: dict[str, Any]) -> None:
    if order["act"] == "future":
        await asyncio.get_running_loop().create_future()
    if order["act"] in ("async-socket", "async-judge"):
        port = order["silent"] if order["act"] == "async-socket" else order["judge"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /{order['seconds']} HTTP/1.0\r\n\r\n".encode())
        await reader.read()


def come_to_fault() -> None:
    orders.count_call()
    order = orders.due(*ACTS)
    if order["act"]:
        obey(order)


def score(text: str, label: str) -> float:
    time.sleep(ENOUGH)
    return float(label in text) + 0.01 * len(set(text))


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> float:
    """verl's reward, called for each text."""
    come_to_fault()
    return score(solution_str, ground_truth)


async def compute_score_async(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> float:
    """The same as a coroutine."""
    orders.count_call()
    order = orders.due(*COROUTINES)
    if order["act"]:
        await obey_async(order)
    await asyncio.sleep(ENOUGH)
    return float(ground_truth in solution_str) + 0.01 * len(set(solution_str))


def reward_func(queries: Any, prompts: Any, labels: Any, **_: Any) -> dict[str, Any]:
    """OpenRLHF's reward: all texts of a sample at once."""
    import torch

    come_to_fault()
    texts = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=False)]
    scores = torch.tensor([score(*pair) for pair in zip(texts, labels, strict=False)])
    return {"rewards": scores, "scores": scores, "extra_logs": {}}


def length_reward(completions: list[Any], **_: Any) -> list[float]:
    """TRL's and ms-swift's reward."""
    come_to_fault()
    return [score(str(completion), "4") for completion in completions]


async def length_reward_async(completions: list[Any], **_: Any) -> list[float]:
    """TRL's reward as a coroutine."""
    orders.count_call()
    order = orders.due(*COROUTINES)
    if order["act"]:
        await obey_async(order)
    return [float(len(set(str(completion)))) for completion in completions]
