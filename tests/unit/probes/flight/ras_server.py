"""What NCCL's RAS port answers, recorded by hand from its protocol, one process per server.

Run as `python ras_server.py PORT KIND`; says its process number when it listens.
KIND: `trainer` and `engine` (two meshes), `malformed` (NCCL 2.28.9), `text` (before 2.28),
`silent` (takes connections, says nothing), `slow` (a letter at a time), `stranger`
(another service).
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


def rank(number: int, pid: int, count: int) -> dict[str, object]:
    """A rank of a communicator as verbose JSON has it."""
    return {
        "rank": number,
        "host": "127.0.0.1",
        "pid": pid,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": STATUS,
        "collective_counts": {"Broadcast": 1, "AllReduce": count},
    }


def status(name: str, pids: list[int]) -> str:
    """A mesh of one communicator."""
    ranks = [rank(number, pid, 10 - number) for number, pid in enumerate(pids)]
    communicator = {
        "hash": name,
        "secondary_hash": f"127.0.0.1:{pids[0]}",
        "size": len(ranks),
        "ranks_count": len(ranks),
        "missing_ranks_count": 0,
        "ranks": ranks,
    }
    return json.dumps(
        {
            "nccl_version": "2.29.2",
            "communicators_count": 1,
            "communicators": [communicator],
            "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
        },
        indent=2,
    )


def malformed() -> str:
    """Two missing ranks without the comma between them."""
    missing = '{"rank": 1, "pid": 71, "status": {"unresponsive": true}}'
    return (
        '{"nccl_version": "2.28.9", "communicators": [{"hash": "0x1", "ranks": [],'
        f' "missing_ranks": [\n{missing}\n{missing}\n]}}]}}'
    )


def talk(connection: socket.socket, answer: str, kind: str) -> None:
    """Speaks with one client until it has its answer."""
    reader = connection.makefile("r")
    for line in reader:
        if kind == "stranger":
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            return
        if line.startswith("CLIENT PROTOCOL"):
            connection.sendall(b"SERVER PROTOCOL 2\n")
        elif line.startswith("SET FORMAT"):
            connection.sendall(b"ERROR: Unknown command\n" if kind == "text" else b"OK\n")
        elif line.startswith("VERBOSE STATUS") and kind == "slow":
            for letter in answer:
                connection.sendall(letter.encode())
                time.sleep(0.05)
        elif line.startswith("VERBOSE STATUS"):
            connection.sendall(answer.encode())
            return
        else:
            connection.sendall(b"ERROR: Unknown command\n")


def main(port: int, kind: str, pids: list[int]) -> None:
    """Serves for ever."""
    answer = malformed() if kind == "malformed" else status(f"0x{kind}", pids or [os.getpid()])
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port))
        server.listen(16)
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        kept = []
        while True:
            connection, _ = server.accept()
            if kind == "silent":
                kept.append(connection)
                continue
            with connection:
                talk(connection, answer, kind)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], [int(pid) for pid in sys.argv[3:]])
