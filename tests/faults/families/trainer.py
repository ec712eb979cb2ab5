"""The bundled trainer, started as a user does, with a reward function that is at fault; plain and
under `grpo-doctor run`.
"""

from __future__ import annotations

import os
import signal

from tests.faults.families.control import stop_rank
from tests.faults.families.user_code import call_reward_server, match_answer, wait_for_judge
from tests.faults.host import http_server
from tests.faults.registry import MAY_ANSWER, Facts, Scene, add, fault

REWARD: Facts = {"phase": "reward", "world_size": 2}
IN_RANK = {"trainer_flags": ["--reward_num_workers", "0"]}

add("trainer: sleep in the reward", "reward-blocked", inside=wait_for_judge, launch="trainer",
    no_arguments=True, **REWARD)  # fmt: skip
add("trainer: sleep in the reward, in the rank", "reward-blocked", inside=wait_for_judge,
    launch="trainer", extra=IN_RANK, **REWARD)  # fmt: skip
add("trainer, recorded: reward server never answers", "reward-blocked", launch="recorded",
    inside=call_reward_server, needs=http_server, **REWARD, states=MAY_ANSWER)  # fmt: skip
add("trainer: catastrophic regular expression", "reward-busy", inside=match_answer,
    launch="trainer", states=("stuck", "slow"), **REWARD)  # fmt: skip


@fault("trainer: SIGSTOP", "rank-stopped", outside=stop_rank, launch="trainer", **REWARD)
def score_until_stopped(scene: Scene) -> None:
    scene.arrived()


@fault(
    "trainer: reward worker stopped", "reward-blocked", "child-stuck", launch="trainer", **REWARD
)
def stop_own_process(scene: Scene) -> None:
    scene.takes_effect()
    os.kill(os.getpid(), signal.SIGSTOP)
