# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a running daemon, a small dataset, and processes that a test may kill."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import kinds
import numpy as np
import on_gpu
import pytest
import runners
import spdld
from integration import ranks
from integration.hung_mount import HungMount
from PIL import Image
from support import launchers

Daemon = daemon_module.Daemon
# Batches whose fields are all below 64 KiB are copied at hand-out; what a test wants held is larger.
LARGE = ["fetch", "decode_image", {"resize": {"size": [128, 128]}}]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in launchers.variables():
        monkeypatch.delenv(name)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], Any], str], Any]:
    return daemon_module.wait_until


def draw_texture(index: int, size: tuple[int, int]) -> Image.Image:
    """A smooth picture in which every region differs; a function of the index alone."""
    coarse = np.random.default_rng(index).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """`count` JPEGs in sorted directories, one a class; pixel values tell an image's index."""

    root: pathlib.Path
    files: list[pathlib.Path]  # in listing order: relative names, bytewise sorted
    classes: list[str]

    def label(self, index: int) -> int:
        return self.classes.index(self.files[index].parent.name)


@pytest.fixture(scope="session")
def make_dataset(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Dataset]:
    """make_dataset(count=…, classes=…, size=(w, h)): the same arguments give the same directory.

    Images are of one colour each, or with `texture` no two regions of them are alike. A test that
    changes files asks for a directory of its own, by a `name` that no other test uses.
    """
    made: dict[tuple[Any, ...], Dataset] = {}

    def make(
        count: int = 24,
        classes: int = 3,
        size: tuple[int, int] = (64, 48),
        texture: bool = False,
        name: str = "",
    ) -> Dataset:
        key = (count, classes, size, texture, name)
        if key not in made:
            root = tmp_path_factory.mktemp("dataset")
            names = [f"class_{index}" for index in range(classes)]
            for name in names:
                (root / name).mkdir()
            files = []
            for index in range(count):
                # A flat colour survives JPEG to within a unit or two.
                colour = (index * 37 % 256, index * 91 % 256, index * 53 % 256)
                path = root / names[index % classes] / f"{index:05}.jpg"
                image = draw_texture(index, size) if texture else Image.new("RGB", size, colour)
                image.save(path, quality=95)
                files.append(path)
            made[key] = Dataset(root, sorted(files, key=lambda path: os.fsencode(path)), names)
        return made[key]

    return make


@pytest.fixture
def dataset(make_dataset: Callable[..., Dataset]) -> Dataset:
    return make_dataset()


# Tests of these modules hold for every source and collate kind.
KIND_SUITES = ("test_order", "test_replicas", "test_resume", "test_sharing", "test_swap")
# Tests of these hold wherever batches are delivered to.
GPU_SUITES = (*KIND_SUITES, "test_death", "test_frontier", "test_ledger", "test_lockstep")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    drawn = zlib.crc32(metafunc.definition.nodeid.encode())
    if module in GPU_SUITES:
        generate_devices(metafunc, drawn)
    if module in KIND_SUITES:
        generate_kinds(metafunc, drawn)


def generate_devices(metafunc: pytest.Metafunc, drawn: int) -> None:
    """Such a test runs as it is written, and one in twelve on a GPU, too; with SPDLD_DEVICES=cuda all
    run there, and nowhere else (./dev test long gpu-suites)."""
    if metafunc.definition.get_closest_marker("host_only"):
        return
    if os.environ.get("SPDLD_DEVICES") == "cuda":
        chosen = ["cuda"]
    elif drawn // 7 % 12 == 0:
        chosen = ["cpu", "cuda"]
    else:
        return
    metafunc.parametrize("device", chosen, indirect=True)


