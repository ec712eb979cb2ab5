"""How new weights get from the trainer to the server, behind one narrow interface."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from safetensors.torch import save_file

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout.vllm.collective import CollectiveTransfer
from grpo_doctor_trainer.rollout.vllm.weight_checks import Part, Signature, check_signature
from grpo_doctor_trainer.serve.folders import shared
from grpo_doctor_trainer.serve.protocol import FilesRequest, WeightsTaken

if TYPE_CHECKING:
    from concurrent.futures import Future

    from grpo_doctor_trainer.rollout.vllm.client import ServerClient
    from grpo_doctor_trainer.serve.state import Folder, Health


class WeightTransfer(Protocol):
    """Sends weights from rank 0, which alone has one.

    The order of calls is `begin`, `add` for each part, `finish`; after an error, `abandon`.
    """

    def describe(self) -> str:
        """Names the way for the log."""

    def begin(self, version: str) -> None:
        """Starts with new weights."""

    def add(self, part: Part) -> None:
        """Takes one part of the weights; the tensors are valid during the call only.

        Raises:
            RolloutError: it could not be sent.
        """

    def finish(self) -> None:
        """Makes the server use what was added, and checks that it got the same.

        Raises:
            RolloutError: it did not.
        """

    def abandon(self) -> None:
        """Forgets what was added."""

    def close(self) -> None:
        """Leaves nothing behind."""


def make_transfer(
    client: ServerClient,
    health: Health,
    device: torch.device,
    timeout_s: float,
    *,
    overlapped: bool,
) -> WeightTransfer:
    """Picks the way: NCCL between GPUs, files where there is a shared folder, else gloo.

    Args:
        client: speaks to the server.
        health: what the server said of itself.
        device: of the trainer's rank 0.
        timeout_s: until a broadcast that nobody joins is an error.
        overlapped: a part is sent while the next one is gathered. Not over NCCL, which has the
            device's streams for that, and two groups in two threads there were never tried.

    Raises:
        RolloutError: the server's workers could not be joined.
    """
    if device.type == "cuda" and health.device == "cuda":
        return CollectiveTransfer(client, health, device, timeout_s, "nccl")
    folders = [folder for folder in health.folders if shared(folder)]
    transfer: WeightTransfer = (
        FileTransfer(client, folders)
        if folders
        else CollectiveTransfer(client, health, torch.device("cpu"), timeout_s, "gloo")
    )
    return InFlight(transfer) if overlapped else transfer


class InFlight:
    """Sends each part in a thread of its own, while the caller gathers the next one.

    One part is in flight at a time, as a copy, since the caller's tensors may go before it is sent:
    rank 0 holds two parts at most, the one in flight and the one that is gathered.

    Args:
        transfer: does the sending, and is not called from two threads at once.
    """

    def __init__(self, transfer: WeightTransfer) -> None:
        self._transfer = transfer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights-in-flight")
        self._sending: Future[None] | None = None

    def describe(self) -> str:
        """Names the way for the log."""
        return f"{self._transfer.describe()}, a part in flight"

    def begin(self, version: str) -> None:
        """Starts with new weights."""
        self._transfer.begin(version)

    def add(self, part: Part) -> None:
        """Waits for the part before this one, and begins to send a copy of this one.

        Raises:
            RolloutError: the part before this one could not be sent.
        """
        self._arrive()
        copies = [(name, tensor.detach().clone()) for name, tensor in part]
        self._sending = self._thread.submit(self._transfer.add, copies)

    def finish(self) -> None:
        """Waits for the last part, and makes the server use them all."""
        self._arrive()
        self._transfer.finish()

    def abandon(self) -> None:
        """Forgets what was added, after what is in flight has landed."""
        with suppress(RolloutError):
            self._arrive()
        self._transfer.abandon()

    def close(self) -> None:
        """Ends what is in flight, and leaves nothing behind."""
        self._transfer.close()
        self.abandon()
        self._thread.shutdown()

    def _arrive(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()


class FileTransfer:
    """Leaves each part as a safetensors file in a folder of the server's, on the same machine.

    A part goes into the first folder that has room for it: the server's first one is in memory.
    """

    def __init__(self, client: ServerClient, folders: list[Folder]) -> None:
        self._client = client
        self._folders = [Path(folder.path) for folder in folders]
        self._version = ""
        self._files: list[Path] = []
        self._signature = Signature()

    def describe(self) -> str:
        """Names the way for the log."""
        return f"files in {self._folders[0].parent}"

    def begin(self, version: str) -> None:
        """Starts with new weights."""
        self.abandon()
        self._version = version

    def add(self, part: Part) -> None:
        """Writes a file.

        Raises:
            RolloutError: it cannot be written, or no folder has room.
        """
        tensors = _apart(part)
        size = sum(tensor.nbytes for tensor in tensors.values())
        path = self._folder(size) / f"part-{len(self._files)}.safetensors"
        self._files.append(path)
        try:
            save_file(tensors, path)
        except Exception as error:  # safetensors has errors of its own
            raise RolloutError(
                f"the weights for the vLLM server could not be written to {path}: {error}. Give "
                "the server a folder with room: --weights_dir"
            ) from error
        for name, tensor in tensors.items():
            self._signature.add(name, tensor)

    def finish(self) -> None:
        """Has the server load the files, and removes them."""
        try:
            request = FilesRequest(self._version, [str(path) for path in self._files])
            with phase("sync/load"):
                answer = self._client.call("/weights/files", request, WeightsTaken)
            check_signature(self._signature, answer, self._client)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Removes the files."""
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files = []
        self._signature = Signature()

    def close(self) -> None:
        """Removes the files, and the folders too if the server has gone without doing so."""
        self.abandon()
        try:
            self._client.health()
        except (OSError, RolloutError):
            for folder in self._folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, size: int) -> Path:
        for folder in self._folders:
            with suppress(OSError):
                if shutil.disk_usage(folder).free > size * 1.05:
                    return folder
        raise RolloutError(
            f"no folder of the vLLM server at {self._client.address} has room for {size:,} bytes "
            f"of weights ({', '.join(map(str, self._folders))}). Give the server one that has: "
            "--weights_dir; or send smaller parts: --move_model_batches"
        )


def _apart(part: Part) -> dict[str, torch.Tensor]:
    """Gives the tensors on the CPU, each with memory of its own, as safetensors wants them."""
    storages: set[int] = set()
    tensors = {}
    for name, tensor in part:
        copy = tensor.detach().to("cpu").contiguous()
        storage = copy.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != copy.nbytes:
            copy = copy.clone()  # tied to one before, or a slice of something larger
        storages.add(copy.untyped_storage().data_ptr())
        tensors[name] = copy
    return tensors
