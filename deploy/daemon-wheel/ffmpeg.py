# SPDX-License-Identifier: Apache-2.0
"""FFmpeg under the LGPL, with the decoders that spdld uses and no others."""

from __future__ import annotations

import pathlib
import re

import from_source

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


def source() -> from_source.Source:
    return from_source.Source("ffmpeg", VERSION, DSC_SHA256, options(), "install-libs")
