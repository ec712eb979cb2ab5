"""Rollout servers, and the trainers that use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grpo_doctor.launches.rule import (
    EVERY_COMMAND,
    SWIFT,
    SWIFT_AND_TRL,
    TRAINS,
    Flaw,
    View,
    fatal_flaw,
    rule,
)


@rule("GL023", replace(SWIFT, trainings=("grpo", "gkd"), whole=True))
def mode_not_set(view: View) -> Flaw | None:
    """vLLM's mode is not set.

    Since 3.12 ms-swift has no default for --vllm_mode and refuses to start with --use_vllm alone.
    """
    if not view.at_least("3.12.0") or view.launch.options.get("use_ray"):
        return None
    options = view.launch.options  # with Ray its groups of GPUs say it
    if not view.launch.settings.get("vllm.use") or {"vllm_mode", "use_ray"} & options.keys():
        return None
    return fatal_flaw(
        headline="--use_vllm needs --vllm_mode",
        evidence=("it has no default since ms-swift 3.12",),
        fixes=("--vllm_mode colocate", "or --vllm_mode server, with `swift rollout` on other GPUs"),
        source=view.source("vllm.use"),
    )


@rule("GL024", SWIFT_AND_TRL)
def server_not_started(view: View) -> Flaw | None:
    """Rollouts need a server, but none is given.

    In server mode the trainer waits for a server that is started separately: `swift rollout`, or
    `trl vllm-serve`. Without an address ms-swift refuses to start; TRL waits for its timeout. From
    TRL 0.18 to 0.29 this was the default of use_vllm.
    """
    if not view.value("vllm.use"):
        return None
    if view.value("vllm.mode") != "server" or view.launch.server is not None:
        return None
    if any("server_host" in key or "base_url" in key for key in view.launch.options):
        return None
    swift = view.launch.framework == "ms-swift"
    command = "swift rollout" if swift else "trl vllm-serve"
    return Flaw(
        severity="high" if swift else "medium",
        headline="server mode, but no server is given",
        evidence=(
            "vllm_mode is server"
            if view.sets("vllm.mode")
            else "server mode is this version's default",
        ),
        fixes=(
            f"start `{command} --model ...` on separate GPUs, and give its address here",
            f"or {view.flag('vllm.mode', 'colocate')}",
        ),
        source=view.source("vllm.mode", "vllm.use"),
        ends=swift,
    )


_HERE = ("127.0.0.1", "localhost", "0.0.0.0", "::1")  # noqa: S104 - compared, not listened on


@rule("GL025", TRAINS)
def server_on_the_same_gpus(view: View) -> Flaw | None:
    """Server and trainer are on the same GPUs.

    A rollout server takes its share of each GPU that it sees at start and does not give it back. A
    trainer on the same GPU runs out of memory, or NCCL refuses the second process on the device
    when weights are sent.
    """
    server = view.launch.server
    if server is None or view.host.server_cards is not None:
        return None
    address = str(view.launch.options.get("vllm_server_host", "127.0.0.1"))
    if view.nodes > 1 or address not in _HERE or server.is_placed:
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


@rule("GL026", EVERY_COMMAND)
def shared_port(view: View) -> Flaw | None:
    """Two of the commands share a port.

    Server, weight transfer and torchrun each listen on a port of their own. The second that asks
    for the same one ends with `address already in use`, and with two jobs on a host both use
    torchrun's 29500.
    """
    ports: dict[str, str] = {}
    main: Any = view.launch.environment.get("MASTER_PORT") or view.launch.options.get(
        "main_process_port"
    )
    for name, value in (
        ("MASTER_PORT", main),
        ("the server", _port(view)),
        ("the weight transfer", view.launch.settings.get("vllm.group_port")),
    ):
        if value is None:
            continue
        if str(value) in ports:
            return fatal_flaw(
                headline=f"port {value} is given to {ports[str(value)]} and to {name}",
                evidence=("each needs its own port",),
                fixes=(
                    f"MASTER_PORT={int(value) + 1}" if str(value).isdigit() else "another port",
                ),
                source=view.source("vllm.server_port", "vllm.group_port"),
            )
        ports[str(value)] = name
    return None


def _port(view: View) -> Any:
    server = view.launch.server
    port = server.settings.get("vllm.server_port") if server else None
    return port or view.launch.settings.get("vllm.server_port")


@rule("GL027", TRAINS)
def server_port_differs(view: View) -> Flaw | None:
    """The trainer uses another port than the server.

    The trainer waits for the server's answer on its configured port, up to its timeout, and then
    ends with a connection error.
    """
    server = view.launch.server
    if server is None or view.value("vllm.mode") != "server":
        return None
    theirs, ours = server.value("vllm.server_port"), view.value("vllm.server_port")
    if "vllm_server_base_url" in view.launch.options or not theirs or not ours or theirs == ours:
        return None
    return fatal_flaw(
        headline=f"the server listens on port {theirs}, the trainer uses port {ours}",
        evidence=("the trainer would wait until its timeout",),
        fixes=(view.flag("vllm.server_port", theirs),),
        source=view.source("vllm.server_port"),
    )


@rule("GL028", TRAINS)
def server_of_another_model(view: View) -> Flaw | None:
    """The server has another model.

    The trainer sends its weights by name to the server at every step. If the server has another
    model, names or shapes differ, and the first transfer fails; a different folder of the same
    model is fine.
    """
    server = view.launch.server
    if server is None or not server.model or not view.launch.model:
        return None
    theirs, ours = (
        str(name).rstrip("/").rpartition("/")[2] for name in (server.model, view.launch.model)
    )
    if theirs.lower() == ours.lower():
        return None
    return Flaw(
        severity="medium",
        headline=f"the trainer has {ours}, the server has {theirs}",
        evidence=("weights go to the server by their names",),
        fixes=(f"--model {view.launch.model} at the server",),
        source=server.sources.get("model.name"),
    )


@rule("GL039", SWIFT)
def async_needs_a_server(view: View) -> Flaw | None:
    """Asynchronous rollouts need a server.

    A rollout that runs while the trainer computes cannot be on the trainer's GPU. ms-swift refuses
    async_generate without a server.
    """
    if not view.launch.settings.get("rollout.async"):
        return None
    if view.value("vllm.mode") == "server" or view.engine_has_own_card:
        return None
    return fatal_flaw(
        headline="asynchronous rollouts need a server",
        evidence=(f"vllm_mode is {view.value('vllm.mode') or 'not set'}",),
        fixes=(
            "--vllm_mode server, with `swift rollout` on GPUs of its own",
            "or --async_generate false",
        ),
        source=view.source("rollout.async"),
    )
