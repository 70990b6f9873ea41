# SPDX-License-Identifier: Apache-2.0
"""FFmpeg under the LGPL, with the decoders that spdld uses and no others, from Debian's source.

Its libraries take the place of Debian's, which are of the same version.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import subprocess
import sys

import debian_packages

VERSION = "7:5.1.9-0+deb12u1"
DSC_SHA256 = "055f82fca9a92f1d47216be2c2488d09373c7ca154806fbc36b0127c191d5104"
CODECS = pathlib.Path(__file__).parents[2] / "server/media/container/codecs.cpp"
# All demuxers and parsers: spdld opens few formats, and names others by FFmpeg's guess. What
# libavformat asks of bitstream filters by name is not in its configuration's dependencies.
OPTIONS = [
    "--toolchain=hardened",
    "--enable-shared",
    "--disable-static",
    "--disable-programs",
    "--disable-doc",
    "--disable-debug",
    "--disable-autodetect",
    "--disable-network",
    "--disable-avdevice",
    "--disable-avfilter",
    "--disable-swscale",
    "--disable-everything",
    "--enable-zlib",
    "--enable-bzlib",
    "--enable-lzma",
    "--enable-libdav1d",
    "--enable-demuxers",
    "--enable-parsers",
    "--enable-bsf=extract_extradata,av1_frame_merge",
]


def options() -> list[str]:
    text = CODECS.read_text()
    (images,) = re.findall(r"kImageDecoders = \{(.*?)\}", text)
    decoders = re.findall(r'MediaCodec\{"\w+", "(\w+)"', text) + re.findall(r"\w+", images)
    return [*OPTIONS, f"--enable-decoder={','.join(decoders)}"]


def build(debian: debian_packages.Debian, directory: pathlib.Path) -> pathlib.Path:
    """The directory with its libraries, made in `directory`, where it is kept."""
    made, source, log = directory / "made", directory / "source", directory / "log"
    stamp = made / "made-from"
    recipe = hashlib.sha256("\n".join([VERSION, DSC_SHA256, *options()]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == recipe:
        return made / "lib"
    print("building FFmpeg", file=sys.stderr)
    directory.mkdir(parents=True, exist_ok=True)
    debian.unpack_source("ffmpeg", VERSION, DSC_SHA256, source)
    jobs = len(os.sched_getaffinity(0))
    commands = (
        ["./configure", f"--prefix={made}", *options()],
        ["make", f"-j{jobs}"],
        ["make", "install-libs"],
    )
    with log.open("w") as out:
        for command in commands:
            if subprocess.run(command, cwd=source, stdout=out, stderr=out).returncode != 0:
                raise SystemExit(f"FFmpeg was not built: {log}")
    stamp.write_text(recipe)
    return made / "lib"
