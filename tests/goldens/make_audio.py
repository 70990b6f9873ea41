#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes audio.json: what torchaudio and Whisper's own package make of the sound that pattern()
computes. tests/unit/transform/sound/audio_goldens_test.cpp computes the same sound and asks spdld;
tests/test_audio_goldens.py asks the torchaudio that is installed.

    PYTHON tests/goldens/make_audio.py        with a PYTHON that has torchaudio and openai-whisper

Of each result there are its shape and every STEP-th value, channel by channel, row by row.
"""

from __future__ import annotations

import json
import pathlib
from importlib.metadata import version
from typing import Any

import torch
import torchaudio

STEP = 13
GOLDENS = pathlib.Path(__file__).parent / "audio.json"
SPECTRUM = ("n_fft", "win_length", "hop_length", "pad", "normalized", "center", "pad_mode", "power")
MEL = (*SPECTRUM, "n_mels", "f_min", "f_max", "norm", "mel_scale")

# The op and its parameters as spdld has them, then the sound: sample rate, channels, samples.
CASES: list[tuple[str, dict[str, Any], int, int, int]] = [
    ("spectrogram", {}, 16000, 1, 2000),
    (
        "spectrogram",
        {
            "power": 1.0,
            "normalized": True,
            "n_fft": 512,
            "win_length": 400,
            "hop_length": 160,
            "pad": 10,
        },
        16000,
        2,
        1500,
    ),
    ("spectrogram", {"n_fft": 882, "hop_length": 441, "center": False}, 44100, 1, 3001),
    ("spectrogram", {"n_fft": 64, "hop_length": 100, "pad_mode": "replicate"}, 8000, 1, 1234),
    ("spectrogram", {"n_fft": 62, "win_length": 45, "pad_mode": "constant"}, 8000, 1, 60),
    ("mel_spectrogram", {}, 16000, 2, 2000),
    (
        "mel_spectrogram",
        {
            "n_fft": 1024,
            "hop_length": 256,
            "n_mels": 80,
            "f_min": 20.0,
            "f_max": 7600.0,
            "norm": "slaney",
            "mel_scale": "slaney",
            "power": 1.0,
        },
        22050,
        1,
        3000,
    ),
    (
        "mel_spectrogram",
        {
            "n_fft": 1102,
            "n_mels": 64,
            "f_min": 50.0,
            "normalized": True,
            "pad_mode": "constant",
            "pad": 3,
        },
        44100,
        1,
        4000,
    ),
    ("amplitude_to_db", {"top_db": 60.0}, 16000, 2, 2000),
    ("amplitude_to_db", {"stype": "magnitude"}, 16000, 1, 1000),
    ("log_mel", {"n_mels": 80}, 16000, 1, 4007),
    ("log_mel", {"n_mels": 128}, 16000, 2, 1760),
    ("mfcc", {}, 16000, 2, 2000),
    (
        "mfcc",
        {
            "n_mfcc": 13,
            "n_mels": 40,
            "n_fft": 512,
            "hop_length": 200,
            "log_mels": True,
            "dct_norm": "none",
        },
        16000,
        1,
        2500,
    ),
    ("speed_perturbation", {"factors": [0.9]}, 16000, 2, 700),
    ("speed_perturbation", {"factors": [1.1]}, 44100, 1, 700),
    ("speed_perturbation", {"factors": [1.15]}, 16000, 1, 90),
    ("speed_perturbation", {"factors": [0.37]}, 8000, 1, 100),
    ("gain", {"gain_db": [-3.0]}, 16000, 2, 100),
]


def pattern(channels: int, samples: int) -> torch.Tensor:
    """Steps of an irregular height over a square wave, with silence in their middle."""
    i = torch.arange(samples, dtype=torch.int64)
    rows = []
    for channel in range(channels):
        values = (i * (i % 1009) + 37 * channel) % 4001 * 4 - 8000
        values += torch.where(i % (50 - 13 * channel) < 20, 6000, -6000)
        values[samples // 2 : samples // 2 + samples // 5] = 0
        rows.append(values)
    return torch.stack(rows).to(torch.float32) / 32768


def transformed(op: str, params: dict[str, Any], rate: int, sound: torch.Tensor) -> torch.Tensor:
    transforms = torchaudio.transforms
    if op == "spectrogram":
        return transforms.Spectrogram(**params)(sound)
    if op == "mel_spectrogram":
        return transforms.MelSpectrogram(rate, **params)(sound)
    if op == "amplitude_to_db":
        spectrum = transforms.Spectrogram()(sound)
        return transforms.AmplitudeToDB(params.get("stype", "power"), params.get("top_db"))(
            spectrum
        )
    if op == "log_mel":
        import whisper.audio

        return whisper.audio.log_mel_spectrogram(sound, params["n_mels"])
    if op == "mfcc":
        norm = {"ortho": "ortho", "none": None}[params.get("dct_norm", "ortho")]
        return transforms.MFCC(
            rate,
            n_mfcc=params.get("n_mfcc", 40),
            norm=norm,
            log_mels=params.get("log_mels", False),
            melkwargs={name: params[name] for name in params if name in MEL},
        )(sound)
    if op == "speed_perturbation":
        # torchaudio.functional.speed(), which older versions lack, does this.
        return torchaudio.functional.resample(sound, int(params["factors"][0] * rate), rate)
    assert op == "gain"
    return torchaudio.functional.gain(sound, params["gain_db"][0])


def sampled(op: str, params: dict[str, Any], rate: int, channels: int, samples: int) -> Any:
    values = transformed(op, params, rate, pattern(channels, samples))
    return list(values.shape), values.flatten()[::STEP].tolist()


def golden(op: str, params: dict[str, Any], rate: int, channels: int, samples: int) -> str:
    shape, values = sampled(op, params, rate, channels, samples)
    return json.dumps(
        {
            "op": op,
            "params": params,
            "sample_rate": rate,
            "channels": channels,
            "samples": samples,
            "shape": shape,
            "values": [float(f"{value:.7g}") for value in values],
        }
    )


def main() -> None:
    made_by = json.dumps(
        f"torchaudio {torchaudio.__version__}, torch {torch.__version__}, "
        f"openai-whisper {version('openai-whisper')}"
    )
    lines = ",\n".join(golden(*case) for case in CASES)
    GOLDENS.write_text(f'{{"made by": {made_by},\n"step": {STEP},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
