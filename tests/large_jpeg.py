# SPDX-License-Identifier: Apache-2.0
"""Progressive JPEGs of one gray: few bytes in a file, and many in a decoder's memory."""

from __future__ import annotations

import struct

_AC_LENGTH = 4  # bits of each code; 15 of them, for end-of-block runs of 1, 2, 4 ... 16384


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def _bits(text: list[str]) -> bytes:
    joined = "".join(text)
    joined += "1" * (-len(joined) % 8)
    data = int(joined, 2).to_bytes(len(joined) // 8, "big")
    return data.replace(b"\xff", b"\xff\x00")


def _runs(blocks: int) -> bytes:
    """A scan in which all these blocks end before they begin."""
    text = []
    while blocks > 0:
        power = min(blocks.bit_length() - 1, 14)
        run = min(blocks, 2 ** (power + 1) - 1)
        text.append(f"{power:0{_AC_LENGTH}b}")
        if power > 0:
            text.append(f"{run - 2**power:0{power}b}")
        blocks -= run
    return _bits(text)


def progressive_jpeg(width: int, height: int) -> bytes:
    """Its 4:2:0 coefficients take 3 bytes a pixel."""
    mcus = -(-width // 16) * -(-height // 16)
    parts = [
        b"\xff\xd8",
        _segment(0xDB, b"\x00" + b"\x01" * 64),
        _segment(0xC2, struct.pack(">BHHB", 8, height, width, 3) + b"\1\x22\0\2\x11\0\3\x11\0"),
        _segment(0xC4, b"\x00" + bytes([1] + [0] * 15) + b"\0"),
        _segment(
            0xC4,
            b"\x10"
            + bytes([0] * (_AC_LENGTH - 1) + [15] + [0] * (16 - _AC_LENGTH))
            + bytes(power << 4 for power in range(15)),
        ),
        _segment(0xDA, b"\3\1\0\2\0\3\0\0\0\0"),
        bytes(-(-mcus * 6 // 8)),  # of each block: no difference to the one before
    ]
    for component, sampling in ((1, 8), (2, 16), (3, 16)):
        blocks = -(-width // sampling) * -(-height // sampling)
        parts += [_segment(0xDA, bytes([1, component, 0, 1, 63, 0])), _runs(blocks)]
    return b"".join([*parts, b"\xff\xd9"])
