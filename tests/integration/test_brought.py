# SPDX-License-Identifier: Apache-2.0
"""Pipelines that loaders bring: their variables, what takes whose place, and cells that run again."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
import spdld
from integration import test_giving_way as giving_way

Daemon = daemon_module.Daemon
ROOT = "vars: {root: /not/there, size: 16}\n"


@pytest.fixture
def images(make_dataset: Callable[..., Any], tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the dataset that the test may change."""
    return shutil.copytree(make_dataset().root, tmp_path / "images")


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """A pipeline whose default root is not there."""
    path = tmp_path / "train.yaml"
    write(path)
    return path


def write(path: pathlib.Path, batch: int = 4) -> None:
    path.write_text(
        "pipeline: train\n" + ROOT + 'source: {files: {root: "${root}", pattern: "**/*.jpg"}}\n'
        'stages: [fetch, decode_image, {resize: {size: ["${size}", "${size}"]}}]\n'
        f"batch: {{size: {batch}, last: drop, layout: NCHW}}\n"
    )


@pytest.fixture
def load(daemon: Daemon) -> Callable[..., spdld.Loader]:
    def make(pipeline: Any, **options: Any) -> spdld.Loader:
        return spdld.Loader(pipeline, address=daemon.address, **options)

    return make


def shape(loader: spdld.Loader) -> tuple[int, ...]:
    return next(iter(loader))["image"].shape


def test_the_variables_of_a_loader_are_part_of_what_it_brings(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path, daemon: Daemon
) -> None:
    with load(file, vars={"root": images}) as loader:
        assert loader.num_items == 24 and shape(loader) == (4, 3, 16, 16)
    # And of what is there after a restart.
    daemon.kill()
    daemon.start()
    with load(file, vars={"root": images}) as loader:
        assert loader.num_items == 24 and loader.pipeline_version == 1
    with load("train") as loader:
        assert loader.num_items == 24


def test_a_root_that_is_not_there_is_refused_by_its_variable(
    load: Callable[..., Any], file: pathlib.Path
) -> None:
    with pytest.raises(spdld.PipelineError, match=r"no directory /not/there .*vars=\{"):
        len(load(file))


def test_loaders_that_give_one_file_different_variables_get_what_they_gave(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path
) -> None:
    with load(file, vars={"root": images, "size": 24}) as loader:
        assert shape(loader) == (4, 3, 24, 24)
    with load(file, vars={"root": images, "size": 32}) as loader:
        assert shape(loader) == (4, 3, 32, 32)
    # What a loader leaves out is as its file has it, and not as another loader gave it.
    with load(file, vars={"root": images}) as loader:
        assert shape(loader) == (4, 3, 16, 16)
    with pytest.raises(spdld.PipelineError, match="no directory /not/there"):
        len(load(file))


def test_a_rank_that_leaves_variables_out_takes_those_of_its_job(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path
) -> None:
    first = load(file, vars={"root": images, "size": 24}, job="j", rank=0, world_size=2)
    assert shape(first) == (4, 3, 24, 24)
    with load(file, job="j", rank=1, world_size=2) as second:
        assert shape(second) == (4, 3, 24, 24)
    other = load(file, vars={"root": images, "size": 32}, job="j", rank=1, world_size=2)
    with pytest.raises(spdld.PipelineError, match="all ranks of a job must give the same vars"):
        next(iter(other))
    first.close()


def test_a_private_loader_goes_on_with_its_variables_after_a_restart(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path, daemon: Daemon
) -> None:
    with load(file, vars={"root": images, "size": 24}) as first:
        assert shape(first) == (4, 3, 24, 24)
    with load(file, vars={"root": images}) as loader:
        batches = iter(loader)
        rows = next(batches).indices.tolist()
        daemon.kill()
        daemon.start()
        for batch in batches:
            assert batch["image"].shape == (4, 3, 16, 16)
            rows += batch.indices.tolist()
    assert sorted(rows) == list(range(24))


