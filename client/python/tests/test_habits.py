# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
"""What a loader says of loops that begin elsewhere than a framework means."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def _with_accelerate(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", ModuleType("accelerate"))


class Skipping:
    """Reads as Accelerate's loaders do once skip_first_batches() has made them."""

    def __init__(self, loader, batches: int) -> None:
        self.loader, self.skip_batches = loader, batches

    def run(self) -> list[int]:
        return [batch.step for batch in self.loader][self.skip_batches :]


class Fitting:
    """Reads as Lightning's loops do."""

    def __init__(self, loader, overfit: float) -> None:
        self.loader, self.trainer = loader, SimpleNamespace(overfit_batches=overfit)

    def run(self) -> None:
        for _ in self.loader:
            pass


class Trainer:
    __module__ = "transformers.trainer"

    def __init__(self, loader, global_step: int) -> None:
        self.loader, self.state = loader, SimpleNamespace(global_step=global_step)

    def train(self) -> None:
        for _ in self.loader:
            pass

    def evaluation_loop(self) -> None:
        for _ in self.loader:
            pass


def test_batches_that_are_skipped_at_epoch_0_are_warned_about(start, loader, caplog) -> None:
    start()
    assert Skipping(loader(), 2).run() == [2]
    assert "the loop begins at epoch 0 again, and 2 batches of it are skipped" in caplog.text
    assert "loader.set_epoch()" in caplog.text and "load_state_dict()" in caplog.text


@pytest.mark.parametrize("epoch", [0, 1])
def test_batches_that_are_skipped_of_an_epoch_that_was_named_are_meant(
    start, loader, caplog, epoch
) -> None:
    start()
    reader = loader()
    reader.set_epoch(epoch)
    assert Skipping(reader, 2).run() == [2]
    assert not caplog.messages


def test_batches_that_a_state_has_skipped_already_are_warned_about(start, loader, caplog) -> None:
    start(steps=5)
    reader = loader()
    next(iter(reader))
    state = reader.state_dict()
    other = loader()
    other.load_state_dict(state)
    assert Skipping(other, 1).run() == [2, 3, 4]
    assert "1 batches are skipped twice: the loader is at step 1 of epoch 0" in caplog.text


def test_a_trainer_that_resumes_at_epoch_0_of_the_loader_is_warned_about(
    start, loader, caplog
) -> None:
    start()
    Trainer(loader(), 50).train()
    assert "and Trainer resumes at step 50: call loader.load_state_dict()" in caplog.text


def test_a_trainer_that_begins_and_one_that_evaluates_hear_nothing(start, loader, caplog) -> None:
    start()
    Trainer(loader(job="a"), 0).train()
    Trainer(loader(job="b"), 50).evaluation_loop()
    assert not caplog.messages


def test_overfitting_is_warned_about_once(start, loader, caplog) -> None:
    start()
    fitting = Fitting(loader(), 0.5)
    fitting.run()
    fitting.run()
    assert [message.split(",")[0] for message in caplog.messages] == [
        "overfit_batches=0.5 takes other batches in each epoch"
    ]


def test_properties_that_raise_do_not_reach_the_loop(start, loader, caplog) -> None:
    start()

    class Odd:
        @property
        def skip_batches(self) -> int:
            raise RuntimeError("no strategy is attached")

        def run(self, reader) -> None:
            for _ in reader:
                pass

    Odd().run(loader())
    assert not caplog.messages


def test_a_new_loader_that_reads_the_epochs_of_an_earlier_one_is_warned_about_once(
    start, loader, caplog
) -> None:
    start()
    with loader() as first:
        for _ in range(2):
            list(first)
    assert not caplog.messages
    for _ in range(2):
        with loader() as again:
            assert [batch.epoch for batch in again] == [0, 0, 0]
    assert caplog.messages == [
        "the loop begins at epoch 0 again, whose batches this process has read by an earlier loader of "
        "'numbers', up to the end of epoch 1: loader.set_epoch(2) goes on after it, and to keep one "
        "loader does, too"
    ]


def test_a_new_loader_of_another_job_or_place_hears_nothing(start, loader, caplog) -> None:
    start()
    with loader() as first:
        list(first)
        state = first.state_dict()
    with loader(job="another") as other:
        list(other)
    with loader() as goes_on:
        goes_on.load_state_dict(state)
        assert next(iter(goes_on)).epoch == 1
    with loader() as at_epoch:
        at_epoch.set_epoch(1)
        assert next(iter(at_epoch)).epoch == 1
    with loader(start="ledger") as by_ledger:
        next(iter(by_ledger))
    assert not caplog.messages
