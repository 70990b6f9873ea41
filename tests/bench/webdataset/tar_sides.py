# SPDX-License-Identifier: Apache-2.0
"""The loaders of tar shards that are compared, each an endless iterator of (images, labels, captions).

All do the same to a sample of jpg, cls and txt: decode to RGB, RandomResizedCrop to SIZE x SIZE, flip,
float32 in NCHW, normalised; each in the way that its own documentation has it, with as many workers
as it is given cores. Imports are inside: each side pays for its own alone.

tar_sides.py NAME OPTIONS_JSON SECONDS WARMUP_SECONDS: one side in a process of its own; prints a line
of JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import random
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import peer_side

SIZE = 224
SHUFFLED = 1000  # samples in the buffers of those that shuffle by one, as their examples have it
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


@dataclasses.dataclass(frozen=True)
class Options:
    shards: list[str]
    files: str
    batch: int
    workers: int
    seed: int


def import_webdataset() -> None:
    peer_side.import_torch()
    import torchvision.transforms.v2  # noqa: F401
    import webdataset  # noqa: F401


def open_webdataset(options: Options) -> peer_side.Batches:
    """The webdataset package under torch's DataLoader, as its README has it; transforms of PIL images."""
    import torch
    import webdataset
    from torchvision.transforms import v2

    image = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, scale=SCALE, ratio=RATIO),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    dataset = (
        webdataset.WebDataset(options.shards, shardshuffle=100, seed=options.seed)
        .repeat()
        .shuffle(SHUFFLED)
        .decode("pilrgb")
        .to_tuple("jpg", "cls", "txt")
        .map_tuple(image, None, None)
    )
    yield from torch.utils.data.DataLoader(
        dataset, batch_size=options.batch, num_workers=options.workers
    )


def import_dali() -> None:
    peer_side.import_torch()
    import nvidia.dali.fn  # noqa: F401


def open_dali(options: Options) -> peer_side.Batches:
    """DALI's pipeline on the CPU alone; tensors are taken without a copy."""
    import torch
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(
        batch_size=options.batch,
        num_threads=options.workers,
        device_id=None,
        seed=options.seed,
    )
    def training() -> tuple[Any, ...]:
        jpg, cls, txt = fn.readers.webdataset(
            paths=options.shards,
            ext=["jpg", "cls", "txt"],
            missing_component_behavior="error",
            random_shuffle=True,
            initial_fill=SHUFFLED,
        )
        image = fn.decoders.image_random_crop(
            jpg, device="cpu", random_area=SCALE, random_aspect_ratio=RATIO
        )
        image = fn.resize(image, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR)
        image = fn.crop_mirror_normalize(
            image,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=fn.random.coin_flip(),
        )
        return image, cls, txt

    pipeline = training()
    pipeline.build()
    while True:
        images, labels, captions = pipeline.run()
        yield (
            torch.from_dlpack(images.as_tensor()),
            torch.tensor([int(bytes(labels.at(row))) for row in range(options.batch)]),
            [bytes(captions.at(row)).decode() for row in range(options.batch)],
        )


def import_spdl() -> None:
    peer_side.import_torch()
    import spdl.io
    import spdl.pipeline  # noqa: F401


def draw_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Width, height, left and top, as torchvision's RandomResizedCrop draws them."""
    for _ in range(10):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return wide, high, random.randint(0, width - wide), random.randint(0, height - high)
    least = min(width, height)
    return least, least, (width - least) // 2, (height - least) // 2


