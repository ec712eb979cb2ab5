"""Which libraries a process has loaded, as the files that it has mapped say."""

from __future__ import annotations

from pathlib import Path

_LIBRARIES = {
    "/numpy/": "NumPy",
    "/torch/lib/": "torch",
    "/tokenizers/": "transformers",
    "/vllm/": "vLLM",
    "/sgl_kernel/": "SGLang",
    "/jaxlib/": "JAX",
    "/tensorflow/": "TensorFlow",
}
_MOST_BYTES = 4 << 20  # a process of torch and CUDA maps some 300 kB of lines


def loaded(folder: Path) -> set[str]:
    """The known libraries of the process whose folder in /proc this is; none if it has gone."""
    try:
        with (folder / "maps").open("rb") as maps:
            text = maps.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return set()
    return {name for part, name in _LIBRARIES.items() if part in text}
