# SPDX-License-Identifier: Apache-2.0
"""The sound of ./dev bench audio: chirps under noise that comes and goes a few times a second."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generated

FILES = 64
LEAST_S, MOST_S = 10.2, 15.0  # of a file
WAV_RATE, MP3_RATE = 16000, 44100


def seconds_of(number: int) -> float:
    """Of the file of this number: lengths are spread evenly, in no order."""
    return LEAST_S + (MOST_S - LEAST_S) * (number * 29 % FILES) / FILES


def voice(number: int) -> str:
    """A voice's range of frequencies, loudness in syllables, and pauses."""
    low = 110 + 3 * number
    chirp = f"0.3*sin(2*PI*({low}*t+40*sin(1.7*t)))+0.15*sin(2*PI*{7 * low}*t)"
    noise = f"0.2*(2*random({number % 9})-1)"
    loudness = f"pow(sin(PI*(3+{number % 5}*0.3)*t)\\,2)*gt(sin(0.9*t)\\,-0.8)"
    return f"aevalsrc=exprs=({chirp}+{noise})*{loudness}:s={WAV_RATE}"


def _make_wavs(directory: pathlib.Path) -> None:
    for number in range(FILES):
        generated.ffmpeg(
            *("-f", "lavfi", "-i", voice(number), "-t", f"{seconds_of(number):.3f}"),
            *("-c:a", "pcm_s16le", directory / f"{number:03}.wav"),
        )


def _make_mp3s(directory: pathlib.Path) -> None:
    """Of the same voices, under a faint noise of all frequencies."""
    for wav in sorted(make("wav").iterdir()):
        mixed = (
            f"[0:a]aresample={MP3_RATE},aformat=channel_layouts=stereo[voice];"
            f"anoisesrc=r={MP3_RATE}:a=0.02:s={int(wav.stem)}[noise];"
            "[voice][noise]amix=duration=first:normalize=0"
        )
        generated.ffmpeg(
            *("-i", wav, "-filter_complex", mixed, "-c:a", "libmp3lame", "-b:a", "128k"),
            directory / f"{wav.stem}.mp3",
        )


def make(kind: str) -> pathlib.Path:
    """The directory of FILES files: `wav` is mono at 16 kHz, `mp3` stereo at 44.1 kHz and 128 kbit/s."""
    return generated.kept(f"audio-{kind}-{FILES}", _make_wavs if kind == "wav" else _make_mp3s)
