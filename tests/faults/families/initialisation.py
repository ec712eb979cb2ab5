"""Jobs that never start: a rank is not there, or not where the others meet."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.registry import Scene, add, fault

add("a rank that was never started", "rank-missing", starts_culprit=False)
add("a rank that was never started, 8 ranks", "rank-missing", starts_culprit=False, world_size=8)
add("WORLD_SIZE is one too many", "rank-missing", claimed_world_size=5, fixed_culprit=4)


@fault(
    "one rank waits for its data before it joins", "user-code-blocked", "dataload-blocked",
    before_init=True, states=("stuck", "slow"),
)  # fmt: skip
def wait_for_dataset(scene: Scene) -> None:
    scene.takes_effect()
    time.sleep(3600)


@fault("one rank dies before it joins", "rank-dead", "rank-missing", before_init=True,
       states=("stuck", "dead"))  # fmt: skip
def load_model(scene: Scene) -> None:
    scene.takes_effect()
    os.kill(os.getpid(), signal.SIGKILL)


@fault(
    "one rank looks for the others at a wrong port", "rank-missing", "network-silent",
    before_init=True, fixed_culprit=2,
)  # fmt: skip
def read_cluster_file(scene: Scene) -> None:
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) ^ 1)
    scene.takes_effect()