def open_spdl(options: Options) -> peer_side.Batches:
    """SPDL: its tar parser, its pipeline of threads, its decoder with FFmpeg's filters as transforms."""
    import spdl.io
    import torch

    mean = torch.tensor(MEAN).view(3, 1, 1) * 255
    std = torch.tensor(STD).view(3, 1, 1) * 255

    def source() -> Iterator[dict[str, bytes]]:
        order = random.Random(options.seed)
        shards = list(options.shards)
        buffer: list[dict[str, bytes]] = []
        while True:
            order.shuffle(shards)
            for path in shards:
                for sample in samples_of(pathlib.Path(path).read_bytes()):
                    buffer.append(sample)
                    if len(buffer) >= SHUFFLED:
                        pick = order.randrange(len(buffer))
                        buffer[pick], buffer[-1] = buffer[-1], buffer[pick]
                        yield buffer.pop()

    def samples_of(tar: bytes) -> Iterator[dict[str, bytes]]:
        sample: dict[str, bytes] = {}
        last = ""
        for name, content in spdl.io.iter_tarfile(tar):
            key, _, suffix = name.partition(".")
            if key != last and sample:
                yield sample
                sample = {}
            last = key
            sample[suffix] = bytes(content)
        if sample:
            yield sample

    def decode(sample: dict[str, bytes]) -> tuple[Any, int, str]:
        packets = spdl.io.demux_image(sample["jpg"])
        wide, high, left, top = draw_crop(packets.width, packets.height)
        flip = ",hflip" if random.random() < 0.5 else ""
        filters = spdl.io.get_video_filter_desc(
            filter_desc=f"crop={wide}:{high}:{left}:{top},scale={SIZE}:{SIZE}:flags=bilinear{flip}",
            pix_fmt="rgb24",
        )
        frames = spdl.io.decode_packets(packets, filter_desc=filters)
        return frames, int(sample["cls"]), sample["txt"].decode()

    def convert(rows: list[tuple[Any, int, str]]) -> tuple[Any, ...]:
        images = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _, _ in rows]))
        normal = images.permute(0, 3, 1, 2).float().sub_(mean).div_(std).contiguous()
        return normal, torch.tensor([label for _, label, _ in rows]), [row[2] for row in rows]

    def stages(builder: Any) -> Any:
        decoded = builder.pipe(decode, concurrency=options.workers)
        return decoded.aggregate(options.batch).pipe(convert)

    return peer_side.spdl_pipeline(source(), options.workers, stages)


def source_of(options: Options, form: str) -> tuple[dict[str, Any], Any]:
    """What the pipeline says of source and shuffle."""
    if form == "files":
        files = {"root": options.files, "pattern": "**/*.jpg", "label": "parent_dir"}
        return {"files": files}, "global"
    fields = {"image": "jpg", "label": "cls", "caption": "txt"}
    block = {"block": 512, "interleave": 16}  # what it is when nothing is said
    return {"webdataset": {"shards": options.shards, "fields": fields}}, block


def pipeline_spec(options: Options, form: str) -> dict[str, Any]:
    source, shuffle = source_of(options, form)
    return {
        "pipeline": "bench-tars",
        "seed": options.seed,
        "source": source,
        "shuffle": shuffle,
        "stages": [
            "fetch",
            "decode_image",
            {"random_resized_crop": {"size": [SIZE, SIZE], "scale": SCALE, "ratio": RATIO}},
            "random_horizontal_flip",
            {"normalize": {"mean": MEAN, "std": STD}},
        ],
        "batch": {"size": options.batch, "last": "drop", "layout": "NCHW"},
    }


# By name: what its trainer would have loaded anyway, and the loader; from there the clock runs.
PEERS: dict[str, peer_side.Peer] = {
    "webdataset": (import_webdataset, open_webdataset),
    "dali": (import_dali, open_dali),
    "spdl": (import_spdl, open_spdl),
}
# By name: the form of the data and what a batch holds. Plain files are read for the image alone.
OURS = {
    "spdld": ("tars", ("image", "label", "caption")),
    "spdld-files": ("files", ("image", "label")),
}


def main(name: str, options_json: str, *words: str) -> None:
    options = Options(**json.loads(options_json))
    random.seed(options.seed)
    if name in PEERS:
        import_side, open_side = PEERS[name]
        peer_side.run_peer("image", import_side, lambda: open_side(options), words)
    else:
        form, output = OURS[name]
        peer_side.run_spdld("image", pipeline_spec(options, form), options.workers, output, words)


if __name__ == "__main__":
    main(*sys.argv[1:])
