# SPDX-License-Identifier: Apache-2.0
"""jax_check.py SOURCE_SERVER: shows what docs/gpu.md says of batches that become JAX's arrays.

One line of a table for each claim, on the first GPU, with the made-up batches of source_server;
exits with the number of claims that do not hold.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

from claims import PAGE, Checks, Claim, Holds, ask, others_among

# JAX would take three quarters of the GPU at its first use.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.dlpack
import jax.numpy as jnp

STEPS = 20


@jax.jit
def stamps_of(image: jax.Array) -> jax.Array:
    """The numbers that the image's pages hold, as pairs of 32 bits, the lower ones first."""
    heads = image.reshape(-1, PAGE)[:, :8].reshape(-1, 2, 4)
    return jax.lax.bitcast_convert_type(heads, jnp.uint32)


@jax.jit
def late(values: jax.Array) -> jax.Array:
    """Keeps the GPU busy for some 10 ms; JAX runs what comes after it on the same stream."""
    for _ in range(30):
        values = jnp.tanh(values @ values)
    return values


def is_of(stamps: jax.Array, step: int) -> bool:
    return bool((stamps == jnp.array([step, 0], jnp.uint32)).all())


class JaxChecks(Checks):
    def claims(self) -> Sequence[Claim]:
        return [self.dlpack, self.numpy_dlpack, self.copy_refused, self.dropped_before_it_is_read]

    def dlpack(self) -> str:
        """jax.dlpack.from_dlpack() gives the values, on the GPU"""
        return self._values(jax.dlpack.from_dlpack)

    def numpy_dlpack(self) -> str:
        """jax.numpy.from_dlpack() gives the values, on the GPU"""
        return self._values(jnp.from_dlpack)

    def copy_refused(self) -> str:
        """jax.dlpack.from_dlpack(copy=False) gives the memory itself"""
        answer = self._values(lambda image: jax.dlpack.from_dlpack(image, copy=False))
        wanted = f"{STEPS} of {STEPS} without a copy"
        return f"only {answer}" if isinstance(answer, Holds) and answer != wanted else answer

    def dropped_before_it_is_read(self) -> str:
        """a batch that is let go of stays for JAX's work that is late"""
        busy = late(jnp.full((4096, 4096), 1e-3, jnp.float32))
        read: list[jax.Array] = []
        with self.open() as loader:
            for batch in itertools.islice(loader, 3 * STEPS):
                busy = late(busy)
                read.append(stamps_of(jax.dlpack.from_dlpack(batch["image"])))
                del batch
                # JAX itself holds what queued work reads, so that a loop must not run far ahead.
                jax.block_until_ready(read[-3:][0])
            jax.block_until_ready(read)
            way = loader.stats()["delivery"]
        if way != self._way:
            return f"the way is {way}"
        return others_among(read, is_of)

    def _values(self, taken: Callable[[Any], jax.Array]) -> str:
        in_place = 0
        with self.open() as loader:
            for step, batch in enumerate(itertools.islice(loader, STEPS)):
                image = taken(batch["image"])
                if [device.platform for device in image.devices()] != ["gpu"]:
                    return f"it lies on {image.devices()}"
                if not is_of(stamps_of(image), step):
                    return f"step {step} is another"
                at = batch["image"].__cuda_array_interface__["data"][0]
                in_place += image.unsafe_buffer_pointer() == at
        return Holds(f"{in_place} of {STEPS} without a copy")


def main() -> int:
    broken = ask("jax", JaxChecks)
    print(f"\njax {jax.__version__}")
    return broken


if __name__ == "__main__":
    raise SystemExit(main())
