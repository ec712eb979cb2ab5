"""Reward servers that are reachable and of no use.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from tests.faults.host import (
    LIBC,
    http_server,
)
from tests.faults.odd_server import running
from tests.faults.registry import MAY_ANSWER, Facts, Scene, fault

BUSY = ("stuck", "slow")  # a loop that tries again may succeed the next time
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18


def server(mode: str) -> Callable[[], AbstractContextManager[Facts]]:
    return partial(running, mode)


def address(scene: Scene, path: str) -> str:
    return f"http://127.0.0.1:{scene.facts['port']}/{path}"


@fault("every connection of the judge's pool is taken", "reward-blocked", phase="reward",
       needs=server("answers"), modules=("httpx",))  # fmt: skip
def ask_pooled_judge(scene: Scene) -> None:
    import httpx

    limits = httpx.Limits(max_connections=1)
    with httpx.Client(timeout=httpx.Timeout(30, pool=None), limits=limits) as judge:
        request = judge.build_request("POST", address(scene, "score"))
        forgotten = judge.send(request, stream=True)
        scene.takes_effect()
        judge.send(request)
        forgotten.close()


@fault("requests.post without a time limit", "reward-blocked", phase="reward", world_size=8,
       needs=server("generates"), modules=("requests",))  # fmt: skip
def post_completions(scene: Scene) -> None:
    import requests

    scene.takes_effect()
    requests.post(address(scene, "score"), json={"answers": ["42"]})


@fault("aiohttp judge, one of many never answers", "reward-blocked", phase="reward",
       needs=server("generates"), modules=("aiohttp",))  # fmt: skip
def ask_async_judge(scene: Scene) -> None:
    import asyncio

    import aiohttp

    async def ask(session: aiohttp.ClientSession, path: str) -> None:
        async with session.request("GET" if path == "health" else "POST", address(scene, path)):
            pass

    async def score() -> None:
        limit = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=limit) as session:
            await asyncio.gather(*(ask(session, path) for path in ("health", "health", "score")))

    scene.takes_effect()
    asyncio.run(score())


@fault("a gRPC reward model that never answers", "reward-blocked", phase="reward",
       needs=http_server, modules=("grpc",), states=MAY_ANSWER)  # fmt: skip
def call_grpc_reward(scene: Scene) -> None:
    import grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{scene.facts['port']}")
    scene.takes_effect()
    channel.unary_unary("/rewards.Judge/Score")(b"answer", wait_for_ready=True)


@fault("judge says 429, come back in an hour", "reward-blocked", phase="reward", states=BUSY,
       needs=server("limits"))  # fmt: skip
def back_off(scene: Scene) -> None:
    while True:
        try:
            urllib.request.urlopen(address(scene, "score"), data=b"{}")
        except urllib.error.HTTPError as limited:
            scene.takes_effect()
            time.sleep(float(limited.headers["Retry-After"]))


@fault("sandbox server on a Unix socket is silent", "reward-blocked", phase="reward",
       needs=server("silent-socket"), world_size=2, states=MAY_ANSWER)  # fmt: skip
def ask_sandbox(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX) as sandbox:
        sandbox.connect(scene.facts["socket"])
        sandbox.sendall(b'{"code": "print(42)"}\n')
        scene.takes_effect()
        sandbox.recv(4096)


@fault("a connection that is never accepted", "reward-blocked", phase="reward",
       needs=server("full-backlog"), states=MAY_ANSWER)  # fmt: skip
def connect_to_judge(scene: Scene) -> None:
    scene.takes_effect()
    socket.create_connection(("127.0.0.1", scene.facts["port"]))


@fault("a TLS handshake that never ends", "reward-blocked", phase="reward", needs=http_server,
       states=MAY_ANSWER)  # fmt: skip
def connect_by_tls(scene: Scene) -> None:
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", scene.facts["port"])) as plain:
        scene.takes_effect()
        context.wrap_socket(plain, server_hostname="judge.example")


@fault("samples sent to a server that does not read", "reward-blocked", phase="reward",
       needs=http_server, world_size=8, states=MAY_ANSWER)  # fmt: skip
def upload_samples(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.facts["port"])) as judge:
        scene.takes_effect()
        judge.sendall(b"POST /score HTTP/1.1\r\n\r\n" + bytes(64 << 20))


@fault("a name server that does not answer", "reward-blocked", phase="reward",
       needs=server("silent-resolver"), states=MAY_ANSWER)  # fmt: skip
def look_up_judge(scene: Scene) -> None:
    resolver = scene.folder / "resolv.conf"
    resolver.write_text(f"nameserver {scene.facts['resolver']}\noptions timeout:20 attempts:5\n")
    assert LIBC.unshare(CLONE_NEWNS) == 0
    assert LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    assert LIBC.mount(bytes(resolver), b"/etc/resolv.conf", None, MS_BIND, None) == 0
    scene.takes_effect()
    socket.getaddrinfo("judge.example.com", 443)


@fault("one rank scores for all, its model is silent", "reward-blocked", phase="reward",
       needs=http_server, everyone=True, world_size=8, states=MAY_ANSWER)  # fmt: skip
def score_for_all(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scores = None
    if scene.guilty:
        with socket.create_connection(("127.0.0.1", scene.facts["port"])) as model:
            scene.takes_effect()
            model.recv(1)
        scores = [torch.ones(1)] * scene.world_size
    dist.scatter(torch.ones(1), scores, src=scene.culprit)
