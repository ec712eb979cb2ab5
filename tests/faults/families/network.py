"""Connections over which nothing comes any more, though nobody has closed them."""

from __future__ import annotations

import subprocess

from tests.faults.host import other_host
from tests.faults.registry import Outside, Scene, fault


def cut_the_cable(outside: Outside) -> None:
    cable = outside.facts["cable"]
    subprocess.run(["ip", "link", "set", cable, "down"], check=True)


@fault(
    "a rank's network is cut", "network-silent", phase="update", needs=other_host,
    outside=cut_the_cable, fixed_culprit=2,
)  # fmt: skip
def wait_for_the_cut(scene: Scene) -> None:
    scene.arrived()
