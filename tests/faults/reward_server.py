"""A reward server that accepts and then is silent, or sends a byte now and then.

`python reward_server.py EVERY_S`: 0 for silence. Prints its port; ends with its standard input.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import threading

_ANSWER = b"HTTP/1.1 200 OK\r\n"


def answer(client: socket.socket, every_s: float) -> None:
    """Never completes a header."""
    with client, contextlib.suppress(OSError):
        for byte in itertools.cycle(_ANSWER):
            threading.Event().wait(every_s or None)
            client.send(bytes([byte]))


def serve(every_s: float) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer, args=(client, every_s), daemon=True).start()


if __name__ == "__main__":
    threading.Thread(target=serve, args=(float(sys.argv[1]),), daemon=True).start()
    sys.stdin.read()
    os._exit(0)
