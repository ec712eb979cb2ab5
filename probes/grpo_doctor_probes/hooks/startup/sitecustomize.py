"""Found by every Python of a job that `grpo-doctor run` started: begins to watch its imports.

Costs a millisecond in a process that imports none of the packages below: the rest of the tool is
loaded with the first of them. It takes itself off the path, so that nothing of the tool can hide
a module of the user's, and then does what Python would have done without it: imports the user's
own `sitecustomize`.
"""

import atexit
import mmap
import os
import sys
import time

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no pathlib in the job
# Those of `hooks.boot.ADAPTERS`; a test holds them equal.
PACKAGES = frozenset(
    ("transformers", "accelerate", "deepspeed", "trl", "swift", "verl", "openrlhf", "vllm",
     "sglang", "ray", "slime", "miles", "nemo_rl", "UnslothGRPOTrainer")
)  # fmt: skip
_KEPT: "list[object]" = []


class FirstImport:
    """A finder that waits for the first of the packages, and then hands over to the tool's own.

    It remembers what the environment said: a job may empty that before it imports anything.
    """

    def __init__(self) -> None:
        self._environment = (os.environ["GRPO_DOCTOR_RUN_DIR"], os.environ.get("RANK", ""))

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """As in `importlib.abc.MetaPathFinder`."""
        if name not in PACKAGES:
            return None
        try:
            sys.meta_path.remove(self)
            _load_package()
            from grpo_doctor_probes.hooks.boot import boot  # noqa: PLC0415

            watcher = boot(*self._environment)
            return None if watcher is None else watcher.find_spec(name, path, target)
        except Exception as problem:  # noqa: BLE001 - the job runs, without phases
            _say(problem)
            return None


def _load_package() -> None:
    # By its file: in another environment than the tool's its folder of packages never gets on the
    # path, and what is installed there under this name may be of another version.
    if "grpo_doctor_probes" in sys.modules:
        return
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


def _say(problem: Exception) -> None:
    try:
        sys.stderr.write(f"grpo-doctor: no phases of this process: {problem}\n")
    except Exception:  # noqa: BLE001 - stderr is closed
        return


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


def _go_before_others() -> None:
    """What the user's `sitecustomize` put before us would hide its modules from us."""
    for finder in list(sys.meta_path):
        if type(finder).__name__ == FirstImport.__name__:
            sys.meta_path.remove(finder)
            sys.meta_path.insert(0, finder)


def _leave_a_mark() -> None:
    """Map this file, so that /proc/PID/maps shows whether the hooks are in a process."""
    untracked = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    with open(os.path.join(_FOLDER, "sitecustomize.py"), "rb") as file:  # noqa: PTH118, PTH123
        _KEPT.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **untracked))


def _note_uncaught(run_dir: str) -> None:
    """Python keeps the error that ends it in `sys`; nothing of the job's own is replaced."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, Exception):
        return
    try:
        _load_package()
        from grpo_doctor_probes.record.failures import note_uncaught  # noqa: PLC0415

        note_uncaught(error, run_dir)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        return


def _choose_run_dir() -> None:
    """Names a run directory where `grpo-doctor run` is not there to; children inherit it.

    The processes of one Slurm job choose the same one.
    """
    job = os.environ.get("SLURM_JOB_ID")
    name = f"slurm-{job}" if job else time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
    os.environ["GRPO_DOCTOR_RUN_DIR"] = os.path.abspath(f"grpo-doctor-out/{name}")  # noqa: PTH100


def _watch_imports() -> None:
    # Also started by the package's .pth file, which Python reads with -I and -E too.
    if os.environ.get("GRPO_DOCTOR") != "1":
        return
    if any(type(finder).__name__ == FirstImport.__name__ for finder in sys.meta_path):
        return
    if not os.environ.get("GRPO_DOCTOR_RUN_DIR"):
        _choose_run_dir()
    sys.meta_path.insert(0, FirstImport())
    atexit.register(_note_uncaught, os.environ["GRPO_DOCTOR_RUN_DIR"])
    _leave_a_mark()


try:
    _watch_imports()
except Exception as _problem:  # noqa: BLE001 - the job runs, without phases
    _say(_problem)
if __name__ == "sitecustomize":
    _leave_the_path()
    try:
        _import_users_own()
    finally:
        _go_before_others()
