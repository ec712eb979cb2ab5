"""Two of the commands share a port.

Server, weight transfer and torchrun each listen on a port of their own. The second that asks for
the same one ends with `address already in use`, and with two jobs on a host both use torchrun's
29500.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View, fatal_flaw

DOMAIN = EVERY_COMMAND


def check(view: View) -> Flaw | None:
    """Ports of the trainer's rendezvous, of the server, and of the weight transfer."""
    ports: dict[str, str] = {}
    main: Any = view.launch.environment.get("MASTER_PORT") or view.launch.options.get(
        "main_process_port"
    )
    for name, value in (
        ("MASTER_PORT", main),
        ("the server", _port(view)),
        ("the weight transfer", view.launch.settings.get("vllm.group_port")),
    ):
        if value is None:
            continue
        if str(value) in ports:
            return fatal_flaw(
                headline=f"port {value} is given to {ports[str(value)]} and to {name}",
                evidence=("each listens on a port of its own",),
                fixes=(
                    f"MASTER_PORT={int(value) + 1}" if str(value).isdigit() else "another port",
                ),
                source=view.source("vllm.server_port", "vllm.group_port"),
            )
        ports[str(value)] = name
    return None


def _port(view: View) -> Any:
    server = view.launch.server
    port = server.settings.get("vllm.server_port") if server else None
    return port or view.launch.settings.get("vllm.server_port")
