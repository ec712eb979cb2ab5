"""What NCCL's RAS port answers, written after NCCL's sources, one process per server.

Run as `python ras_server.py PORT KIND PID...`; says its process number when it listens. Ranks 0, 1,
.. of one communicator are the given processes. KIND: `trainer`, `lost` (as 2.28.9 writes it: all
but rank 0 are missing), `text` (before 2.28.7: no JSON), `silent` (takes connections, says
nothing), `slow` (a letter at a time), `stranger` (another service), `broken` (ends in the midst of
its answer).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

HOST = "127.0.0.1"


def status(pids: list[int]) -> str:
    """A mesh of one communicator."""
    ranks = [{"rank": number, "pid": pid} for number, pid in enumerate(pids)]
    return json.dumps({"communicators": [{"ranks": ranks, "missing_ranks": []}]}, indent=2) + "\n"


def lost(pids: list[int]) -> str:
    """Where a rank is missing a comma is as well."""
    unresponsive = '"status": {"unresponsive": true}'
    missing = (
        f'{{"pid": {pid}, "nvml_dev": {number}\n{unresponsive}}}' for number, pid in enumerate(pids)
    )
    return f'{{"communicators": [{{"ranks": [], "missing_ranks": [{", ".join(missing)}]}}]}}\n'


def talk(connection: socket.socket, answer: str, kind: str) -> None:
    """Speaks with one client until it has its answer."""
    reader = connection.makefile("r")
    for line in reader:
        if kind == "stranger":
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            return
        if line.startswith("CLIENT PROTOCOL"):
            connection.sendall(b"SERVER PROTOCOL 2\n")
        elif line.startswith("TIMEOUT "):
            valid = line.split()[1].isdigit()
            connection.sendall(b"OK\n" if valid else b"ERROR: Invalid timeout value\n")
        elif line.startswith("SET FORMAT") and kind != "text":
            connection.sendall(b"OK\n")
        elif line.startswith("VERBOSE STATUS") and kind == "slow":
            for letter in answer:
                connection.sendall(letter.encode())
                time.sleep(0.05)
        elif line.startswith("VERBOSE STATUS"):
            connection.sendall(answer[: len(answer) // 2 if kind == "broken" else None].encode())
            return
        else:
            connection.sendall(b"ERROR: Unknown command " + line.encode())


def main(port: int, kind: str, pids: list[int]) -> None:
    """Serves for ever."""
    pids = pids or [os.getpid()]
    answer = lost(pids) if kind == "lost" else status(pids)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((HOST, port))
        server.listen(16)
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        silent_connections = []
        while True:
            connection, _ = server.accept()
            if kind == "silent":
                silent_connections.append(connection)
                continue
            with connection:
                talk(connection, answer, kind)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], [int(pid) for pid in sys.argv[3:]])
