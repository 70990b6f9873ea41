# SPDX-License-Identifier: Apache-2.0
"""The loaders of video that are compared, each an endless iterator of batches of clips.

All but "floor" do the same: a clip of FRAMES frames at random of a file at random, its short side resized to 128,
a random crop to 112 x 112, a flip by chance, float32 as [clip, frame, channel, row, column],
normalised; each in the way that its own documentation has it, with as many workers as it is given
cores and one thread a decoder. Files are opened for each clip, as in a dataset of many files. Imports
are inside: each side pays for its own alone.

video_sides.py NAME OPTIONS_JSON SECONDS WARMUP_SECONDS: one side in a process of its own; prints a line
of JSON. video_sides.py NAME OPTIONS_JSON look: what its first batches are.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import peer_side

FRAMES = 16  # of a clip
SHORT_SIDE, SIZE = 128, 112
MEAN, STD = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)  # of Kinetics, as is usual


@dataclasses.dataclass(frozen=True)
class Options:
    root: str
    files: list[str]  # of one size, rate and length
    width: int
    height: int
    fps: int
    frames: int  # of each file
    stride: int
    batch: int
    workers: int
    seed: int

    @property
    def span(self) -> int:
        return (FRAMES - 1) * self.stride + 1

    @property
    def resized(self) -> tuple[int, int]:
        """Width and height, of which the short side is SHORT_SIDE."""
        short = min(self.width, self.height)
        return self.width * SHORT_SIDE // short, self.height * SHORT_SIDE // short


@dataclasses.dataclass(frozen=True)
class Draw:
    path: str
    first: int  # frame
    left: int
    top: int
    flip: bool


def draw(options: Options, order: Any) -> Draw:
    width, height = options.resized
    return Draw(
        path=options.files[order.randrange(len(options.files))],
        first=order.randrange(options.frames - options.span + 1),
        left=order.randrange(width - SIZE + 1),
        top=order.randrange(height - SIZE + 1),
        flip=order.random() < 0.5,
    )


def normalized(frames: Any, flip: bool = False) -> Any:
    """Float values of [..., channel, row, column] uint8."""
    import torch

    mean = torch.tensor(MEAN).view(3, 1, 1) * 255
    std = torch.tensor(STD).view(3, 1, 1) * 255
    if flip:
        frames = frames.flip(-1)
    return frames.float().sub_(mean).div_(std)


class Clips:
    """A dataset for torch's DataLoader."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self.clip(draw(self.options, random.Random(self.options.seed << 32 | index)))

    def clip(self, drawn: Draw) -> Any:
        raise NotImplementedError


class PyavClips(Clips):
    """Seeks to the key frame before, decodes on, and lets swscale convert and resize what is wanted."""

    def clip(self, drawn: Draw) -> Any:
        import av
        import numpy as np
        import torch

        options = self.options
        width, height = options.resized
        rows = slice(drawn.top, drawn.top + SIZE)
        columns = slice(drawn.left, drawn.left + SIZE)
        with av.open(drawn.path) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            ticks = 1 / (options.fps * stream.time_base)  # of a frame
            begin = stream.start_time or 0
            wanted = [
                begin + round((drawn.first + number * options.stride) * ticks)
                for number in range(FRAMES)
            ]
            container.seek(wanted[0], stream=stream)
            frames: list[Any] = []
            for frame in container.decode(stream):
                if frame.pts < wanted[len(frames)]:
                    continue
                picture = frame.to_ndarray(
                    format="rgb24", width=width, height=height, interpolation="BILINEAR"
                )
                frames.append(picture[rows, columns])
                if len(frames) == FRAMES:
                    break
        clip = torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)
        return normalized(clip, drawn.flip).contiguous()


class TorchcodecClips(Clips):
    """Its own sampler, with resize and crop in the decoder, in the seek mode that scans no file."""

    def clip(self, drawn: Draw) -> Any:
        import torch
        from torchcodec import transforms
        from torchcodec.decoders import VideoDecoder
        from torchcodec.samplers import clips_at_random_indices

        width, height = self.options.resized
        decoder = VideoDecoder(
            drawn.path,
            seek_mode="approximate",
            num_ffmpeg_threads=1,
            transforms=[transforms.Resize((height, width)), transforms.RandomCrop((SIZE, SIZE))],
        )
        torch.manual_seed(drawn.first * SIZE + drawn.left)
        clips = clips_at_random_indices(
            decoder,
            num_clips=1,
            num_frames_per_clip=FRAMES,
            num_indices_between_frames=self.options.stride,
        )
        return normalized(clips.data[0], drawn.flip)


def import_pyav() -> None:
    peer_side.import_torch()
    import av  # noqa: F401


