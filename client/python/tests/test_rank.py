# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import spdld


@pytest.fixture
def initialised(monkeypatch) -> None:
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 5,
        get_world_size=lambda: 16,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))


def placement(**options: object) -> tuple[int, int]:
    loader = spdld.Loader("x", **options)
    return loader.shard, loader.num_shards


def test_a_single_process_is_0_of_1() -> None:
    assert placement() == (0, 1)


def test_explicit_arguments_win_over_everything(initialised, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert placement(rank=3, world_size=4) == (3, 4)


def test_torch_distributed_wins_over_the_environment(initialised, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert placement(job="j") == (5, 16)


def test_what_is_not_given_comes_from_torch_distributed(initialised) -> None:
    assert placement(rank=7, job="j") == (7, 16)


def test_a_torch_that_is_not_initialised_says_nothing(monkeypatch) -> None:
    for distributed in (
        SimpleNamespace(is_available=lambda: False),
        SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False),
    ):
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
        assert placement() == (0, 1)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert placement() == (0, 1)


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ],
)
def test_launchers_say_it_by_the_environment(monkeypatch, rank, size) -> None:
    monkeypatch.setenv(rank, "2")
    monkeypatch.setenv(size, "8")
    assert placement(job="j") == (2, 8)


def test_a_world_size_without_a_rank_is_an_error(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(spdld.Error, match="WORLD_SIZE is 8, but RANK is not set"):
        spdld.Loader("x", job="j")
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(spdld.Error, match="rank"):
        spdld.Loader("x", world_size=8)


def test_shards_may_differ_from_ranks() -> None:
    assert placement(rank=3, world_size=4, shard=1, num_shards=2, job="j") == (1, 2)


def test_a_loader_says_once_which_shard_it_reads_and_by_what(monkeypatch, caplog) -> None:
    caplog.set_level("INFO", logger="spdld")
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "8")
    spdld.Loader("x", job="j")
    assert caplog.messages == ["shard 2 of 8 of job 'j', by RANK and WORLD_SIZE"]


def test_a_loader_says_that_torch_distributed_has_told_it(initialised, caplog) -> None:
    caplog.set_level("INFO", logger="spdld")
    spdld.Loader("x", job="j")
    assert caplog.messages == ["shard 5 of 16 of job 'j', by torch.distributed"]


def test_a_loader_alone_says_so(caplog) -> None:
    caplog.set_level("INFO", logger="spdld")
    spdld.Loader("x")
    assert caplog.messages == ["shard 0 of 1 of a private job, by no launcher being found"]
