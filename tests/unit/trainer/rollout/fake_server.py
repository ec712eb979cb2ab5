"""A vLLM server as far as the trainer asks it: real HTTP, and completions that count on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from safetensors.torch import load_file


class FakeVllm:
    """Completes a prompt by counting on from its last token.

    Attributes:
        settings: what it says of itself.
        missing: the pages that it does not have.
        reason: how its completions end.
        held: prompts with this last token wait for it to be set.
        names: of the weights that it was sent.
        asked: what was asked, in order; of prompts, their bodies are in `bodies`.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = {
            "model": "some/model", "dtype": "torch.float32", "max_model_len": 24,
            "logprobs_mode": "processed_logprobs", "generation_config": "vllm",
        } | settings  # fmt: skip
        self.missing: set[str] = set()
        self.reason = "length"
        self.held: dict[int, threading.Event] = {}
        self.names: set[str] = set()
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.version = "default"

    def answer(self, page: str, body: dict[str, Any]) -> Any:
        self.asked.append(page)
        if page == "/server_info":
            return {"vllm_config": {"model_config": self.settings}}
        if page == "/collective_rpc":
            for path in Path(body["kwargs"]["weights_path"]).iterdir():
                self.names |= set(load_file(path))
        if page == "/update_weight_version":
            self.version = body["new_version"]
        if page == "/inference/v1/generate":
            return self.complete(body)
        return {}

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        wish, last = body["sampling_params"], body["token_ids"][-1]
        self.bodies.append(body)
        if last in self.held:
            self.held[last].wait(60)
        tokens: list[int] = []
        while len(tokens) < wish["max_tokens"] and (tokens or [0])[-1] not in wish.get(
            "stop_token_ids", []
        ):
            tokens.append(last + len(tokens) + 1)
        content = [{"token_id": token, "logprob": -float(token % 7)} for token in tokens]
        choice = {
            "token_ids": tokens, "finish_reason": self.reason, "logprobs": {"content": content},
            "weight_versions": [{"version": self.version, "start": 0, "end": len(tokens)}],
        }  # fmt: skip
        usage = {"prompt_tokens": len(body["token_ids"])}
        return {"choices": [choice] * wish.get("n", 1), "usage": usage}


@contextmanager
def serving(vllm: FakeVllm) -> Iterator[str]:
    """Serves until the block ends; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            page = self.path.partition("?")[0]
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else {}
            text = json.dumps({} if page in vllm.missing else vllm.answer(page, body))
            self.send_response(404 if page in vllm.missing else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        for event in vllm.held.values():
            event.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
