# SPDX-License-Identifier: Apache-2.0
"""The example that trains on a GPU, in a size for which a CPU will do."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import daemon as daemon_module
import pytest

pytest.importorskip("torch")
EXAMPLE = daemon_module.REPOSITORY / "examples/gpu"


@pytest.mark.parametrize("delivery", ["cpu", "cuda"])
def test_the_training_example_says_how_long_it_waited_or_what_it_needs(
    daemon: daemon_module.Daemon, tmp_path: pathlib.Path, delivery: str
) -> None:
    images = tmp_path / "images"
    draw = daemon_module.REPOSITORY / "examples/demo/make_images.sh"
    subprocess.run([draw, images, "8"], check=True, timeout=100)
    variables = {"root": images, "size": 64, "batch": 8, "device": delivery}
    command = [sys.executable, EXAMPLE / "train.py", EXAMPLE / "pipeline.yaml"]
    command += [f"--var={name}={value}" for name, value in variables.items()]
    command += ["--device=cpu", "--steps=20", "--width=32", "--layers=1"]
    done = subprocess.run(
        command,
        env=os.environ | {"SPDLD_ADDRESS": daemon.address},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if delivery == "cuda":  # where nobody has a GPU
        assert done.returncode != 0
        assert "the daemon cannot use GPUs" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "images/s" in done.stdout and "for batches" in done.stdout
