# SPDX-License-Identifier: Apache-2.0
"""The pipelines of the benchmarks that read a directory of images by class."""

from __future__ import annotations

import pathlib

from daemon import Daemon

# What most train with; the variables' defaults are those of the ops.
TRAINING = """\
pipeline: bench
vars: {{scale: 0.08, size: 224, max_pixels: 178956970}}
seed: 1
source: {{files: {{root: "{root}", pattern: "**/*", label: parent_dir}}}}
shuffle: global
stages:
  - fetch
  - decode_image: {{max_pixels: "${{max_pixels}}"}}
  - random_resized_crop: {{size: ["${{size}}", "${{size}}"], scale: ["${{scale}}", 1.0]}}
  - random_horizontal_flip
  - normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
batch: {{size: {batch}}}
on_error: {{decode: {on_error}}}
"""
# The same rows in the same order, without their pixels.
ORDER = """\
pipeline: order
seed: 1
source: {{files: {{root: "{root}", pattern: "**/*", label: parent_dir}}}}
shuffle: global
stages: [fetch]
batch: {{size: {batch}, max_bytes: {max_bytes}}}
"""


def write_training(
    daemon: Daemon, root: pathlib.Path, batch: int, on_error: str = "fail"
) -> pathlib.Path:
    """Pipeline 'bench', with variables scale, size and max_pixels."""
    file = daemon.directory / "bench.yaml"
    file.write_text(TRAINING.format(root=root, batch=batch, on_error=on_error))
    return file


def write_order(daemon: Daemon, root: pathlib.Path, batch: int) -> pathlib.Path:
    """Pipeline 'order'."""
    largest = max(path.stat().st_size for path in root.rglob("*") if path.is_file())
    file = daemon.directory / "order.yaml"
    file.write_text(ORDER.format(root=root, batch=batch, max_bytes=largest * batch))
    return file
