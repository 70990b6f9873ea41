# SPDX-License-Identifier: Apache-2.0
"""One rank of a run that is interrupted, resumed or evaluated: `resume.py FRAMEWORK PHASE DIR`, in DIR.

PHASE is "whole" (two epochs of train.yaml), "part" (that, up to the step that is saved), "rest" (what
follows it, by the blocks of docs/frameworks.md), "naive" (the same without a word to the loader),
"evaluate" (val.yaml, twice), or one of Lightning's habits. What the model saw and what the logger
"spdld" said goes to FRAMEWORK-PHASE-RANK.json.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import spdld
import torch
from train import DOCS, EPOCHS, Model, lightning_module, run_block, sgd, trainer_arguments

SAVED_STEP = 4  # the first one of the second epoch is behind it


class Stop(Exception):  # noqa: N818 - no error
    """The run is killed."""


def blocks_of(heading: str) -> list[str]:
    """All blocks of code under a heading of the docs."""
    section = DOCS.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def predict(image: torch.Tensor) -> torch.Tensor:
    """Right for the images whose red is above the middle."""
    return (image[:, 0, 16, 16] > 0).long()


class Accelerate:
    def __init__(self, model: Model) -> None:
        import accelerate
        from accelerate import data_loader

        self.accelerator = accelerate.Accelerator(cpu=True)
        self.names = {
            "accelerator": self.accelerator,
            "prepare_data_loader": data_loader.prepare_data_loader,
            "alone": {"num_processes": 1, "process_index": 0, "dispatch_batches": False},
            "predict": predict,
        }
        self.model, self.optimizer = self.accelerator.prepare(model, sgd(model))

    def train(self, phase: str) -> None:
        import accelerate

        loader = spdld.Loader("train.yaml", output="torch", job=phase)
        if phase == "rest":
            loader.load_state_dict(torch.load("loader.pt"))
        steps = itertools.count(1)

        def train_step(image: torch.Tensor, label: torch.Tensor) -> None:
            self.optimizer.zero_grad()
            self.accelerator.backward(self.model(image, label)["loss"])
            self.optimizer.step()

        def is_time_to_save() -> bool:
            step = next(steps)
            if phase == "part" and step > SAVED_STEP:
                raise Stop
            return phase == "part" and step == SAVED_STEP

        names = dict(self.names, loader=loader)
        names.update(train_step=train_step, is_time_to_save=is_time_to_save)
        block = blocks_of("Resuming")[0]
        if phase == "naive":
            data = run_block(block.split("for batch")[0], **names)["data"]
            for batch in accelerate.skip_first_batches(data, 1):
                train_step(batch["image"], batch["label"])
            return
        for _ in range(EPOCHS - (phase == "rest")):
            run_block(block, **names)

    def evaluate(self) -> list[tuple[int, int]]:
        found = []
        for _ in range(2):
            counted = run_block(blocks_of("Evaluation")[0], **self.names)
            found.append((counted["right"], counted["rows"]))
            counted["val"].close()  # two of a process cannot read one shard
        return found


class Trainer:
    def __init__(self, model: Model) -> None:
        self.model = model

    def train(self, phase: str) -> None:
        import transformers

        loader = spdld.Loader("train.yaml", output="torch", job=phase)
        block = re.findall(r"class Trainer\(.*?(?=```)", DOCS.read_text(), re.DOTALL)[0]
        kind = run_block(block, transformers=transformers, loader=loader)["Trainer"]
        save = run_block(blocks_of("Resuming")[1], transformers=transformers, loader=loader)
        checkpoint = f"trainer/checkpoint-{SAVED_STEP}"
        options: dict[str, Any] = {"save_strategy": "no"}
        if phase == "part":
            options = {"max_steps": SAVED_STEP, "save_steps": SAVED_STEP}
        if phase == "rest":
            options["ignore_data_skip"] = True
            loader.load_state_dict(torch.load(f"{checkpoint}/loader.pt"))
        kind(
            model=self.model,
            args=trainer_arguments(label_names=["label"], **options),
            callbacks=[save["SaveLoader"]()],
        ).train(resume_from_checkpoint=checkpoint if phase in ("rest", "naive") else None)

    def evaluate(self) -> list[tuple[int, int]]:
        import transformers

        found = []

        def count(told: transformers.EvalPrediction) -> dict[str, float]:
            there = told.label_ids != -100
            right = (told.predictions == told.label_ids) & there
            found.append((int(right.sum()), int(there.sum())))
            return {}

        kind = run_block(blocks_of("Evaluation")[1], transformers=transformers)["Evaluating"]
        guess = Guessing()
        trainer = kind(
            model=guess,
            args=trainer_arguments(label_names=["label"], save_strategy="no"),
            compute_metrics=count,
        )
        for _ in range(2):
            trainer.evaluate()
        return found


class Guessing(torch.nn.Module):
    """Gives Trainer predict()'s classes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        guess = predict(image)
        return {"loss": self.weight.sum(), "logits": guess}


class Lightning:
    def __init__(self, model: Model) -> None:
        self.module = lightning_module(model)

    def _trainer(self, **options: Any) -> Any:
        import lightning

        return lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing="callbacks" in options,
            **{"max_epochs": EPOCHS, **options},
        )

    def train(self, phase: str) -> None:
        from lightning.pytorch.callbacks import ModelCheckpoint

        options: dict[str, Any] = {}
        checkpoint = None
        if phase == "part":
            save = ModelCheckpoint(
                dirpath=".", filename="saved", every_n_train_steps=SAVED_STEP, save_top_k=-1
            )
            options = {"max_steps": SAVED_STEP, "callbacks": [save]}
        elif phase == "rest":
            checkpoint = "saved.ckpt"
        elif phase == "overfit":
            options = {"overfit_batches": 1}
        elif phase == "reload":
            options = {"reload_dataloaders_every_n_epochs": 1}

        class Reloading(self.module):
            def train_dataloader(self) -> spdld.Loader:
                # The one before is let go of: two of a process cannot read one shard.
                made = spdld.Loader("train.yaml", output="torch", job=phase)
                if hasattr(self, "made"):
                    self.made.close()
                self.made = made
                return made

        trainer = self._trainer(**options)
        if phase == "reload":
            trainer.fit(Reloading())
            return
        loader = spdld.Loader("train.yaml", output="torch", job=phase)
        run_block(
            blocks_of("Resuming")[2],
            trainer=trainer,
            model=self.module(),
            loader=loader,
            checkpoint=checkpoint,
        )

    def evaluate(self) -> list[tuple[int, int]]:
        block = blocks_of("Evaluation")[2]
        module = run_block(block, Module=self.module, predict=predict)["Validating"]()
        trainer = self._trainer()
        loader = spdld.Loader("val.yaml", output="torch")
        found = []
        for _ in range(2):
            (told,) = trainer.validate(module, loader, verbose=False)
            found.append((int(told["right"]), int(told["rows"])))
        return found


FRAMEWORKS: dict[str, Callable[[Model], Any]] = {
    "accelerate": Accelerate,
    "trainer": Trainer,
    "lightning": Lightning,
}


def main() -> None:
    framework, phase, directory = sys.argv[1:]
    os.chdir(directory)
    torch.set_num_threads(1)
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("spdld").addHandler(handler)
    model = Model()
    run = FRAMEWORKS[framework](model)
    counted = []
    if phase == "evaluate":
        counted = run.evaluate()
    else:
        with contextlib.suppress(Stop):
            run.train(phase)
    seen = {"rows": model.rows, "told": told, "counted": counted}
    path = pathlib.Path(f"{framework}-{phase}-{os.environ['RANK']}.json")
    path.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