def import_torchcodec() -> None:
    peer_side.import_torch()
    import torchcodec.decoders
    import torchcodec.samplers  # noqa: F401


def open_dataloader(dataset: Clips) -> peer_side.Batches:
    options = dataset.options
    for batch in peer_side.endless_dataloader(
        dataset, options.batch, options.workers, options.seed
    ):
        yield (batch,)


def import_spdl() -> None:
    peer_side.import_torch()
    import spdl.io
    import spdl.pipeline  # noqa: F401


def open_spdl(options: Options) -> peer_side.Batches:
    """SPDL: packets of the clip's time, decoded in threads; stride, resize, crop and flip by filters."""
    import spdl.io
    import torch

    width, height = options.resized

    def decode(drawn: Draw) -> Any:
        # Half a frame before, so that rounding leaves no frame out.
        begin = (drawn.first - 0.5) / options.fps
        end = begin + options.span / options.fps
        window = (max(begin, 0), end)
        packets = spdl.io.demux_video(drawn.path, timestamp=window)
        steps = [
            f"select='not(mod(n,{options.stride}))'",
            f"scale={width}:{height}:flags=bilinear",
            f"crop={SIZE}:{SIZE}:{drawn.left}:{drawn.top}",
            *(["hflip"] if drawn.flip else []),
        ]
        # Filters are given what is decoded before the window, too: trimmed first, it is not resized.
        filters = spdl.io.get_video_filter_desc(
            timestamp=window, filter_desc=",".join(steps), pix_fmt="rgb24"
        )
        return spdl.io.decode_packets(packets, filter_desc=filters)

    def convert(clips: list[Any]) -> tuple[Any, ...]:
        frames = torch.stack([spdl.io.to_torch(spdl.io.convert_frames(clip)) for clip in clips])
        return (normalized(frames.permute(0, 1, 4, 2, 3)).contiguous(),)

    def stages(builder: Any) -> Any:
        decoded = builder.pipe(decode, concurrency=options.workers)
        return decoded.aggregate(options.batch).pipe(convert)

    draws = peer_side.endless_draws(lambda order: draw(options, order), options.seed)
    return peer_side.spdl_pipeline(draws, options.workers, stages)


def pipeline_spec(options: Options) -> dict[str, Any]:
    return {
        "pipeline": "bench-video",
        "seed": options.seed,
        "source": {
            "files": {"root": options.root, "pattern": "**/*.mp4", "field": "video"},
            # So many of a file in an epoch; each is drawn anew.
            "clips": {
                "frames": FRAMES,
                "stride": options.stride,
                "sampling": "random",
                "per_file": 256,
            },
        },
        "shuffle": "global",
        "stages": [
            "fetch",
            "decode_video",
            {"resize": {"size": SHORT_SIDE}},
            {"random_crop": {"size": [SIZE, SIZE]}},
            "random_horizontal_flip",
            {"normalize": {"mean": MEAN, "std": STD}},
        ],
        "batch": {"size": options.batch, "last": "drop"},
    }


PEERS: dict[str, peer_side.Peer] = {
    "pyav": (import_pyav, lambda options: open_dataloader(PyavClips(options))),
    "torchcodec": (import_torchcodec, lambda options: open_dataloader(TorchcodecClips(options))),
    "spdl": (import_spdl, open_spdl),
}


def run_floor(options: Options, seconds: str) -> None:
    """A loop around libavcodec that decodes the same pictures and throws them away: video/floor.cpp."""
    build = os.environ.get("SPDLD_BUILD_DIR", "build/release")
    program = pathlib.Path(__file__).resolve().parents[3] / build / "bin/video_floor"
    numbers = (FRAMES, options.stride, options.workers, seconds, options.seed)
    done = subprocess.run(
        [program, "bare", *map(str, numbers), *options.files],
        check=True,
        capture_output=True,
        text=True,
    )
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(done.stdout)
    print(
        json.dumps(
            {
                "clips_per_s": found["clips_s"],
                "cpu_ms_per_clip": 1000 * (spent.ru_utime + spent.ru_stime) / found["clips"],
                "pss_mb": spent.ru_maxrss / 1e3,
                "first_batch_ms": 0.0,
                "clips": found["clips"],
            }
        )
    )


def main(name: str, options_json: str, *words: str) -> None:
    options = Options(**json.loads(options_json))
    if name == "floor":
        run_floor(options, words[0])
    elif name == "spdld":
        peer_side.run_spdld("clip", pipeline_spec(options), options.workers, ("video",), words)
    else:
        import_side, open_side = PEERS[name]
        peer_side.run_peer("clip", import_side, lambda: open_side(options), words)


if __name__ == "__main__":
    main(*sys.argv[1:])
