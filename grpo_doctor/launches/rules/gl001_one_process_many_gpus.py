"""One process sees several GPUs.

A launcher starts one process per GPU. Where one process sees several, DeepSpeed has nobody to
divide states with: ZeRO-3 puts the whole model on one card, or ms-swift spreads its layers over
the cards (`device_map`), where only one card works at a time; with vLLM or DeepSpeed it refuses
to start. A smaller batch will not help.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import LIKE_TRL, Flaw, View

DOMAIN = LIKE_TRL
_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


def check(view: View) -> Flaw | None:
    """One process, several visible GPUs, and something that divides work among processes."""
    cards = view.cards
    if cards is None or cards < 2:
        return None
    if view.processes != 1:
        return _unsaid(view, cards) if _is_unsaid(view) else None
    stage = view.value("deepspeed.stage")
    strategy = view.value("parallel.strategy")
    sharding = f"ZeRO-{stage}" if stage is not None else strategy
    evidence = [f"{cards} GPUs are visible, and {_started(view)} 1 process"]
    if sharding:
        evidence.append(f"{sharding} divides states among processes: with one it divides nothing")
    else:
        evidence.append("the others stay idle, or hold layers that wait for each other")
    pointless = bool(sharding) or bool(view.value("vllm.use"))
    return Flaw(
        severity="high" if pointless else "medium",
        headline=f"one process on {_WORDS.get(cards, cards)} GPUs",
        evidence=tuple(evidence),
        fixes=(_fix(view, cards), "or show it one GPU: CUDA_VISIBLE_DEVICES=0"),
        source=view.source("deepspeed.preset", "deepspeed.stage"),
        ends=pointless and view.launch.framework == "ms-swift",
        first=pointless,
    )


def _is_unsaid(view: View) -> bool:
    environment = view.launch.environment
    counts_set = "NPROC_PER_NODE" in environment or "NNODES" in environment
    swift = view.launch.framework == "ms-swift"
    return swift and not view.launch.launcher and not counts_set


def _unsaid(view: View, cards: int) -> Flaw:
    return Flaw(
        severity="medium",
        headline=f"NPROC_PER_NODE is not set: ms-swift starts one process on {cards} GPUs",
        evidence=("the rest of this check assumes one process per GPU",),
        fixes=(_fix(view, cards),),
        source=view.source("deepspeed.preset", "deepspeed.stage"),
    )


def _started(view: View) -> str:
    processes = view.launch.environment.get("NPROC_PER_NODE")
    if processes:
        return f"NPROC_PER_NODE={processes} starts"
    return f"{view.launch.launcher} starts" if view.launch.launcher else "the command is"


def _fix(view: View, cards: int) -> str:
    if view.launch.framework == "ms-swift":
        return f"NPROC_PER_NODE={cards} swift {view.launch.subcommand} ..."
    if view.launch.launcher == "accelerate" or view.launch.framework == "trl":
        return f"accelerate launch --num_processes {cards} ..."
    return f"torchrun --nproc_per_node {cards} ..."
