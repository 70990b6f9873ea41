# SPDX-License-Identifier: Apache-2.0
"""One rank's training under a framework: `train.py FRAMEWORK loader|twin DIR`, in DIR.

"loader" runs the block of docs/frameworks.md under the framework's heading, on train.yaml. "twin"
does the same training on a plain DataLoader over twin.npz, in the order of order.json. What the model
saw goes to FRAMEWORK-SOURCE-RANK.json.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import spdld
import torch
from torch.utils.data import DataLoader

EPOCHS = 2
CLASSES = 3
DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs/frameworks.md"
HEADINGS = {
    "ddp": "torchrun and DistributedDataParallel",
    "dataloader": "torch's DataLoader",
    "default_convert": "torch's DataLoader",
    "default_collate": "torch's DataLoader",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "trainer": "Hugging Face Trainer",
}


def block_of(heading: str) -> str:
    """The first block of code under a heading of the docs."""
    section = DOCS.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


class Model(torch.nn.Module):
    """Takes an image's fields by name, as Trainer gives them, and notes what it saw."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = torch.nn.Linear(3 * 32 * 32, CLASSES)
        self.rows: list[list[float]] = []
        self.losses: list[float] = []

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = torch.nn.functional.cross_entropy(self.linear(image.flatten(1)), label)
        self.rows.extend(image[:, :, 16, 16].tolist())
        self.losses.append(loss.item())
        return {"loss": loss}


class Images(torch.utils.data.Dataset):
    """What Pillow decoded of the files that train.yaml lists."""

    def __init__(self) -> None:
        self._arrays = np.load("twin.npz")

    def __len__(self) -> int:
        return len(self._arrays["label"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self._arrays["image"][index], "label": int(self._arrays["label"][index])}


class Order(torch.utils.data.Sampler):
    """Batches of indices, epoch after epoch, as the daemon dealt them to this rank."""

    def __init__(self, rank: int) -> None:
        self._epochs = json.loads(pathlib.Path("order.json").read_text())[rank]
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._epochs[0])

    def __iter__(self) -> Any:
        batches = self._epochs[self._epoch % EPOCHS]
        self._epoch += 1
        return iter(batches)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def twin() -> DataLoader:
    return DataLoader(Images(), batch_sampler=Order(int(os.environ["RANK"])))


def train_by_hand(model: Model, run: Callable[[Callable[..., None]], None]) -> None:
    """DistributedDataParallel; run(step) calls step(image, label) for each batch."""
    torch.distributed.init_process_group("gloo")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = sgd(model)

    def step(image: torch.Tensor, label: torch.Tensor) -> None:
        optimizer.zero_grad()
        parallel(image, label)["loss"].backward()
        optimizer.step()

    run(step)


def run_block(block: str, **names: Any) -> dict[str, Any]:
    """What is defined after the block has run with these names."""
    scope = {"spdld": spdld, "torch": torch, "DataLoader": DataLoader, **names}
    exec(block, scope)
    return scope


def over_twin(step: Callable[..., None]) -> None:
    data = twin()
    for _ in range(EPOCHS):
        for batch in data:
            step(batch["image"], batch["label"])


def train_ddp(model: Model, block: str | None) -> None:
    if block is None:
        train_by_hand(model, over_twin)
    else:
        train_by_hand(model, lambda step: run_block(block, train_step=step) and None)


def train_collated(collate: Callable[[Any], Any]) -> Callable[[Model, str | None], None]:
    """As train_ddp, where what the DataLoader gives has gone through a function of torch's."""

    def train(model: Model, block: str | None) -> None:
        if block is None:
            train_by_hand(model, over_twin)
            return
        loader = functools.partial(DataLoader, collate_fn=collate)
        train_by_hand(
            model, lambda step: run_block(block, train_step=step, DataLoader=loader) and None
        )

    return train


def collate_one(batch: spdld.TorchBatch) -> spdld.TorchBatch:
    """default_collate of a list of one batch, and that one out of it again."""
    together = torch.utils.data.default_collate([batch])
    return type(together)({name: field[0] for name, field in together.items()})


def lightning_module(model: Model) -> type:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return sgd(self.model)

    return Module


def train_lightning(model: Model, block: str | None) -> None:
    import lightning

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=block is not None,  # the twin's order is each rank's already
    )
    module = lightning_module(model)()
    if block is None:
        trainer.fit(module, twin())
    else:
        run_block(block, trainer=trainer, model=module)


def train_accelerate(model: Model, block: str | None) -> None:
    import accelerate
    from accelerate.data_loader import prepare_data_loader

    accelerator = accelerate.Accelerator(cpu=True)
    parallel, optimizer = accelerator.prepare(model, sgd(model))
    data: Any = twin()
    if block is not None:
        data = run_block(block, accelerator=accelerator, prepare_data_loader=prepare_data_loader)[
            "data"
        ]
    for _ in range(EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            accelerator.backward(parallel(**batch)["loss"])
            optimizer.step()


def trainer_arguments(**options: Any) -> Any:
    import transformers

    return transformers.TrainingArguments(
        output_dir="trainer",
        num_train_epochs=EPOCHS,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        **options,
    )


def train_trainer(model: Model, block: str | None) -> None:
    import transformers

    arguments = trainer_arguments(save_strategy="no")

    class OfTwin(transformers.Trainer):
        def get_train_dataloader(self) -> DataLoader:
            return twin()

    of = OfTwin
    if block is not None:
        of = run_block(block, transformers=transformers)["Trainer"]
    of(model=model, args=arguments, optimizers=(sgd(model), None)).train()


TRAIN = {
    "ddp": train_ddp,
    "dataloader": train_ddp,
    "default_convert": train_collated(torch.utils.data.default_convert),
    "default_collate": train_collated(collate_one),
    "lightning": train_lightning,
    "accelerate": train_accelerate,
    "trainer": train_trainer,
}


def main() -> None:
    framework, source, directory = sys.argv[1:]
    os.chdir(directory)
    torch.set_num_threads(1)
    model = Model()
    TRAIN[framework](model, block_of(HEADINGS[framework]) if source == "loader" else None)
    seen = {"rows": model.rows, "losses": model.losses}
    path = pathlib.Path(f"{framework}-{source}-{os.environ['RANK']}.json")
    path.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