def generate_kinds(metafunc: pytest.Metafunc, drawn: int) -> None:
    """Such a test runs as it is written, and here and there on one more kind; with SPDLD_KINDS=all,
    on all of them (./dev test long kinds)."""
    if "write_pipeline" not in metafunc.fixturenames or metafunc.definition.get_closest_marker(
        "files_only"
    ):
        return
    more = [kind for kind in kinds.ALL if kind != kinds.PLAIN]
    if os.environ.get("SPDLD_KINDS") == "all":
        chosen = kinds.ALL
    elif drawn % 3 == 0:
        chosen = [kinds.PLAIN, more[drawn // 3 % len(more)]]
    else:
        return
    metafunc.parametrize("kind", chosen, indirect=True, ids=str)


@pytest.fixture(autouse=True)
def device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> str:
    """Where the test's batches are delivered to: "cpu" or "cuda", which is the fake GPU."""
    device = getattr(request, "param", "cpu")
    monkeypatch.delenv(on_gpu.MODE, raising=False)
    if device == "cuda":
        if not on_gpu.library().exists():
            pytest.skip("built without the headers of the CUDA Toolkit")
        monkeypatch.setenv(on_gpu.MODE, device)
        seed = zlib.crc32(request.node.nodeid.encode()) % 1000
        for name, value in on_gpu.driver(tmp_path / "gpu-ledger", seed=seed).items():
            monkeypatch.setenv(name, value)
    return device


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> kinds.Kind:
    return getattr(request, "param", kinds.PLAIN)


@pytest.fixture
def write_pipeline(
    tmp_path: pathlib.Path, kind: kinds.Kind, device: str
) -> Callable[..., pathlib.Path]:
    """write_pipeline(dataset, name=…, **sections): a pipeline file; sections replace the default's."""

    def write(data: Dataset, name: str = "images", **sections: Any) -> pathlib.Path:
        spec: dict[str, Any] = {
            "pipeline": name,
            "seed": 7,
            "source": {
                "files": {"root": str(data.root), "pattern": "**/*.jpg", "label": "parent_dir"}
            },
            "shuffle": "global",
            "stages": ["fetch", "decode_image", {"resize": {"size": [32, 32]}}],
            "batch": {"size": 4, "last": "drop", "layout": "NCHW"},
        }
        spec.update(sections)
        if verify := os.environ.get("SPDLD_VERIFY"):  # "1/1": also by libjpeg-turbo
            spec["stages"] = [
                {stage: {"verify": verify}} if stage == "decode_image" else stage
                for stage in spec["stages"]
            ]
        spec = on_gpu.delivered(kinds.of_kind(kind, spec))
        path = tmp_path / f"{name}.yaml"
        lines = [f"{key}: {json.dumps(value)}\n" for key, value in spec.items()]
        path.write_text("".join(lines))  # JSON is YAML
        return path

    return write


@pytest.fixture
def write_version(
    write_pipeline: Callable[..., pathlib.Path], tmp_path: pathlib.Path
) -> Callable[..., pathlib.Path]:
    """As write_pipeline, but the next file of a name does not take the place of the one before."""
    numbers = itertools.count()

    def write(data: Dataset, name: str = "images", **sections: Any) -> pathlib.Path:
        written = write_pipeline(data, name, **sections)
        return written.rename(tmp_path / f"{name}-{next(numbers)}.yaml")

    return write


@pytest.fixture
def write_large_pipeline(
    write_pipeline: Callable[..., pathlib.Path],
) -> Callable[..., pathlib.Path]:
    """As write_pipeline, with images so large that a batch of two is leased and not copied."""

    def write(data: Dataset, **sections: Any) -> pathlib.Path:
        return write_pipeline(data, **{"stages": LARGE, **sections})

    return write


@pytest.fixture
def make_daemon() -> Iterator[Callable[..., Daemon]]:
    """make_daemon(pipelines=[…], settings={…}): started; its log is shown if the test fails."""
    made: list[Daemon] = []

    def make(log_to: int | None = None, **arguments: Any) -> Daemon:
        made.append(Daemon(**arguments))
        return made[-1].start(log_to)

    yield make
    for one in made:
        if "SPDLD_VERIFY" in os.environ and one.running:
            assert one.ctl_json("status")["jpeg"]["different"] == 0
        log = one.log()
        one.close()
        if log:
            print(f"--- spdld's log\n{log}", file=sys.stderr)  # captured; shown on failure


@pytest.fixture
def mount(
    make_daemon: Callable[..., Daemon], tmp_path: pathlib.Path
) -> Iterator[Callable[..., HungMount]]:
    """mount(name, source): the files of `source` at tmp_path/name; ended before any daemon is."""
    made: list[HungMount] = []

    def make(name: str, source: pathlib.Path, **options: Any) -> HungMount:
        (tmp_path / name).mkdir()
        try:
            made.append(HungMount(source, tmp_path / name, **options))
        except OSError as refused:
            pytest.skip(f"this machine does not let tests mount: {refused}")
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def pipeline() -> pathlib.Path | None:
    """The file that `daemon` serves: a module that wants one has a fixture of this name."""
    return None


@pytest.fixture
def daemon(make_daemon: Callable[..., Daemon], pipeline: pathlib.Path | None) -> Daemon:
    return make_daemon(pipelines=[] if pipeline is None else [pipeline])


@pytest.fixture
def daemon_of_code(make_daemon: Callable[..., Daemon]) -> Iterator[Daemon]:
    """One whose runners end with it."""
    made = make_daemon()
    yield made
    runners.kill_supervisors(made.address)


@pytest.fixture
def load_here(daemon: Daemon) -> Iterator[Callable[..., spdld.Loader]]:
    """load_here(pipeline, …): a loader of this process."""
    with contextlib.ExitStack() as made:
        yield lambda pipeline, **options: made.enter_context(
            spdld.Loader(pipeline, address=daemon.address, **options)
        )


@pytest.fixture
def start_rank() -> Iterator[Callable[..., ranks.Rank]]:
    """start_rank(daemon, pipeline, **loader_options): a process with a loader of its own."""
    started: list[ranks.Rank] = []

    def start(at: Daemon, pipeline: str = "images", **options: Any) -> ranks.Rank:
        started.append(ranks.Rank(pipeline=pipeline, address=at.address, **options))
        return started[-1]

    yield start
    for rank in started:
        rank.close()


@pytest.fixture
def whole_epoch(daemon: Daemon, start_rank: Callable[..., ranks.Rank]) -> list[int]:
    """The items of an epoch in its order, as one rank alone reads them."""
    reader = start_rank(daemon)
    order = ranks.indices(reader.rest_of_epoch())
    reader.do("close")
    return order


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """spawn(python_source, *arguments, env={…}): a Python process with pipes, killed afterwards.

    The process is a session of its own, so that kill_tree() ends what it forked as well.
    """
    spawned: list[subprocess.Popen[str]] = []

    def start(
        source: str, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        spawned.append(process)
        return process

    yield start
    for process in spawned:
        kill_tree(process)


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL for a spawned process and all that it forked; no chance to say good-bye."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@pytest.fixture(name="kill_tree")
def kill_tree_fixture() -> Callable[[subprocess.Popen[str]], None]:
    return kill_tree
