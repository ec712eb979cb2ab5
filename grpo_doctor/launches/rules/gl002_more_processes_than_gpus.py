"""More processes than GPUs.

Each training process takes a GPU of its own by its local rank. The processes beyond the last GPU
end with `invalid device ordinal`, and the others wait for them until their timeout.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View, fatal_flaw

DOMAIN = SAMPLES


def check(view: View) -> Flaw | None:
    """Processes on a host against the GPUs that it shows them."""
    per_node, cards = view.launch.processes_per_node, view.cards
    if cards is None or per_node <= cards:
        return None
    return fatal_flaw(
        headline=f"{per_node} processes on {cards} GPU{'s' * (cards != 1)}",
        evidence=(f"{per_node} processes per host, {cards} visible GPUs per host",),
        fixes=(f"start {cards} processes per host, or show it {per_node} GPUs",),
        source=view.source("run.gpus_per_node"),
    )
