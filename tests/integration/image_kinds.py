# SPDX-License-Identifier: Apache-2.0
"""Image files of every format and kind that decode_image reads, all of one size."""

from __future__ import annotations

import dataclasses
import io
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 37, 29


@dataclasses.dataclass(frozen=True)
class Kind:
    """One file, and by mode what Pillow does not say of it (`None`: the mode refuses it)."""

    name: str
    data: bytes
    known: dict[str, np.ndarray | None] = dataclasses.field(default_factory=dict)


def _noise(*shape: int, high: int = 256, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, shape)


def _picture(mode: str, seed: int = 1, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """Smooth, with some noise: what lossy formats are made for."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 4), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth).astype(int) + _noise(size[1], size[0], 4, high=9, seed=seed)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).convert(mode)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def _packed(row: np.ndarray, bits: int) -> bytes:
    """Numbers of less than a byte, the first one in the highest bits."""
    per_byte = 8 // bits
    padded = np.concatenate([row, np.zeros(-len(row) % per_byte, row.dtype)])
    return bytes(
        sum(int(n) << (8 - bits * (i + 1)) for i, n in enumerate(part))
        for part in padded.reshape(-1, per_byte)
    )


def jpegs() -> Iterator[Kind]:
    for name, options in (("rgb", {"quality": 90}), ("progressive", {"progressive": True})):
        data = _saved(_picture("RGB"), "JPEG", **options)
        luma = Image.open(io.BytesIO(data))
        luma.draft("L", luma.size)  # what the file has, and not what colours would give
        yield Kind(f"{name}.jpg", data, {"gray": np.asarray(luma)[..., None]})
    yield Kind("gray.jpg", _saved(_picture("L"), "JPEG"))
    yield Kind("cmyk.jpg", _saved(_picture("CMYK"), "JPEG"))


# Where the passes of an interlaced PNG begin, and how far apart their pixels are: x, y, dx, dy.
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
ADAM7.append((0, 1, 1, 2))


def _png(
    samples: np.ndarray,
    color: int,
    bits: int,
    *chunks: tuple[bytes, bytes],
    interlaced: bool = False,
) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    rows = [row.ravel() for x, y, dx, dy in passes for row in samples[y::dy, x::dx]]
    if bits < 8:
        lines = [_packed(row, bits) for row in rows]
    else:
        lines = [row.astype(">u2" if bits == 16 else np.uint8).tobytes() for row in rows]
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, color, 0, 0, interlaced))
        + b"".join(chunk(name, body) for name, body in chunks)
        + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines)))
        + chunk(b"IEND", b"")
    )


def _with_alpha(pixels: np.ndarray, transparent: np.ndarray) -> np.ndarray:
    """RGBA of gray or RGB and of what is transparent of it."""
    colors = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    alpha = np.where(transparent, 0, 255)[..., None]
    return np.concatenate([colors, alpha], -1).astype(np.uint8)


def pngs() -> Iterator[Kind]:
    for bits in (1, 2, 4, 8, 16):
        gray = _noise(HEIGHT, WIDTH, 1, high=1 << bits)
        levels = gray * 65535 // ((1 << bits) - 1)
        known: dict[str, Any] = {"gray16": levels}
        known["index"] = gray if bits <= 8 else None  # as stored; Pillow stretches 2 and 4 bits
        yield Kind(f"gray{bits}.png", _png(gray, 0, bits), known)
        yield Kind(f"gray{bits}_interlaced.png", _png(gray, 0, bits, interlaced=True), known)
        # Pillow compares the key with stretched samples, or with the high byte of wide ones.
        key = int(gray[3, 4, 0])
        clear = (gray == key)[..., 0]
        alpha = np.where(clear, 0, 65535)[..., None]
        pair = np.concatenate([levels, alpha], -1)
        known = {**known, "rgba": _with_alpha(levels >> 8, clear)}
        known["unchanged-2-uint16" if bits == 16 else "unchanged-2-uint8"] = (
            pair if bits == 16 else pair >> 8
        )
        chunk = (b"tRNS", struct.pack(">H", key))
        yield Kind(f"gray{bits}_key.png", _png(gray, 0, bits, chunk), known)
    for bits in (8, 16):
        most = 1 << bits
        rgb, rgba = _noise(HEIGHT, WIDTH, 3, high=most), _noise(HEIGHT, WIDTH, 4, high=most)
        pair = _noise(HEIGHT, WIDTH, 2, high=most)
        wide = {"unchanged-3-uint16": rgb} if bits == 16 else {}
        yield Kind(f"rgb{bits}.png", _png(rgb, 2, bits), wide)
        wide = {"unchanged-4-uint16": rgba} if bits == 16 else {}
        yield Kind(f"rgba{bits}.png", _png(rgba, 6, bits), wide)
        yield Kind(f"rgba{bits}_interlaced.png", _png(rgba, 6, bits, interlaced=True), wide)
        wide = {"unchanged-2-uint16": pair} if bits == 16 else {}
        known = {**wide, "gray16": pair[..., :1] * (1 if bits == 16 else 257)}
        yield Kind(f"gray_alpha{bits}.png", _png(pair, 4, bits), known)
        key = tuple(int(value) for value in rgb[5, 6])
        chunk = (b"tRNS", struct.pack(">HHH", *key))
        known = {"rgba": _with_alpha(rgb >> (bits - 8), (rgb == key).all(-1))}
        if bits == 16:
            full = np.where((rgb == key).all(-1), 0, 65535)[..., None]
            known["unchanged-4-uint16"] = np.concatenate([rgb, full], -1)
        yield Kind(f"rgb{bits}_key.png", _png(rgb, 2, bits, chunk), known)
    for bits in (1, 2, 4, 8):
        numbers = _noise(HEIGHT, WIDTH, 1, high=1 << bits)
        palette = (b"PLTE", _noise(3 << bits).astype(np.uint8).tobytes())
        yield Kind(f"palette{bits}.png", _png(numbers, 3, bits, palette), {"index": numbers})
        interlaced = _png(numbers, 3, bits, palette, interlaced=True)
        yield Kind(f"palette{bits}_interlaced.png", interlaced, {"index": numbers})
        alphas = (b"tRNS", bytes([0, 100]))
        yield Kind(f"palette{bits}_alpha.png", _png(numbers, 3, bits, palette, alphas))


def webps() -> Iterator[Kind]:
    for mode in ("RGB", "RGBA"):
        yield Kind(f"lossy_{mode}.webp", _saved(_picture(mode), "WEBP", quality=60))
        yield Kind(f"lossless_{mode}.webp", _saved(_picture(mode), "WEBP", lossless=True))
        frames = [_picture(mode, seed) for seed in (1, 2, 3)]
        animated = _saved(frames[0], "WEBP", save_all=True, append_images=frames[1:])
        yield Kind(f"animated_{mode}.webp", animated)


def gifs() -> Iterator[Kind]:
    plain = _picture("RGB").quantize(50)
    yield Kind("plain.gif", _saved(plain, "GIF", interlace=0))
    yield Kind("interlaced.gif", _saved(plain, "GIF", interlace=1))
    yield Kind("transparent.gif", _saved(plain, "GIF", transparency=3))
    yield Kind("gray.gif", _saved(_picture("L"), "GIF"))
    others = [_picture("RGB", seed).quantize(50) for seed in (2, 3)]
    yield Kind("animated.gif", _saved(plain, "GIF", save_all=True, append_images=others))
    for name, options in (("offset", {}), ("offset_transparent", {"transparency": 3})):
        small = bytearray(_saved(plain.resize((20, 10)), "GIF", **options))
        small[6:10] = struct.pack("<HH", WIDTH, HEIGHT)
        image = 13 + (3 << (small[10] & 7) + 1)
        while small[image : image + 1] != b",":  # extensions, of one block each
            image += 2 + 1 + small[image + 2] + 1
        small[image + 1 : image + 5] = struct.pack("<HH", 7, 9)
        yield Kind(f"{name}.gif", bytes(small))


PLAIN, RUNS8, RUNS4, FIELDS = 0, 1, 2, 3  # how a BMP is coded


def _bmp(
    lines: list[bytes], bits: int, coding: int = PLAIN, palette: bytes = b"", top_down: bool = False
) -> bytes:
    """In place of a palette stand the masks of the fields."""
    runs = coding in (RUNS8, RUNS4)
    if not top_down and not runs:
        lines = lines[::-1]
    data = b"".join(line + b"\0" * (-len(line) % (1 if runs else 4)) for line in lines)
    height = -HEIGHT if top_down else HEIGHT
    header = struct.pack(
        "<IiiHHIIiiII", 40, WIDTH, height, 1, bits, coding, len(data), 2835, 2835, 0, 0
    )
    offset = 14 + len(header) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + header + palette + data


def _runs(row: np.ndarray, bits: int) -> bytes:
    """A line of a run-length coded BMP, in turns of runs and of pixels as they are."""
    line = b""
    numbers = [int(number) for number in row]
    while numbers:
        if len(numbers) % 3 == 0 and len(numbers) >= 4:
            part = numbers[:4]
            line += bytes([0, 4])
            line += (
                bytes(part)
                if bits == 8
                else bytes([part[0] << 4 | part[1], part[2] << 4 | part[3]])
            )
            numbers = numbers[4:]
        else:
            line += bytes([1, numbers[0] if bits == 8 else numbers[0] << 4])
            numbers = numbers[1:]
    return line + b"\0\0"


def bmps() -> Iterator[Kind]:
    for bits in (1, 4, 8):
        numbers = _noise(HEIGHT, WIDTH, high=1 << bits)
        palette = _noise(1 << bits, 4).astype(np.uint8).tobytes()
        lines = [_packed(row, bits) for row in numbers]
        for top_down in (False, True):
            name = f"palette{bits}{'_top_down' if top_down else ''}.bmp"
            yield Kind(name, _bmp(lines, bits, palette=palette, top_down=top_down))
        if bits > 1:
            coded = [_runs(row, bits) for row in numbers[::-1]] + [b"\0\1"]
            yield Kind(f"runs{bits}.bmp", _bmp(coded, bits, RUNS8 if bits == 8 else RUNS4, palette))
    for bits in (16, 24, 32):
        rows = _noise(HEIGHT, WIDTH * bits // 8).astype(np.uint8)
        yield Kind(f"rgb{bits}.bmp", _bmp([row.tobytes() for row in rows], bits))
    for name, bits, masks in (
        ("565", 16, (0xF800, 0x7E0, 0x1F)),
        ("555", 16, (0x7C00, 0x3E0, 0x1F)),
        ("bgr", 32, (0xFF0000, 0xFF00, 0xFF)),
    ):
        rows = _noise(HEIGHT, WIDTH * bits // 8).astype(np.uint8)
        lines = [row.tobytes() for row in rows]
        yield Kind(f"fields_{name}.bmp", _bmp(lines, bits, FIELDS, struct.pack("<III", *masks)))
    yield Kind("alpha.bmp", _saved(_picture("RGBA"), "BMP"))
    yield Kind("gray.bmp", _saved(_picture("L"), "BMP"))
    yield Kind("bilevel.bmp", _saved(_picture("1"), "BMP"))


def tiffs() -> Iterator[Kind]:
    for coding in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        for mode in ("1", "L", "P", "LA", "RGB", "RGBA", "CMYK"):
            image = _picture("RGB").quantize(60) if mode == "P" else _picture(mode)
            yield Kind(f"{mode}_{coding}.tif", _saved(image, "TIFF", compression=coding))
        wide = _noise(HEIGHT, WIDTH, high=65536).astype(np.uint16)
        name = f"gray16_{coding}.tif"
        yield Kind(name, _saved(Image.fromarray(wide), "TIFF", compression=coding))
    for coding in ("group3", "group4"):
        yield Kind(f"{coding}.tif", _saved(_picture("1"), "TIFF", compression=coding))
    for coding in ("tiff_lzw", "tiff_adobe_deflate"):
        for mode in ("L", "RGB", "RGBA"):
            differences = {"compression": coding, "tiffinfo": {317: 2}}
            yield Kind(f"{mode}_{coding}_2.tif", _saved(_picture(mode), "TIFF", **differences))
    pages = [_picture("RGB", seed) for seed in (2, 3)]
    pages_saved = _saved(_picture("RGB"), "TIFF", save_all=True, append_images=pages)
    yield Kind("pages.tif", pages_saved)
    for photometric, mode in ((0, "L"), (1, "L"), (2, "RGB")):
        pixels = np.asarray(_picture(mode)).reshape(HEIGHT, WIDTH, -1)
        yield Kind(f"tiles_{photometric}.tif", _tiled_tiff(pixels, photometric))
    for bits in (1, 2, 4, 8):
        numbers = _noise(HEIGHT, WIDTH, high=1 << bits)
        lines = [_packed(row, bits) for row in numbers]
        for photometric in (0, 1):
            tags = {258: [bits], 262: [photometric]}
            # Pillow stretches numbers of 2 and 4 bits.
            turned = numbers if photometric == 1 else (1 << bits) - 1 - numbers
            known = {"index": turned[..., None]}
            yield Kind(f"gray{bits}_{photometric}.tif", _tiff(tags, lines), known)
        colors = [int(value) for value in _noise(3 << bits, high=65536)]
        tags = {258: [bits], 262: [3], 320: colors}
        yield Kind(f"palette{bits}.tif", _tiff(tags, lines))
    planes = np.asarray(_picture("RGB")).transpose(2, 0, 1)
    tags = {258: [8, 8, 8], 262: [2], 277: [3], 284: [2]}
    yield Kind("planes.tif", _tiff(tags, [plane.tobytes() for plane in planes]))
    wide = _noise(HEIGHT, WIDTH, high=65536)
    lines = [row.astype(">u2").tobytes() for row in wide]
    yield Kind("gray16_big_endian.tif", _tiff({258: [16], 262: [1]}, lines, order=">"))


def _tiff(tags: dict[int, list[int]], strips: list[bytes], order: str = "<") -> bytes:
    """Uncompressed: the strips of one row each, or planes."""
    rows = HEIGHT * len(tags[258]) // len(strips) if 284 in tags else 1
    offsets = [8 + sum(map(len, strips[:i])) for i in range(len(strips))]
    tags = {256: [WIDTH], 257: [HEIGHT], 259: [1], 277: [1], 278: [rows]} | tags
    tags |= {273: offsets, 279: [len(strip) for strip in strips]}
    return _with_directory(tags, b"".join(strips), order)


def _with_directory(tags: dict[int, list[int]], data: bytes, order: str = "<") -> bytes:
    """A TIFF of one page: its header, the data, and then its tags."""
    behind = 8 + len(data) + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for tag, numbers in sorted(tags.items()):
        short = tag in (258, 259, 262, 277, 284, 320)
        packed = struct.pack(f"{order}{len(numbers)}{'H' if short else 'I'}", *numbers)
        inside = len(packed) <= 4
        at = packed.ljust(4, b"\0") if inside else struct.pack(f"{order}I", behind + len(values))
        entries += struct.pack(f"{order}HHI", tag, 3 if short else 4, len(numbers)) + at
        values += b"" if inside else packed
    header = b"II*\0" if order == "<" else b"MM\0*"
    header += struct.pack(f"{order}I", 8 + len(data))
    return header + data + struct.pack(f"{order}H", len(tags)) + entries + b"\0" * 4 + values


def _tiled_tiff(pixels: np.ndarray, photometric: int) -> bytes:
    """Of tiles of 16x16 that are deflated."""
    padded = np.pad(pixels, ((0, -HEIGHT % 16), (0, -WIDTH % 16), (0, 0)))
    tiles = [
        zlib.compress(padded[y : y + 16, x : x + 16].tobytes())
        for y in range(0, HEIGHT, 16)
        for x in range(0, WIDTH, 16)
    ]
    offsets = [8 + sum(map(len, tiles[:i])) for i in range(len(tiles))]
    tags = {256: [WIDTH], 257: [HEIGHT], 258: [8] * pixels.shape[2], 259: [8], 262: [photometric]}
    tags |= {277: [pixels.shape[2]], 322: [16], 323: [16], 324: offsets}
    tags[325] = [len(tile) for tile in tiles]
    return _with_directory(tags, b"".join(tiles))


def avifs(directory: Path) -> Iterator[Kind]:
    """As avifenc makes them; what they are is said by avifdec. Without these programs, none."""
    if shutil.which("avifenc") is None:
        return
    for mode in ("RGB", "RGBA"):
        for depth in (8, 10, 12):
            for chroma in (420, 444):
                name = f"{mode}_{depth}_{chroma}"
                _picture(mode).save(directory / "in.png")
                file, out = directory / f"{name}.avif", directory / "out.png"
                options = ["-s", "10", "-d", str(depth), "-y", str(chroma)]
                _quietly(["avifenc", *options, str(directory / "in.png"), str(file)])
                _quietly(["avifdec", "-d", "8", str(file), str(out)])
                decoded = Image.open(out)
                rgb, gray = np.asarray(decoded.convert("RGB")), decoded.convert("RGB").convert("L")
                known: dict[str, Any] = {"rgb": rgb, "gray": np.asarray(gray)[..., None]}
                known["rgba"] = np.asarray(decoded.convert("RGBA"))
                if depth == 8:
                    known[f"unchanged-{len(mode)}-uint8"] = np.asarray(decoded)
                yield Kind(f"{name}.avif", file.read_bytes(), known)


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def every_kind(directory: Path) -> list[Kind]:
    return [*jpegs(), *pngs(), *webps(), *gifs(), *bmps(), *tiffs(), *avifs(directory)]
