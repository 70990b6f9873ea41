# SPDX-License-Identifier: Apache-2.0
"""One rank of a small training run: PyTorch on the CPU, batches from a running spdld.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 train.py PIPELINE JOB EPOCHS

Nothing in it knows how images are found, decoded or shuffled: that is the pipeline's business.
"""

from __future__ import annotations

import sys
import time

import spdld
import torch
from torch import distributed, nn


def make_model(classes: int) -> nn.Module:
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    return nn.Sequential(
        block(3, 16),
        block(16, 32),
        block(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def main(pipeline: str, job: str, epochs: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the cores are the daemon's and the other rank's too
    distributed.init_process_group("gloo")
    rank, world_size = distributed.get_rank(), distributed.get_world_size()

    # Rank and world size are those of torch.distributed.
    loader = spdld.Loader(pipeline, job=job, output="torch")
    model = nn.parallel.DistributedDataParallel(make_model(len(loader.class_to_idx)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    for epoch in range(epochs):
        images = correct = 0
        waits: list[float] = []
        begun = asked = time.perf_counter()
        for batch in loader:
            waits.append(time.perf_counter() - asked)
            x, y = batch["image"], batch["label"]
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            images += batch.rows
            correct += int((scores.argmax(1) == y).sum())
            asked = time.perf_counter()
        seconds = time.perf_counter() - begun

        sums = torch.tensor([images, correct], dtype=torch.float64)
        distributed.all_reduce(sums)
        if rank == 0:
            total, right = sums.tolist()
            print(
                f"epoch {epoch}: {total / seconds:6.0f} images/s with {world_size} ranks,"
                f" accuracy {right / total:.2f}, {len(waits)} steps,"
                f" waited {1000 * sum(waits) / len(waits):.1f} ms a step"
                f" (the longest {1000 * max(waits):.0f} ms)",
                flush=True,
            )
    loader.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
