"""vLLM's HTTP API, as far as TRL's AsyncGRPOTrainer asks it: TOKENIZER FOLDER SECONDS [PLACES].

Answers each completion after SECONDS with token ids of the tokenizer, which has one token per byte;
where the prompt offers a tool that was not called yet, with a call of it. Paused, it stands still,
as vLLM does with `mode=keep`. PLACES: how many it answers at once, while others wait for a place.
Its port is in FOLDER/port; when each answer began and ended in FOLDER/engine.txt.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOKENIZER, FOLDER, SECONDS = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
MOST = int(sys.argv[4]) if len(sys.argv) > 4 else 1 << 20
PLACES = threading.Semaphore(MOST)
SAID = json.loads(TOKENIZER.read_text())
IDS: dict[str, int] = SAID["model"]["vocab"]
END: int = next(t["id"] for t in SAID["added_tokens"] if t["content"] == "<|end|>")
# Bytes that are no printable character have another one in a byte-level vocabulary.
SPELLED = {" ": "\u0120", "\n": "\u010a"}
TEXTS = {IDS[SPELLED.get(text, text)]: text for text in map(chr, (10, *range(32, 127)))}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "four"}}\n</tool_call>'
OFFERED, ANSWERED = '"name": "look_up"', "<tool_response>"
MAX_LENGTH = 2048

RUNNING = threading.Event()
RUNNING.set()
LOCK = threading.Lock()
COUNTS = {"running": 0, "answers": 0, "tokens": 0}


def ids_of(text: str) -> list[int]:
    return [IDS[SPELLED.get(character, character)] for character in text]


def compute(seconds: float) -> None:
    """Takes so long of the time in which it is not paused."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        paused = time.monotonic()
        if not RUNNING.is_set():
            RUNNING.wait()
            until += time.monotonic() - paused
        time.sleep(min(left, 0.005))


def complete(request: dict[str, Any]) -> dict[str, Any]:
    """One completion; its text differs from the one before, so that rewards differ too."""
    prompt = "".join(TEXTS.get(token, "") for token in request["prompt"])
    with LOCK:
        COUNTS["running"] += 1
        COUNTS["answers"] += 1
        number = COUNTS["answers"]
    with PLACES:
        RUNNING.wait()
        begun_ns = time.time_ns()
        compute(SECONDS)
        ended_ns = time.time_ns()
    calls = prompt.count(OFFERED) == 1 and ANSWERED not in prompt
    text = CALL if calls else f"answer {number} is {'x' * (number % 5)}"
    tokens = [*ids_of(text), END]
    with LOCK:
        COUNTS["running"] -= 1
        COUNTS["tokens"] += len(tokens)
        with (FOLDER / "engine.txt").open("a") as file:
            file.write(f"{begun_ns} {ended_ns}\n")
    return {
        "choices": [{"token_ids": tokens, "logprobs": {"token_logprobs": [-5.0] * len(tokens)}}]
    }


def metrics() -> str:
    asked = COUNTS["running"]
    return (
        f'vllm:num_requests_running{{model_name="tiny"}} {min(asked, MOST)}.0\n'
        f'vllm:num_requests_waiting{{model_name="tiny"}} {max(asked - MOST, 0)}.0\n'
        'vllm:kv_cache_usage_perc{model_name="tiny"} 0.25\n'
        f'vllm:generation_tokens_total{{model_name="tiny"}} {COUNTS["tokens"]}.0\n'
    )


ANSWERS: dict[str, Any] = {
    "/health": {},
    "/v1/models": {"data": [{"id": "tiny", "max_model_len": MAX_LENGTH}]},
    "/server_info": {"vllm_config": {"model_config": {"dtype": "torch.float32"}}},
    "/get_world_size": {"world_size": 1},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/metrics":
            self._answer(metrics().encode(), "text/plain")
        elif path in ANSWERS:
            self._answer(json.dumps(ANSWERS[path]).encode())
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, reply = urlsplit(self.path).path, {}
        if path == "/pause":
            RUNNING.clear()
        elif path == "/resume":
            RUNNING.set()
        elif path == "/v1/completions":
            reply = complete(json.loads(body))
        self._answer(json.dumps(reply).encode())

    def _answer(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    new = FOLDER / "port.new"
    new.write_text(str(server.server_port))
    new.rename(FOLDER / "port")
    server.serve_forever()
