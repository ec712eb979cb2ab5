"""The trainer asks another port than the server listens on.

The trainer waits for the server's answer on the port that it is told, up to its timeout, and then
ends with a connection error.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import TRAINS, Flaw, View, fatal_flaw

DOMAIN = TRAINS


def check(view: View) -> Flaw | None:
    """The port on both sides."""
    server = view.launch.server
    if server is None or view.value("vllm.mode") != "server":
        return None
    theirs, ours = server.value("vllm.server_port"), view.value("vllm.server_port")
    if "vllm_server_base_url" in view.launch.options or not theirs or not ours or theirs == ours:
        return None
    return fatal_flaw(
        headline=f"the server listens on port {theirs}, the trainer asks port {ours}",
        evidence=("the trainer would wait until its timeout",),
        fixes=(view.flag("vllm.server_port", theirs),),
        source=view.source("vllm.server_port"),
    )
