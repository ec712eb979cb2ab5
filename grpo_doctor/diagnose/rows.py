"""What rows of a table show: gradients of steps, `ray status`, `nvidia-smi`."""

from __future__ import annotations

import re

from grpo_doctor.diagnose.model import Certainty, Finding, line_at
from grpo_doctor.diagnose.signatures import named

_GPU = re.compile(r"(\d{1,9})W +/ +(\d{1,9})W \| +\d+MiB +/ +\d+MiB \| +(\d{1,9})%")
_BUSY, _IDLE = 90, 5  # percent of utilization
_SPINS_BELOW = 0.4  # of the power limit: a kernel that waits for its peers draws little
_GRADIENT = re.compile(r"grad[_ ]norm['\"]? {0,2}[:=] {0,2}['\"]?(?:(nan)\b|-?\d)", re.IGNORECASE)
_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"
_TOTAL = re.compile(rf"^\W{{0,9}}{_NUMBER}/{_NUMBER} (CPU|GPU|TPU|NPU|HPU)\b", re.MULTILINE)
_DEMAND = re.compile(r"(?m)^\W{0,9}\{([^}\n]{3,200})\}(?: \* (\d{1,9}))?[^\n]{0,40}?: \d+\+ pend")
_BUNDLE = re.compile(rf"'(CPU|GPU|TPU|NPU|HPU)': {_NUMBER}")
_NODES = re.compile(r"^\W{0,9}(\d{1,9}) (?:node_|\S*(?:head|worker))", re.MULTILINE)


def gradient_finding(text: str, framework: str) -> Finding | None:
    """Return that gradients are NaN to the last row; a fact where later ones are numbers again."""
    rows = [(row.start(), row[1]) for row in _GRADIENT.finditer(text)]
    nan, finite = ([at for at, word in rows if bool(word) is kind] for kind in (True, False))
    if not nan:
        return None
    since = next((at for at in nan if not finite or at > finite[-1]), None)
    if since is None:
        says = (
            f"the gradient's norm is NaN in {len(nan)} of {len(rows)} rows and a number in later "
            "ones: fp16 skips such steps while it looks for its loss scale; with bf16, or if they "
            "become frequent, look at those batches"
        )
        return Finding("gradient-was-nan", "fact", "likely", says)
    says = "The gradient's norm is NaN from this row on: training has diverged, or a batch gave NaN"
    says += " (no valid token, a reward that is NaN, fp16)."
    fix = "go back to a checkpoint before it; lower {train.learning_rate}, bf16, and look at the "
    fix = named(f"{fix}rewards and lengths of that step", framework)
    return Finding("gradient-is-nan", "quality", "possible", says, *line_at(text, since), [fix])


def ray_finding(text: str) -> Finding | None:
    """Return which pending demand of `ray status` the cluster cannot meet."""
    if "pending" not in text or "Autoscaler status" not in text:
        return None
    totals = {row[3]: (float(row[1]), float(row[2])) for row in _TOTAL.finditer(text)}
    nodes = sum(int(row[1]) for row in _NODES.finditer(text))
    for demand in _DEMAND.finditer(text):
        for what, amount in _BUNDLE.findall(demand[1]):
            each, all_of = float(amount), float(amount) * int(demand[2] or 1)
            used, total = totals.get(what, (0.0, 0.0))
            sure: Certainty = "proven"
            if all_of > total:
                says = f"Ray's cluster has {total:g} {what} and {all_of:g} are asked for at once."
            elif all_of > total - used:
                says = f"{all_of:g} {what} are asked for, and {used:g} of {total:g} are in use."
            elif nodes and each > total / nodes:
                says = f"One node is asked for {each:g} {what}; {nodes} have {total:g} together."
                sure = "possible"
            else:
                continue
            fix = (
                f"ask for fewer {what}s, end other jobs, or add nodes; a node has what its driver "
            )
            fix += f"shows, or ray start --num-{what.lower()}s says"
            at = line_at(text, demand.start())
            return Finding("ray-lacks", "config", sure, says, *at, [fix], "ray list nodes")
    return None


def gpus_shown(text: str) -> list[str]:
    """Return the state of the GPUs in a text, which is one moment alone."""
    rows = [tuple(map(int, row.groups())) for row in _GPU.finditer(text)] if "MiB /" in text else []
    if not rows:
        return []
    low, high = (end(percent for *_, percent in rows) for end in (min, max))
    span = f"{low}%" if low == high else f"{low} to {high}%"
    facts = [f"{len(rows)} {'GPUs' if rows[1:] else 'GPU'} at {span} utilization"]
    spins = [row for row in rows if row[2] >= _BUSY and row[0] < _SPINS_BELOW * row[1]]
    if spins:
        facts.append(
            f"{len(spins)} of them draw{'s' * (len(spins) == 1)} at most {max(spins)[0]} of "
            f"{spins[0][1]} W: a kernel that waits for other ranks, as NCCL's, looks like that"
        )
    idle = sum(percent <= _IDLE for *_, percent in rows)
    if idle and high >= _BUSY:
        facts.append(f"{idle} {'GPUs do' if idle > 1 else 'GPU does'} nothing, others are busy")
    return facts
