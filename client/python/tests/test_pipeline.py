# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

from pathlib import Path

import pytest
import spdld
from spdld import _pipeline


@pytest.mark.parametrize(
    "name", ["imagenet-train", "a.b_c-1", "/train", "alice/train", "1000/train"]
)
def test_a_name_is_sent_as_it_is(name) -> None:
    assert _pipeline.read(name) == _pipeline.Pipeline(name)


@pytest.mark.parametrize(
    "path",
    ["train.yaml", "a/b.yml", "./train", "../train", "/etc/passwd", "/etc/no/train", Path("t")],
)
def test_what_looks_like_a_path_is_one(path) -> None:
    assert _pipeline.is_file(path)


@pytest.mark.parametrize(
    "line",
    ["pipeline: train", "pipeline:   train  # why", "pipeline: 'train'", 'pipeline: "train"'],
)
def test_the_name_of_a_file_is_its_pipeline_line(tmp_path, line) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f"# a comment\nseed: 1\n{line}\nsource:\n  pipeline: inner\n")
    assert _pipeline.read(path).name == "train"


@pytest.mark.parametrize("text", ["", "source:\n  pipeline: inner\n", "pipeline: [a]\n"])
def test_a_file_without_a_name_is_refused(tmp_path, text) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(spdld.PipelineError, match="no line 'pipeline: NAME'"):
        _pipeline.read(path)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(spdld.PipelineError, match=r"none.yaml: No such file"):
        spdld.Loader(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"pipeline: x\n\xff\xfe")
    with pytest.raises(spdld.PipelineError, match="not UTF-8"):
        _pipeline.read(path)


def test_a_file_that_cannot_be_sent_is_refused(tmp_path) -> None:
    path = tmp_path / "p.yaml"
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(spdld.PipelineError, match="at most 16777216"):
        _pipeline.read(path)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        spdld.Loader("")


def test_environment_names_that_are_not_set_are_left_to_the_daemons_message(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("SET", "1")
    monkeypatch.delenv("UNSET", raising=False)
    path = tmp_path / "p.yaml"
    path.write_text("pipeline: x\nvars: {a: '${env:SET}', b: '${env:UNSET}'}\n")
    assert _pipeline.read(path).env == {"SET": "1"}


def test_vars_are_written_as_yaml_scalars() -> None:
    values = {"a": 1, "b": 0.25, "c": True, "d": None, "e": "text", "f": Path("/x")}
    assert _pipeline.vars_as_text(values) == {
        "a": "1",
        "b": "0.25",
        "c": "true",
        "d": "null",
        "e": "text",
        "f": "/x",
    }
    assert _pipeline.vars_as_text(None) == {}


@pytest.mark.parametrize("values", [{"a": [1]}, {"a": {}}, {1: "a"}])
def test_vars_that_are_no_scalars_are_type_errors(values) -> None:
    with pytest.raises(TypeError, match="vars"):
        spdld.Loader("x", vars=values)