def test_a_file_that_differs_is_refused_with_the_ways_to_have_it(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path, daemon: Daemon
) -> None:
    with load(file, vars={"root": images}) as loader:
        assert len(loader) == 6
    write(file, batch=8)
    with pytest.raises(spdld.PipelineError) as refused:
        len(load(file, vars={"root": images}))
    told = str(refused.value)
    assert "Loader(..., replace=True)" in told
    assert f"spdlctl --address {daemon.address} apply -f {file}" in told


def test_replace_puts_the_file_in_the_place_of_what_differs(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path
) -> None:
    reading = load(file, vars={"root": images}, job="old")
    batches = iter(reading)
    assert next(batches)["image"].shape[0] == 4
    write(file, batch=8)
    with load(file, vars={"root": images}, replace=True) as loader:
        assert loader.batch_size == 8 and loader.pipeline_version == 2
    # Who read the old one goes on with it.
    assert [batch["image"].shape[0] for batch in batches] == [4] * 5
    reading.close()
    with load(file, vars={"root": images}) as loader:
        assert loader.batch_size == 8 and loader.pipeline_version == 2


def test_replace_lists_the_data_anew(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path
) -> None:
    with load(file, vars={"root": images}) as loader:
        assert loader.num_items == 24
    shutil.copy(next(images.glob("*/*.jpg")), images / "class_0" / "new.jpg")
    with load(file, vars={"root": images}) as loader:
        assert loader.num_items == 24  # what was applied counts
    with load(file, vars={"root": images}, replace=True) as loader:
        assert loader.num_items == 25 and loader.pipeline_version == 2
    with load(file, vars={"root": images}, replace=True) as loader:
        assert loader.pipeline_version == 2  # nothing differs


