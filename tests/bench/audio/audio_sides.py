# SPDX-License-Identifier: Apache-2.0
"""The loaders of sound that are compared, each an endless iterator of batches.

Tasks `wav` and `mp3`: ten seconds of a file at random, mono at 16 kHz, as Whisper's log-mel spectrum of
80 bands. Task `windows`: ten milliseconds at random of a wav file, as they are. Each side does so in
the way that its own documentation has it, with as many workers as it is given cores, and opens files
when it needs them. Imports are inside: each side pays for its own alone.

audio_sides.py NAME OPTIONS_JSON SECONDS WARMUP_SECONDS: one side in a process of its own; prints a line
of JSON. audio_sides.py NAME OPTIONS_JSON look: what its first batches are.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import mmap
import pathlib
import random
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import peer_side

RATE = 16000
SECONDS = {"wav": 10.0, "mp3": 10.0, "windows": 0.01}
N_FFT, HOP, MELS = 400, 160, 80


@dataclasses.dataclass(frozen=True)
class Options:
    task: str
    root: str
    files: list[tuple[str, float]]  # with their durations in seconds
    batch: int
    workers: int
    seed: int

    @property
    def seconds(self) -> float:
        return SECONDS[self.task]

    @property
    def samples(self) -> int:
        return round(self.seconds * RATE)


def draw(options: Options, order: Any = random) -> tuple[str, float]:
    """A file, and where in it the window begins."""
    path, duration = options.files[order.randrange(len(options.files))]
    return path, order.uniform(0, duration - options.seconds - 0.05)


def import_torchaudio() -> None:
    peer_side.import_torch()
    import torch

    # The last torchaudio is of an older CUDA than torch, and refuses to be imported for that alone.
    torch.version.cuda = None
    import torchaudio  # noqa: F401


def whisper_mel() -> Any:
    """log_mel(waveform) of OpenAI's Whisper, its spectrum by torchaudio: [1, samples] -> [1, 80, frames]."""
    import torch
    import torchaudio

    spectrum = torchaudio.transforms.MelSpectrogram(
        sample_rate=RATE,
        n_fft=N_FFT,
        hop_length=HOP,
        n_mels=MELS,
        norm="slaney",
        mel_scale="slaney",
    )

    def log_mel(waveform: Any) -> Any:
        mel = spectrum(waveform)[..., :-1].clamp_(min=1e-10).log10_()
        return torch.maximum(mel, mel.max() - 8).add_(4).div_(4)

    return log_mel


def fitted(waveform: Any, samples: int) -> Any:
    """Filled up with zeros where the decoder gave a sample less."""
    import torch

    waveform = waveform[:, :samples]
    return torch.nn.functional.pad(waveform, (0, samples - waveform.shape[1]))


def import_dataloader() -> None:
    import_torchaudio()
    import soundfile  # noqa: F401
    import torchcodec.decoders  # noqa: F401


