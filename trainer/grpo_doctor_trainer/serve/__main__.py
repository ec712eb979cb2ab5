"""`python -m grpo_doctor_trainer.serve`: starts the rollout server.

Exit codes: 1: the engine failed. 2: a mistake of the user, told in one message. 130 and 143: ended
by Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from grpo_doctor_trainer.errors import ConfigError, TrainerError
from grpo_doctor_trainer.flags import parse_server
from grpo_doctor_trainer.interrupts import Interrupted, catch_signals
from grpo_doctor_trainer.logs.console import LOG, complain, set_up_console
from grpo_doctor_trainer.rollout.vllm.engine_log import server_output_to_file
from grpo_doctor_trainer.serve.folders import SHARED_MEMORY, make_folders, remove_folders
from grpo_doctor_trainer.serve.loop import EngineFailedError, EngineLoop
from grpo_doctor_trainer.serve.state import Health
from grpo_doctor_trainer.serve.web import Service, WebServer

if TYPE_CHECKING:
    from grpo_doctor_trainer.config.server import ServeConfig
    from grpo_doctor_trainer.serve.state import Folder

_ENGINE_FAILED, _USER_ERROR, _SIGNAL_CODE = 1, 2, 128
_LAST_WORDS_S = 1.0  # for the connections to hear that the engine failed
_LOOPBACK = ("127.", "localhost", "::1")


def main() -> int:
    """Serves until it is told to stop; returns the exit code."""
    set_up_console(0)
    catch_signals()
    try:
        config = parse_server(sys.argv[1:])
        _listen(config)
    except TrainerError as error:
        complain(str(error))
        return _USER_ERROR
    except EngineFailedError as error:
        complain(f"the engine failed: {error}")
        return _ENGINE_FAILED
    except Interrupted as stop:
        LOG.info("stopped by signal %d", stop.signal_number)
        return _SIGNAL_CODE + stop.signal_number
    return 0


def _listen(config: ServeConfig) -> None:
    """Takes the port before the engine is loaded: a taken one is told at once."""
    service = Service(Health("starting", "vLLM is loading the model", os.getpid(), ""))
    try:
        server = WebServer(config.host, config.port, service)
    except OSError as error:
        raise _cannot_listen(config, error) from error
    config = dataclasses.replace(config, port=server.server_address[1])
    service.health = replace(service.health, log=str(config.log_path))
    parents = [Path(config.weights_dir)] if config.weights_dir else []
    with server, server_output_to_file(config.log_path):
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        _introduce(config)
        folders = make_folders(parents or [SHARED_MEMORY, Path(config.output_dir)])
        try:
            _run(config, service, folders)
        except (TrainerError, EngineFailedError) as error:
            service.health = replace(service.health, status="failed", detail=str(error))
            time.sleep(_LAST_WORDS_S)
            raise
        finally:
            remove_folders(folders)
            server.shutdown()


def _run(config: ServeConfig, service: Service, folders: list[Folder]) -> None:
    started = time.perf_counter()
    from grpo_doctor_trainer.serve.engine import VllmEngine  # noqa: PLC0415 - while HTTP answers

    engine = VllmEngine(config)
    try:
        loop = EngineLoop(engine)
        service.engine, service.loop = engine, loop
        service.health = replace(
            service.health, status="ready", detail="", folders=folders, **engine.facts()
        )
        LOG.info("ready after %.0f s; Ctrl-C ends it", time.perf_counter() - started)
        loop.run()
    except EngineFailedError as error:
        raise EngineFailedError(f"{error}. What led to it is in {config.log_path}") from error
    finally:
        engine.close()


def _introduce(config: ServeConfig) -> None:
    LOG.info("grpo-doctor rollout server on %s", config.address)
    LOG.info("  model    %s", config.model or "embedded tiny Qwen2 with random weights")
    LOG.info("  log      %s", config.log_path)
    if not config.host.startswith(_LOOPBACK):
        LOG.warning("  warning  whoever reaches %s can use and change the model", config.address)


def _cannot_listen(config: ServeConfig, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"--port {config.port}: another program listens there already. Give another --port, "
            "and the trainer the same one with --vllm_server_port"
        )
    return ConfigError(
        f"--host {config.host} --port {config.port}: cannot listen there "
        f"({error.strerror or error}). Give an address of this machine, and a port above 1023"
    )


if __name__ == "__main__":
    sys.exit(main())
