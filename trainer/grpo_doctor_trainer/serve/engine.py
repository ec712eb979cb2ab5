"""vLLM's engine as the loop steps it: in this process, its workers beside it.

The scheduler and, on one device, the worker too are in the server's own process: what ends the
server ends the engine. With more devices vLLM starts a process for each, which ends when it loses
its parent.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.sampling import completion_of, sampling_parameters
from grpo_doctor_trainer.rollout.vllm.shm_cleanup import remove_of_servers
from grpo_doctor_trainer.rollout.vllm.statistics import EngineWatch
from grpo_doctor_trainer.serve.loop import NewSequence, RequestError
from grpo_doctor_trainer.serve.protocol import Prompt, Sampling
from grpo_doctor_trainer.serve.starting import model_folder, start_engine
from grpo_doctor_trainer.serve.state import model_shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpo_doctor_trainer.config.server import ServeConfig
    from grpo_doctor_trainer.serve.protocol import Completion, JoinRequest
    from grpo_doctor_trainer.serve.state import EngineSnapshot

_LEAVE_S = 5.0


class VllmEngine:
    """Owns the engine; all methods are called from the thread that made it.

    Raises:
        RolloutError: vLLM is not installed, or could not start with this model.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        # vLLM reads these when it is imported.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # the trainer computes too
        self._watch = EngineWatch()
        self._folder = ExitStack()
        self._engine: Any = None
        if config.tensor_parallel_size > 1:
            remove_of_servers()
        try:
            folder = self._folder.enter_context(model_folder(config))
            self._engine = start_engine(config, folder, self._watch)
            self._warm_up()
        except BaseException:
            self.close()
            raise

    def facts(self) -> dict[str, Any]:
        """Gives what `Health` says of an engine."""
        import vllm  # noqa: PLC0415 - has been imported with the engine

        model, settings = self._engine.model_config, self._engine.vllm_config
        return {
            "shape": model_shape(model.hf_config),
            "max_model_len": model.max_model_len,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": settings.device_config.device_type,
            "workers": settings.parallel_config.world_size,
            "vllm": str(vllm.__version__),
        }

    def add(self, sequence: NewSequence) -> None:
        """Takes a completion to make.

        Raises:
            RequestError: vLLM refuses the prompt, or an image is none.
        """
        source = sequence.prompt
        prompt: dict[str, Any] = {"prompt_token_ids": source.tokens}
        if source.images:
            pictures = [_picture(image) for image in source.images]
            prompt = {"prompt": source.text, "multi_modal_data": {"image": pictures}}
        parameters = sampling_parameters(sequence.sampling, sequence.seed)
        try:
            self._engine.add_request(sequence.key, prompt, parameters)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise RequestError(f"vLLM refused a prompt: {error}") from error

    def step(self) -> list[tuple[str, Completion]]:
        """Runs one forward pass; gives the completions it finished, by key."""
        return [
            (output.request_id, completion_of(output))
            for output in self._engine.step()
            if output.finished
        ]

    def abort(self, keys: Iterable[str]) -> None:
        """Forgets completions."""
        self._engine.abort_request(list(keys))

    def load_files(self, paths: list[str]) -> tuple[str, int]:
        """Takes over weights from safetensors files; gives their signature and number."""
        return self._handover("grpo_load_files", (paths,))

    def join(self, request: JoinRequest) -> None:
        """Joins the trainer's group of collectives."""
        group = (request.backend, request.host, request.port, request.size, request.timeout_s)
        self._engine.collective_rpc("grpo_join", args=group)

    def receive(self) -> tuple[str, int]:
        """Takes over weights from the group; gives their signature and number."""
        return self._handover("grpo_receive", ())

    def close(self) -> None:
        """Ends the engine and its processes."""
        if self._engine is not None:
            with suppress(Exception):  # workers in a group of collectives would not end in time
                self._engine.collective_rpc("grpo_leave", timeout=_LEAVE_S)
            self._engine.engine_core.shutdown()
        if self._config.tensor_parallel_size > 1:
            remove_of_servers()  # vLLM ends its workers before they clear up
        self._folder.close()

    def _handover(self, method: str, arguments: tuple[Any, ...]) -> tuple[str, int]:
        answers = {tuple(answer) for answer in self._engine.collective_rpc(method, args=arguments)}
        self._engine.reset_prefix_cache()  # what it holds was computed with the old weights
        self._engine.reset_encoder_cache()  # the same of images
        if len(answers) != 1:
            raise RolloutError(f"the engine's workers were handed different weights: {answers}")
        signature, tensors = answers.pop()
        return signature, tensors

    def snapshot(self) -> EngineSnapshot:
        """Looks at the engine, as of its last step."""
        return self._watch.now

    def _warm_up(self) -> None:
        # The first tokens wait for kernels to be compiled, which takes many seconds: here, and not
        # in the first rollout.
        sampling = Sampling(
            max_tokens=2, temperature=1.0, top_p=1.0, top_k=-1, repetition_penalty=1.0,
            stop_tokens=(),
        )  # fmt: skip
        self.add(NewSequence("warm-up", Prompt(1, [0, 1]), sampling, None))
        while self._engine.has_unfinished_requests():
            self._engine.step()
        self._engine.reset_prefix_cache()


def _picture(encoded: str) -> Any:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - vision-language models only

    try:
        with Image.open(io.BytesIO(base64.b64decode(encoded, validate=True)), formats=["PNG"]) as f:
            return f.convert("RGB")
    except (binascii.Error, UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise RequestError(f"an image is no PNG in base64: {error}") from error