class RandomWindows:
    """A dataset for torch's DataLoader. `mel` is made in each worker."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        options = self.options
        path, start = draw(options, random.Random(options.seed << 32 | index))
        if options.task == "windows":
            return read_part(path, start, options.samples)
        # torchaudio.load is this decoder, and its documentation says to call it directly.
        from torchcodec.decoders import AudioDecoder

        decoder = AudioDecoder(path, sample_rate=RATE, num_channels=1)
        window = decoder.get_samples_played_in_range(start, start + options.seconds)
        return self.log_mel(fitted(window.data, options.samples))

    @functools.cached_property
    def log_mel(self) -> Any:
        return whisper_mel()


def read_part(path: str, start: float, samples: int) -> Any:
    """By libsndfile, which reads no more of a wav file than that."""
    import soundfile
    import torch

    window, _ = soundfile.read(
        path, start=int(start * RATE), frames=samples, dtype="float32", always_2d=True
    )
    return torch.from_numpy(window.T)


def open_dataloader(options: Options) -> peer_side.Batches:
    """torchcodec's decoder and torchaudio's spectrum, or libsndfile, in the workers of a DataLoader."""
    for batch in peer_side.endless_dataloader(
        RandomWindows(options), options.batch, options.workers, options.seed
    ):
        yield (batch,)


def import_spdl() -> None:
    import_torchaudio()
    import spdl.io
    import spdl.pipeline  # noqa: F401


def open_spdl(options: Options) -> peer_side.Batches:
    """SPDL: its pipeline of threads, its reader of wav and its decoder; torchaudio's spectrum."""
    import numpy as np
    import spdl.io
    import torch

    log_mel = None if options.task == "windows" else whisper_mel()

    @functools.cache
    def mapped(path: str) -> memoryview:
        with open(path, "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def wav_part(path: str, start: float) -> Any:
        part = spdl.io.load_wav(mapped(path), start, options.seconds)
        return np.asarray(part)[: options.samples].T.astype(np.float32) / 32768

    def part(item: tuple[str, float]) -> Any:
        path, start = item
        if options.task != "mp3":
            return torch.from_numpy(wav_part(path, start))
        packets = spdl.io.demux_audio(path, timestamp=(start, start + options.seconds))
        filters = spdl.io.get_filter_desc(
            packets, sample_rate=RATE, num_channels=1, num_frames=options.samples
        )
        frames = spdl.io.decode_packets(packets, filter_desc=filters)
        return spdl.io.to_torch(spdl.io.convert_frames(frames))

    def sample(item: tuple[str, float]) -> Any:
        return log_mel(part(item)) if log_mel else part(item)

    def window_batch(items: list[tuple[str, float]]) -> Any:
        # One task a batch: a task of its own costs more than a window does.
        return (torch.from_numpy(np.stack([wav_part(*item) for item in items])),)

    def convert(rows: list[Any]) -> tuple[Any, ...]:
        return (torch.stack(rows),)

    def stages(builder: Any) -> Any:
        if options.task == "windows":
            return builder.aggregate(options.batch).pipe(window_batch, concurrency=options.workers)
        sampled = builder.pipe(sample, concurrency=options.workers)
        return sampled.aggregate(options.batch).pipe(convert)

    draws = peer_side.endless_draws(lambda order: draw(options, order), options.seed)
    return peer_side.spdl_pipeline(draws, options.workers, stages)


def import_dali() -> None:
    peer_side.import_torch()
    import nvidia.dali.fn  # noqa: F401


def open_dali(options: Options) -> peer_side.Batches:
    """DALI's pipeline on the CPU alone: whole files are decoded; tensors are taken without a copy."""
    import torch
    from nvidia.dali import fn, math, pipeline_def, types

    @pipeline_def(
        batch_size=options.batch,
        num_threads=options.workers,
        device_id=None,
        seed=options.seed,
    )
    def training() -> Any:
        encoded, _ = fn.readers.file(
            files=[path for path, _ in options.files], random_shuffle=True, initial_fill=64
        )
        sound, _ = fn.decoders.audio(encoded, dtype=types.FLOAT, downmix=True, sample_rate=RATE)
        room = fn.cast(sound.shape(dtype=types.INT32)[0] - options.samples, dtype=types.FLOAT)
        start = fn.cast(fn.random.uniform(range=(0.0, 1.0)) * room, dtype=types.INT32)
        sound = fn.slice(
            sound, start=start, shape=[options.samples], axes=[0], out_of_bounds_policy="pad"
        )
        power = fn.spectrogram(sound, nfft=N_FFT, window_length=N_FFT, window_step=HOP)
        mel = fn.mel_filter_bank(
            power, sample_rate=RATE, nfilter=MELS, freq_high=RATE / 2, mel_formula="slaney"
        )
        frames = options.samples // HOP
        mel = fn.slice(mel, start=[0], shape=[frames], axes=[1])
        mel = fn.to_decibels(mel, multiplier=1.0, reference=1.0, cutoff_db=-10.0)
        mel = math.max(mel, fn.reductions.max(mel, keep_dims=True) - 8.0)
        return (mel + 4.0) / 4.0

    pipeline = training()
    pipeline.build()
    while True:
        (mel,) = pipeline.run()
        yield (torch.from_dlpack(mel.as_tensor()).unsqueeze(1),)


def pipeline_spec(options: Options) -> dict[str, Any]:
    stages: list[Any] = ["fetch", {"decode_audio": {"sample_rate": RATE, "channels": 1}}]
    windows: dict[str, Any] = {"seconds": options.seconds}
    if options.task != "windows":
        windows |= {"sampling": "random", "per_file": 16}  # so many in an epoch
        stages += [{"pad_or_trim": {"seconds": options.seconds}}, {"log_mel": {"n_mels": MELS}}]
    return {
        "pipeline": "bench-audio",
        "seed": options.seed,
        "source": {
            "files": {"root": options.root, "pattern": "**/*.{wav,mp3}", "field": "audio"},
            "windows": windows,
        },
        "shuffle": "global",
        "stages": stages,
        "batch": {"size": options.batch, "last": "drop"},
    }


PEERS: dict[str, peer_side.Peer] = {
    "dataloader": (import_dataloader, open_dataloader),
    "spdl": (import_spdl, open_spdl),
    "dali": (import_dali, open_dali),
}


def main(name: str, options_json: str, *words: str) -> None:
    options = Options(**json.loads(options_json))
    random.seed(options.seed)
    if name == "spdld":
        peer_side.run_spdld("window", pipeline_spec(options), options.workers, ("audio",), words)
    else:
        import_side, open_side = PEERS[name]
        peer_side.run_peer("window", import_side, lambda: open_side(options), words)


if __name__ == "__main__":
    main(*sys.argv[1:])
