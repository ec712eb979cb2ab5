"""Which way the weights take to the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.rollout.vllm.transfer_collective import CollectiveTransfer
from grpo_doctor_trainer.rollout.vllm.transfer_files import FileTransfer
from grpo_doctor_trainer.serve.folders import shared

if TYPE_CHECKING:
    from grpo_doctor_trainer.rollout.vllm.client import ServerClient
    from grpo_doctor_trainer.rollout.vllm.transfer import WeightTransfer
    from grpo_doctor_trainer.serve.state import Health


def make_transfer(
    client: ServerClient, health: Health, device: torch.device, timeout_s: float
) -> WeightTransfer:
    """Picks the way: NCCL between GPUs, files where there is a shared folder, else gloo.

    Raises:
        RolloutError: the server's workers could not be joined.
    """
    if device.type == "cuda" and health.device == "cuda":
        return CollectiveTransfer(client, health, device, timeout_s, "nccl")
    folders = [folder for folder in health.folders if shared(folder)]
    if folders:
        return FileTransfer(client, folders)
    return CollectiveTransfer(client, health, torch.device("cpu"), timeout_s, "gloo")
