"""Found by every Python of a job that `grpo-doctor run` started: begins to watch its imports.

It takes itself off the path, so that nothing of this tool can hide a module of the user's, and
then does what Python would have done without it: imports the user's own `sitecustomize`.
"""

import os
import sys


def _watch_imports() -> None:
    try:
        import grpo_doctor_probes  # noqa: F401, PLC0415 - installed beside the job's packages
    except ImportError:
        _load_from_beside()
    from grpo_doctor_probes.hooks.boot import boot  # noqa: PLC0415

    boot()


def _load_from_beside() -> None:
    # Another environment than the tool's. The tool's own folder of packages never gets on the
    # path there: only this package, by its file.
    from importlib import util  # noqa: PLC0415

    package = os.path.dirname(os.path.dirname(_FOLDER))  # noqa: PTH120
    spec = util.spec_from_file_location(
        "grpo_doctor_probes",
        os.path.join(package, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[package],
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} can't be read")
    module = util.module_from_spec(spec)
    sys.modules["grpo_doctor_probes"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["grpo_doctor_probes"]
        raise


def _leave_the_path() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _FOLDER]  # noqa: PTH100
    sys.path_importer_cache.pop(_FOLDER, None)


def _import_users_own() -> None:
    ours = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")  # the user's, or the distribution's
    except ImportError as problem:
        if problem.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
_leave_the_path()
try:
    _watch_imports()
except Exception as _problem:  # noqa: BLE001 - the job runs, without phases
    sys.stderr.write(f"grpo-doctor: no phases of this process: {_problem}\n")
_import_users_own()
