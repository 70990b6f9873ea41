# SPDX-License-Identifier: Apache-2.0
"""The variables by which a launcher tells the processes that it starts which rank of which job they
are. Tests say that themselves, so what surrounds them must not."""

from __future__ import annotations

import os

_NAMES = {"JOB_ID", "LOCAL_RANK", "RANK", "SPDLD_ADDRESS", "SPDLD_BIN", "WORLD_SIZE"}
_PREFIXES = (
    "FLUX_",
    "LSB_",
    "MASTER_",
    "MV2_COMM_WORLD_",
    "OMPI_",
    "PBS_",
    "PMIX_",
    "PMI_",
    "SLURM_",
    "TORCHELASTIC_",
)


def variables() -> list[str]:
    """The names of those that are set now."""
    return [name for name in os.environ if name in _NAMES or name.startswith(_PREFIXES)]


def environment_without() -> dict[str, str]:
    """The environment as it is, without them."""
    left_out = variables()
    return {name: value for name, value in os.environ.items() if name not in left_out}
