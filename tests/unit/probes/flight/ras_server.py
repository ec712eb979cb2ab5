"""What NCCL's RAS port answers, written after NCCL's sources, one process per server.

Run as `python ras_server.py PORT KIND PID...`; says its process number when it listens. Ranks 0, 1,
.. of one communicator are the given processes. KIND:
`trainer`, `engine` (two meshes, JSON, each rank one launch behind the one before), `even`, `behind`
(rank 2 is one launch behind), `lost` (as 2.28.9 writes it: rank 1 does not answer), `text` (before
2.28.7: no JSON), `silent` (takes connections, says nothing), `slow` (a letter at a time),
`stranger` (another service), `broken` (ends in the midst of its answer).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

STATUS = {
    "init_state": 0,
    "async_error": 0,
    "finalize_called": False,
    "destroy_flag": False,
    "abort_flag": False,
}
HOST = "127.0.0.1"


def rank(number: int, pid: int, count: int) -> dict[str, object]:
    """A rank of a communicator as verbose JSON has it."""
    return {
        "rank": number,
        "host": HOST,
        "pid": pid,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": STATUS,
        "collective_counts": {"Broadcast": 1, "AllReduce": count},
    }


def status(kind: str, pids: list[int]) -> str:
    """A mesh of one communicator."""
    late = {"even": {}, "behind": {2: 1}}.get(kind, {number: number for number in range(len(pids))})
    ranks = [rank(number, pid, 10 - late.get(number, 0)) for number, pid in enumerate(pids)]
    communicator = {
        "hash": f"0x{kind}",
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks),
        "ranks_count": len(ranks),
        "missing_ranks_count": 0,
        "ranks": ranks,
        "missing_ranks": [],
    }
    return document("2.29.2", communicator)


def document(version: str, communicator: dict[str, object]) -> str:
    facts = {
        "nccl_version": version,
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
    }
    return json.dumps(facts, indent=2) + "\n"


def lost(pids: list[int]) -> str:
    """All but the first are missing, and where a rank is missing a comma is as well."""
    missing = [
        {
            "rank": number, "host": HOST, "pid": pid, "cuda_dev": number, "nvml_dev": number,
            "status": {"unresponsive": True, "considered_dead": False},
        }
        for number, pid in enumerate(pids) if number
    ]  # fmt: skip
    communicator = {
        "hash": "0x1", "secondary_hash": "0x2:0x3", "size": len(pids),
        "ranks": [rank(0, pids[0], 10)], "missing_ranks": missing,
    }  # fmt: skip
    text = document("2.28.9", communicator)
    head, _, tail = text.partition('"missing_ranks"')
    for number in range(1, len(pids)):
        tail = tail.replace(f'"nvml_dev": {number},', f'"nvml_dev": {number}')
    return head + '"missing_ranks"' + tail


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
    answer = lost(pids) if kind == "lost" else status(kind, pids)
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
