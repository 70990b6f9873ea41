# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md shows what people are told for the mistakes of a first day: this makes each of them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
import spdld
from PIL import Image

DOC = (daemon_module.REPOSITORY / "docs/errors.md").read_text()
# A heading, some words, and the message.
ENTRY = re.compile(r"^### (.+)\n(?:.*\n)*?```\n((?:.*\n)*?)```$", re.MULTILINE)
USER = 65534
GOOD = """\
pipeline: train
vars: {root: DATA, size: 32}
source:
  files: {root: "${root}", pattern: "**/*.jpg", label: parent_dir}
shuffle: global
stages:
  - fetch
  - decode_image
  - random_resized_crop: {size: "${size}"}
batch: {size: 4}
"""


@dataclasses.dataclass
class Desk:
    """Where somebody sits on the first day: a daemon, images, and a file train.yaml."""

    daemon: daemon_module.Daemon
    directory: pathlib.Path
    data: pathlib.Path
    start_rank: Callable[..., Any]

    @property
    def file(self) -> pathlib.Path:
        return self.directory / "train.yaml"

    def write(self, *changes: tuple[str, str], text: str = GOOD) -> pathlib.Path:
        text = text.replace("DATA", str(self.data))
        for before, after in changes:
            assert before in text, before
            text = text.replace(before, after)
        self.file.write_text(text)
        return self.file

    def applied(self, *changes: tuple[str, str], more: tuple[str, ...] = ()) -> str:
        """What spdlctl says of the good file with these changes."""
        done = self.daemon.ctl("apply", "-f", self.write(*changes), *more, check=False)
        return done.stderr.removeprefix("spdlctl: ")

    def loaded(self, pipeline: str | os.PathLike[str] | None = None, **options: Any) -> str:
        """What a loader raises before or at its first batch."""
        pipeline = self.write() if pipeline is None else pipeline
        with pytest.raises(Exception) as raised:
            next(iter(spdld.Loader(pipeline, address=self.daemon.address, **options)))
        return said(raised.value)

    def shown(self, text: str) -> str:
        """The message as the page has it: with its places, not this test's."""
        for path, name in (
            (self.data, "/data/pets"),
            (self.directory, "/home/ann"),
            (self.daemon.address, "/run/spdld"),
        ):
            text = text.replace(str(path), name)
        text = re.sub(r"\bpid \d+", "pid 4711", text)
        text = re.sub(r"such as \w+/\d+\.jpg", "such as cats/00000.jpg", text)
        two = r"\(\w+/\d+\.jpg has \d+x\d+ pixels, \w+/\d+\.jpg \d+x\d+\)"
        text = re.sub(two, "(cats/00000.jpg has 500x375 pixels, cats/00001.jpg 640x480)", text)
        text = re.sub(r"\b\d+ attempts? in", "3 attempts in", text)
        text = re.sub(r"for position \d+ of", "for position 0 of", text)
        text = re.sub(r"\d+ of all \d+ items so far", "1028 of all 1028 items so far", text)
        text = re.sub(
            r"since [-\d]+ [:\d]+Z by uid \d+", "since 2026-11-29 07:31:20Z by uid 0", text
        )
        return " ".join(text.split())


def said(error: BaseException) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) else str(error)


MISTAKES: dict[str, Callable[[Desk], str]] = {}


def mistake(title: str) -> Callable[[Callable[[Desk], str]], Callable[[Desk], str]]:
    def add(make: Callable[[Desk], str]) -> Callable[[Desk], str]:
        MISTAKES[title] = make
        return make

    return add


def in_yaml(title: str, *changes: tuple[str, str], more: tuple[str, ...] = ()) -> None:
    MISTAKES[title] = lambda desk: desk.applied(*changes, more=more)


CROP = '  - random_resized_crop: {size: "${size}"}\n'

