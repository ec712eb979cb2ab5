"""Launches: what a command, a script or a configuration of a run says, framework by framework.

`read` understands the bundled trainer, ms-swift, TRL, verl, OpenRLHF and their rollout servers.
Nothing is executed and nothing imported; files are read, and Python as syntax.
"""

from grpo_doctor.launches.model import Framework, Launch, Problem, Role, Source, Trainer
from grpo_doctor.launches.reading import read

__all__ = ["Framework", "Launch", "Problem", "Role", "Source", "Trainer", "read"]
