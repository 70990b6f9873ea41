# SPDX-License-Identifier: Apache-2.0
"""Training data from spdld, the per-node loading daemon, through shared memory.

>>> loader = spdld.Loader("imagenet-train", job="run-7", output="torch")
>>> for epoch in range(90):
...     for batch in loader:
...         step(batch["image"].to(device), batch["label"].to(device))
"""

import importlib
from typing import TYPE_CHECKING

from ._errors import (
    BadSample,
    ConnectionError,
    DeviceError,
    Error,
    LeaseError,
    PipelineError,
    TimeoutError,
)
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._apply import Applied
    from ._batch import Batch, Packed
    from ._cache import CacheLoader
    from ._loader import Loader
    from ._server import Server, launch
    from ._torch_batch import TorchBatch

__all__ = [
    "Applied",
    "BadSample",
    "Batch",
    "CacheLoader",
    "ConnectionError",
    "DeviceError",
    "Error",
    "LeaseError",
    "Loader",
    "Packed",
    "PipelineError",
    "Server",
    "TimeoutError",
    "TorchBatch",
    "launch",
]

# What is imported when it is first asked for: spdld.runner runs where the compiled part is missing.
_MODULES = {
    "Applied": "_apply",
    "Batch": "_batch",
    "CacheLoader": "_cache",
    "Loader": "_loader",
    "Packed": "_batch",
    "Server": "_server",
    "TorchBatch": "_torch_batch",
    "launch": "_server",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
