"""Server and trainer are on the same GPUs.

A rollout server takes its share of each GPU that it sees at start and does not give it back. A
trainer on the same GPU runs out of memory, or NCCL refuses the second process on the device when
weights are sent.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import TRAINS, Flaw, View, fatal_flaw

DOMAIN = TRAINS
_HERE = ("127.0.0.1", "localhost", "0.0.0.0", "::1")  # noqa: S104 - compared, not listened on


def check(view: View) -> Flaw | None:
    """GPUs that both commands of a run see."""
    server = view.launch.server
    if server is None or view.host.server_cards is not None:
        return None
    address = str(view.launch.options.get("vllm_server_host", "127.0.0.1"))
    if view.nodes > 1 or address not in _HERE:
        return None  # the server may have a host of its own
    if server.gpu_ids is None and view.launch.gpu_ids is None:
        shared = "both see all GPUs"
    elif server.gpu_ids is not None and view.launch.gpu_ids is not None:
        shared_ids = sorted(set(server.gpu_ids) & set(view.launch.gpu_ids))
        if not shared_ids:
            return None
        shared = f"both see GPU {', '.join(shared_ids)}"
    else:
        ids = server.gpu_ids or view.launch.gpu_ids or ()
        shared = f"one sees GPU {', '.join(ids)}, the other all"
    return fatal_flaw(
        headline="server and trainer are on the same GPUs",
        evidence=(shared,),
        fixes=("CUDA_VISIBLE_DEVICES=... before each of the two commands, with no GPU in both",),
    )
