"""How a reader sees what Python does, of a run whose processes may be gone by then."""

STACKS = "`grpo-doctor attach` shows every rank's stack while the job runs"
PROFILE = "run `py-spy record --subprocesses -d 30 -o profile.svg --pid PID`"
