"""A judge as people run one: `python -m tests.frameworks.judge`. Two ports are printed: HTTP that
answers `/SECONDS` after so long, and one that accepts and is silent for ever.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Judge(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(float(self.path.strip("/")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.5\n")

    def log_request(self, *_: object) -> None:
        """Nothing: nobody reads it."""


def _keep_silent(listener: socket.socket) -> None:
    clients = []
    while True:
        clients.append(listener.accept())


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    silent = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_keep_silent, args=(silent,), daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]} {silent.getsockname()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
