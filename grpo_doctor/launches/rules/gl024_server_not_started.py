"""Rollouts are expected from a server that is not named.

In server mode the trainer waits for a server that somebody else starts: `swift rollout`, or `trl
vllm-serve`. Without an address ms-swift refuses to start; TRL waits for its timeout. From TRL
0.18 to 0.29 this was the default of use_vllm.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT_AND_TRL, Flaw, View

DOMAIN = SWIFT_AND_TRL


def check(view: View) -> Flaw | None:
    """Server mode without an address and without a server among the commands."""
    if not view.value("vllm.use"):
        return None
    if view.value("vllm.mode") != "server" or view.launch.server is not None:
        return None
    if any("server_host" in key or "base_url" in key for key in view.launch.options):
        return None
    swift = view.launch.framework == "ms-swift"
    command = "swift rollout" if swift else "trl vllm-serve"
    return Flaw(
        severity="high" if swift else "medium",
        headline="server mode, but no server is given",
        evidence=(
            "vllm_mode is server"
            if view.sets("vllm.mode")
            else "server mode is this version's default",
        ),
        fixes=(
            f"start `{command} --model ...` on GPUs of its own, and give its address here",
            f"or {view.flag('vllm.mode', 'colocate')}",
        ),
        source=view.source("vllm.mode", "vllm.use"),
        ends=swift,
    )
