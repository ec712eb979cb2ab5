"""Each rank's seconds per phase, idle time and wait for others, in plain pandas: a peer of ours.

Called by `benchmarks.scale` with a trace.json; alone enough, so that another Python may run it.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec


def main(path: str) -> None:
    import pandas as pd  # noqa: PLC0415 - asked for only if it is there

    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        frame = pd.DataFrame(json.load(file)["traceEvents"])
    frame = frame[frame["ph"] == "X"]
    steps = frame[frame["cat"] == "grpo.step"]
    phases = frame[(frame["cat"] == "grpo.phase") & (frame["depth"] == 1)]
    calls = frame[frame["cat"] == "grpo.collective"].copy()
    calls["group"] = [args["group"] for args in calls["args"]]
    calls["last"] = calls.groupby(["group", "value"])["ts"].transform("max")
    calls["wait"] = (calls["last"] - calls["ts"]).clip(lower=0)
    calls["transfer"] = calls["ts"] + calls["dur"] - calls["last"]
    by_phase = phases.pivot_table("dur", "pid", "name", "sum")
    step_us = steps.groupby("pid")["dur"].sum()
    table = by_phase.assign(
        idle=step_us - by_phase.sum(axis=1),
        wait=calls.groupby("pid")["wait"].sum(),
        transfer=calls.groupby("pid")["transfer"].sum(),
    )
    print(table.mean() / 1e6 / steps["value"].nunique())


if __name__ == "__main__":
    if sys.argv[1] == "--installed":
        sys.exit(find_spec("pandas") is None)
    main(sys.argv[1])