in_yaml("A misspelt op", ("random_resized_crop", "random_resize_crop"))
in_yaml("An op that is not built in", (CROP, CROP + "  - color_jitter: {brightness: 0.4}\n"))
in_yaml("A flip that does not exist", (CROP, CROP + "  - random_vertical_flip\n"))
in_yaml("A key of another library", ("batch: {size: 4}", "batch: {size: 4}\nnum_workers: 8"))
in_yaml("`drop_last` of PyTorch", ("{size: 4}", "{size: 4, drop_last: true}"))
in_yaml("`shuffle: true`", ("shuffle: global", "shuffle: true"))
in_yaml("A tab instead of spaces", ("  - fetch", "\t- fetch"))
in_yaml("A variable without quotes", ('"${size}"', "${size}"))
in_yaml("A key that stands twice", ("shuffle: global", "shuffle: global\nshuffle: none"))
in_yaml("A crop before the decoding", ("  - decode_image\n" + CROP, CROP + "  - decode_image\n"))


@mistake("Images of different sizes")
def _(desk: Desk) -> str:
    Image.new("RGB", (40, 30)).save(desk.data / "cats/00000.jpg")
    return desk.applied((CROP, ""))


in_yaml(
    "Masks that are normalised",
    ("  - decode_image\n", "  - decode_image: {mode: index}\n"),
    (CROP, CROP + "  - normalize: {mean: 0.5, std: 0.5}\n"),
)
in_yaml("A dtype of another library", (CROP, CROP + "  - to_dtype: {dtype: fp16}\n"))
in_yaml(
    "Means for pixels of 0 to 255",
    (CROP, CROP + "  - normalize: {mean: [123.675, 116.28, 103.53], std: [58.4, 57.12, 57.38]}\n"),
)
in_yaml("A filter on pixels", (CROP, CROP + "  - filter: {where: image > 0.5}\n"))
in_yaml("A variable that the file does not have", more=("--var", "sise=64"))
in_yaml("An environment variable that is not set", ('"${root}"', '"${env:PETS_DIR}"'))


@mistake("A home directory as `~`")
def _(desk: Desk) -> str:
    return desk.applied((str(desk.data), "~/pets"))


@mistake("A directory that is not there")
def _(desk: Desk) -> str:
    return desk.applied((str(desk.data), "/data/pest"))


@mistake("A pattern that matches nothing")
def _(desk: Desk) -> str:
    return desk.applied(("**/*.jpg", "**/*.JPG"))


@mistake("A bucket as root")
def _(desk: Desk) -> str:
    return desk.applied((str(desk.data), "s3://bucket/pets"))


@mistake("A tar file as root")
def _(desk: Desk) -> str:
    archive = desk.directory / "pets.tar"
    archive.write_bytes(b"\0" * 10240)
    return desk.applied((str(desk.data), str(archive)))


@mistake("Files that are no images")
def _(desk: Desk) -> str:
    (desk.data / "cats/clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom")
    return desk.applied(("**/*.jpg", "**/*.mp4"))


@mistake("Images that lie directly in root")
def _(desk: Desk) -> str:
    shutil.copy(next(desk.data.glob("cats/*.jpg")), desk.data / "stray.jpg")
    return desk.applied()


@mistake("A batch larger than the dataset")
def _(desk: Desk) -> str:
    return desk.loaded(desk.write(("{size: 4}", "{size: 4096}")))


@mistake("A batch larger than the memory")
def _(desk: Desk) -> str:
    return desk.applied(("{size: 4}", "{size: 60000, last: pad}"), ("size: 32", "size: 512"))


@mistake("Too little room for encoded rows")
def _(desk: Desk) -> str:
    return desk.applied(
        ("  - decode_image\n" + CROP, ""), ("{size: 4}", "{size: 4, max_bytes: 1KiB}")
    )


in_yaml("A filter that no item passes", (CROP, "  - filter: {where: label > 7}\n" + CROP))


@mistake("A file that went away")
def _(desk: Desk) -> str:
    desk.applied(("shuffle: global", "shuffle: none"))
    sorted(desk.data.glob("cats/*.jpg"))[0].unlink()
    return desk.loaded("train")


@mistake("A pipeline that the daemon does not have")
def _(desk: Desk) -> str:
    desk.applied()
    return desk.loaded("trian")


VIDEO = ("label: parent_dir}", "field: video}")
AUDIO = ("label: parent_dir}", "field: audio}")
STAGES = "  - decode_image\n" + CROP

