# SPDX-License-Identifier: Apache-2.0
"""Training data from spdld, the per-node loading daemon, through shared memory.

>>> loader = spdld.Loader("imagenet-train", job="run-7", output="torch")
>>> for epoch in range(90):
...     for batch in loader:
...         step(batch["image"].to(device), batch["label"].to(device))
"""

from ._apply import Applied
from ._batch import Batch, Packed
from ._cache import CacheLoader
from ._errors import ConnectionError, DeviceError, Error, LeaseError, PipelineError, TimeoutError
from ._loader import Loader
from ._server import Server, launch
from ._torch_batch import TorchBatch
from ._version import __version__ as __version__

__all__ = [
    "Applied",
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
