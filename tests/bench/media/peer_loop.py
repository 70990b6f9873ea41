# SPDX-License-Identifier: Apache-2.0
"""Decodes the JPEGs of a list by one library, one thread, whole: prints CPU seconds an image."""

from __future__ import annotations

import io
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any


def pillow() -> Callable[[bytes], Any]:
    from PIL import Image

    return lambda jpeg: Image.open(io.BytesIO(jpeg)).convert("RGB").load()


def torchvision() -> Callable[[bytes], Any]:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)

    def decode(jpeg: bytes) -> Any:
        data = torch.frombuffer(bytearray(jpeg), dtype=torch.uint8)
        return decode_jpeg(data, mode=ImageReadMode.RGB)

    return decode


def simplejpeg() -> Callable[[bytes], Any]:
    import simplejpeg

    return lambda jpeg: simplejpeg.decode_jpeg(jpeg, "RGB")


def pyturbojpeg() -> Callable[[bytes], Any]:
    from turbojpeg import TJPF_RGB, TurboJPEG

    library = TurboJPEG()
    return lambda jpeg: library.decode(jpeg, pixel_format=TJPF_RGB)


PEERS = {each.__name__: each for each in (pillow, torchvision, simplejpeg, pyturbojpeg)}


def main(peer: str, files: str, seconds: str) -> None:
    decode = PEERS[peer]()
    jpegs = [
        pathlib.Path(path).read_bytes() for path in json.loads(pathlib.Path(files).read_text())
    ]
    for jpeg in jpegs[:20]:
        decode(jpeg)
    images = 0
    begun = time.process_time()
    while images == 0 or time.process_time() - begun < float(seconds):
        for jpeg in jpegs:
            decode(jpeg)
        images += len(jpegs)
    print((time.process_time() - begun) / images)


if __name__ == "__main__":
    main(*sys.argv[1:])