def notices_of(loader: spdld.Loader, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the daemon warns of, read until the first warning."""
    loader.set_epoch(0)  # an earlier loader has read the same, and that is meant
    with caplog.at_level(logging.WARNING, logger="spdld"):
        while not caplog.messages:
            for _ in loader:
                pass
    return caplog.messages


def test_a_loader_says_how_many_files_are_there_by_now(
    load: Callable[..., Any],
    file: pathlib.Path,
    images: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load(file, vars={"root": images}).close()
    with load(file, vars={"root": images}) as loader:
        assert len(loader) == 6
    shutil.copy(next(images.glob("*/*.jpg")), images / "class_0" / "new.jpg")
    with load(file, vars={"root": images}) as loader:
        [told] = notices_of(loader, caplog)
        assert loader.num_items == 24
    assert f"was applied with 24 items, and goes on with them; {images} lists 25 items now" in told
    assert "Loader(..., replace=True)" in told
    caplog.clear()
    # It is told again to another loader: of the same words, once.
    with load(file, vars={"root": images}) as loader:
        assert notices_of(loader, caplog) == [told]
    caplog.clear()
    with load(file, vars={"root": images}, replace=True) as loader:
        loader.set_epoch(0)
        assert loader.num_items == 25 and len(list(loader)) == 6
    assert caplog.messages == []


def test_status_tells_of_other_files_in_the_place_of_as_many(
    load: Callable[..., Any],
    file: pathlib.Path,
    images: pathlib.Path,
    daemon: Daemon,
    wait_until: Callable[..., Any],
) -> None:
    def attach() -> None:
        # A file that is gone may fail the loader; what is told does not depend on it.
        with load(file, vars={"root": images}) as loader, contextlib.suppress(spdld.PipelineError):
            assert loader.num_items == 24

    def warnings() -> str:
        return " ".join(daemon.ctl_json("status").get("warnings", []))

    attach()
    picture = next(images.glob("*/*.jpg"))
    picture.rename(picture.with_name("renamed.jpg"))
    attach()
    wait_until(lambda: f"{images} lists 24 others now" in warnings(), "status to tell of it")
    picture.with_name("renamed.jpg").rename(picture)
    # The directory's time has changed, and its files are what was applied.
    attach()
    wait_until(lambda: warnings() == "", "the warning to go")


def test_replace_of_a_name_is_an_error(load: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="replace=True is for a pipeline's file"):
        load("train", replace=True)


def test_a_place_that_another_loader_of_this_process_holds_is_named_so(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path
) -> None:
    first = load(file, vars={"root": images}, job="nb")
    len(first)
    with pytest.raises(spdld.PipelineError, match=r"by another Loader of this process .*close"):
        len(load(file, vars={"root": images}, job="nb"))
    first.close()
    assert len(load(file, vars={"root": images}, job="nb")) == 6


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a daemon that launch=True starts; it leaves after its last loader."""
    monkeypatch.setenv("SPDLD_BIN", str(daemon_module.build_dir() / "bin/spdld"))
    parent = tempfile.mkdtemp(prefix="spdld-brought-")
    yield f"{parent}/run"
    shutil.rmtree(parent)


@pytest.mark.skipif(not giving_way.has_autogroups, reason="this kernel has no autogroups")
def test_a_launched_daemon_gives_way_though_a_shell_has_begun_its_session(
    launched: str, file: pathlib.Path, images: pathlib.Path
) -> None:
    with spdld.Loader(file, vars={"root": images}, address=launched, launch=True) as loader:
        next(iter(loader))
        pid = pathlib.Path(launched, "lock").read_text().split()[1]
        assert pathlib.Path(f"/proc/{pid}/autogroup").read_text().endswith(" nice 10\n")


def test_a_cell_that_runs_again_with_an_edited_file_reads_the_edited_one(
    launched: str, file: pathlib.Path, images: pathlib.Path
) -> None:
    def cell() -> spdld.Loader:
        return spdld.Loader(file, vars={"root": images}, address=launched, launch=True)

    loader = cell()
    kept = next(iter(loader))
    assert loader.batch_size == 4
    loader.close()
    write(file, batch=8)
    with cell() as again:
        assert again.batch_size == 8
        write(file, batch=2)
        # Somebody reads it by now.
        with pytest.raises(spdld.PipelineError, match="replace=True"):
            len(cell())
    assert kept["image"].shape == (4, 3, 16, 16)
    with spdld.Loader(
        file, vars={"root": images}, address=launched, launch=True, replace=True
    ) as replacing:
        assert replacing.batch_size == 2


def test_a_private_daemon_takes_variables_with_its_file(
    file: pathlib.Path, images: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPDLD_BIN", str(daemon_module.build_dir() / "bin/spdld"))
    with spdld.launch(file, vars={"root": images}) as server:
        with server.loader() as loader:
            assert shape(loader) == (4, 3, 16, 16)
        with server.loader(vars={"size": 24}) as loader:
            assert shape(loader) == (4, 3, 24, 24)
    with pytest.raises(ValueError, match="give launch\\(\\) its file"):
        spdld.launch(vars={"root": images})


def test_a_file_that_makes_no_batch_takes_nothings_place(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path, daemon: Daemon
) -> None:
    with load(file, vars={"root": images}) as loader:
        assert shape(loader) == (4, 3, 16, 16)
    for picture in images.rglob("*.jpg"):
        picture.write_bytes(b"no picture")
    write(file, batch=2)
    with pytest.raises(spdld.PipelineError, match="a first batch could not be made"):
        len(load(file, vars={"root": images}, replace=True))
    [known] = daemon.ctl_json("get", "pipelines")
    assert known["version"] == 1


def test_a_daemon_that_an_operator_started_keeps_what_was_applied(
    file: pathlib.Path, images: pathlib.Path, daemon: Daemon
) -> None:
    daemon.ctl("apply", "-f", file, "--var", f"root={images}")
    write(file, batch=8)
    with pytest.raises(spdld.PipelineError, match="replace=True"):
        len(spdld.Loader(file, vars={"root": images}, address=daemon.address, launch=True))


def test_ranks_that_replace_a_file_at_once_read_one_version(
    load: Callable[..., Any], file: pathlib.Path, images: pathlib.Path
) -> None:
    with load(file, vars={"root": images}) as loader:
        assert loader.pipeline_version == 1
    write(file, batch=2)
    ranks = [
        load(file, vars={"root": images}, replace=True, job="run", rank=rank, world_size=2)
        for rank in range(2)
    ]
    assert [rank.pipeline_version for rank in ranks] == [2, 2]
    for rank in ranks:
        rank.close()