in_yaml("Videos without clips", VIDEO, (STAGES, "  - decode_video\n"))


def clips(desk: Desk, *changes: tuple[str, str]) -> str:
    """What is said of clips of a video, with these changes."""
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25"]
    command += ["-frames:v", "20", "-c:v", "mpeg4", str(desk.data / "cats/a.mp4")]
    subprocess.run(command, check=True, timeout=daemon_module.WATCHDOG_S)
    some = ("field: video}", "field: video}\n  clips: {frames: 4}")
    return desk.applied(("**/*.jpg", "**/*.mp4"), VIDEO, some, *changes)


@mistake("Clips that no stage decodes")
def _(desk: Desk) -> str:
    return clips(desk, (STAGES, ""))


@mistake("Clips decoded as images")
def _(desk: Desk) -> str:
    return clips(desk, ("  - decode_image\n", "  - decode_image: {field: video}\n"))


in_yaml(
    "Sound of any length",
    AUDIO,
    (STAGES, "  - decode_audio\n"),
    ("{size: 4}", "{size: 4, collate: {audio: {pad: 0}}}"),
)
in_yaml(
    "Whole files of sound in a large batch",
    AUDIO,
    (STAGES, "  - decode_audio: {sample_rate: 16000, channels: 1}\n"),
    ("{size: 4}", "{size: 8}"),
)


@mistake("WORLD_SIZE without a rank")
def _(desk: Desk) -> str:
    os.environ["WORLD_SIZE"] = "2"
    return desk.loaded()


@mistake("RANK without a world size")
def _(desk: Desk) -> str:
    os.environ["RANK"] = "1"
    return desk.loaded()


@mistake("`rank=` without `world_size=`")
def _(desk: Desk) -> str:
    return desk.loaded(rank=1)


@mistake("A rank that is too large")
def _(desk: Desk) -> str:
    return desk.loaded(rank=2, world_size=2)


@mistake("Two processes on one shard")
def _(desk: Desk) -> str:
    desk.applied()
    desk.start_rank(desk.daemon, "train", job="run-7", rank=0, world_size=2).take(1)
    return desk.loaded("train", job="run-7", rank=0, world_size=2)


@mistake("Another seed than the job's")
def _(desk: Desk) -> str:
    desk.applied()
    desk.start_rank(desk.daemon, "train", job="run-7", rank=0, world_size=2, seed=1).take(1)
    return desk.loaded("train", job="run-7", rank=1, world_size=2, seed=2)


@mistake("Another number of ranks than the job's")
def _(desk: Desk) -> str:
    desk.applied()
    desk.start_rank(desk.daemon, "train", job="run-7", rank=0, world_size=2).take(1)
    return desk.loaded("train", job="run-7", rank=2, world_size=3)


@mistake("No daemon")
def _(desk: Desk) -> str:
    desk.daemon.stop()
    return desk.loaded(timeout=0.2)


@mistake("No daemon, asked by spdlctl")
def _(desk: Desk) -> str:
    desk.daemon.stop()
    return desk.daemon.ctl("status", check=False).stderr.removeprefix("spdlctl: ")


@mistake("A daemon that is drained")
def _(desk: Desk) -> str:
    desk.applied()
    desk.daemon.ctl("drain")
    return desk.loaded("train", job="run-8")


@mistake("A daemon that is closed to this user")
def _(desk: Desk) -> str:
    desk.daemon.directory.chmod(0o755)
    desk.daemon.runtime_dir.chmod(0o750)
    return as_user(desk, "spdld.Loader('train', timeout=0.2)")


@mistake("Images that this user may not read")
def _(desk: Desk) -> str:
    desk.daemon.runtime_dir.chmod(0o755)
    desk.daemon.directory.chmod(0o755)
    for socket in ("data.sock", "control.sock"):
        (desk.daemon.runtime_dir / socket).chmod(0o666)
    desk.data.chmod(0o700)
    desk.write()
    return as_user(desk, f"spdld.Loader({str(desk.file)!r})")


def as_user(desk: Desk, loader: str) -> str:
    """What another user is told who has the good file."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    program = f"""
        import os, sys
        import spdld
        os.environ["SPDLD_ADDRESS"] = {desk.daemon.address!r}
        os.setgroups([]); os.setgid({USER}); os.setuid({USER})
        try:
            next(iter({loader}))
        except spdld.Error as error:
            print(error)
        """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


@mistake("A number as text")
def _(desk: Desk) -> str:
    return desk.loaded(batch_size="32")


@mistake("A path as `vars`")
def _(desk: Desk) -> str:
    return desk.loaded(vars="/data/pets")


@mistake("`prefetch=1`")
def _(desk: Desk) -> str:
    return desk.loaded(prefetch=1)


@mistake("A field that the pipeline does not give")
def _(desk: Desk) -> str:
    pytest.importorskip("torch")
    return desk.loaded(output=("image", "target"))


@mistake("A loader as if it were a list")
def _(desk: Desk) -> str:
    with pytest.raises(TypeError) as raised:
        spdld.Loader("train", address=desk.daemon.address)[0]
    return said(raised.value)


@mistake("Unpacking a batch")
def _(desk: Desk) -> str:
    with pytest.raises(TypeError) as raised:
        for _image, _label in spdld.Loader(desk.write(), address=desk.daemon.address):
            pass
    return said(raised.value)


@mistake("Keeping every batch")
def _(desk: Desk) -> str:
    large = desk.write(("size: 32", "size: 256"))
    with pytest.raises(spdld.LeaseError) as raised:
        list(spdld.Loader(large, address=desk.daemon.address, prefetch=2))
    return said(raised.value)


@mistake("A state of other data")
def _(desk: Desk) -> str:
    with spdld.Loader(desk.write(), address=desk.daemon.address) as loader:
        next(iter(loader))
        state = loader.state_dict()
    sorted(desk.data.glob("cats/*.jpg"))[0].unlink()
    loader = spdld.Loader(desk.file, address=desk.daemon.address, replace=True)
    with pytest.raises(spdld.PipelineError) as raised:
        loader.load_state_dict(state)
        next(iter(loader))
    return said(raised.value)


@mistake("A file that differs from the pipeline of its name")
def _(desk: Desk) -> str:
    desk.applied()
    return desk.loaded(desk.write(("size: 32", "size: 64")))


@mistake("A cell that runs again")
def _(desk: Desk) -> str:
    shown = spdld.Loader(desk.write(), job="nb", address=desk.daemon.address)
    next(iter(shown))
    return desk.loaded(desk.file, job="nb")


@mistake("`replace=True` for a name")
def _(desk: Desk) -> str:
    return desk.loaded("train", replace=True)


@mistake("A command that does not exist")
def _(desk: Desk) -> str:
    done = desk.daemon.ctl("describe", "job", check=False)
    return done.stderr.removeprefix("spdlctl: ")


@mistake("An option that does not exist")
def _(desk: Desk) -> str:
    done = desk.daemon.ctl("get", "jobs", "--pipline", "train", check=False)
    return done.stderr.removeprefix("spdlctl: ")


@pytest.fixture
def desk(
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    start_rank: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Desk]:
    for name in ("RANK", "WORLD_SIZE", "PETS_DIR"):
        monkeypatch.delenv(name, raising=False)
    # Where another user gets, too.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-errors-"))
    directory.chmod(0o755)
    data = directory / "pets"
    made = make_dataset(24, 2)
    for label, name in zip(made.classes, ("cats", "dogs"), strict=True):
        shutil.copytree(made.root / label, data / name)
    daemon = make_daemon(settings={"arena": {"budget": "1GiB"}})
    yield Desk(daemon, directory, data, start_rank)
    shutil.rmtree(directory)
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


def test_the_page_and_this_test_have_the_same_mistakes() -> None:
    assert [title for title, _ in ENTRY.findall(DOC)] == list(MISTAKES)
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("title", MISTAKES)
def test_the_message_is_the_one_on_the_page(title: str, desk: Desk) -> None:
    on_page = dict(ENTRY.findall(DOC)).get(title, "nothing")
    assert desk.shown(MISTAKES[title](desk)) == " ".join(on_page.split())
