# SPDX-License-Identifier: Apache-2.0
"""ViT-B/16 on one GPU, or on one a rank with torchrun; says how long it has waited for batches.

That is the time spent in next(). A GPU that waits behind a copy is seen by torch.profiler alone.

    python examples/gpu/train.py examples/gpu/pipeline.yaml --var root=/data/imagenet/train
    torchrun --nproc-per-node 8 examples/gpu/train.py examples/gpu/pipeline.yaml --compile ...

A daemon must run (spdld --help), and relative paths start at the pipeline's file. Pixels cross the
bus as uint8: normalisation and the change to bfloat16 are part of the model's
graph, where --compile fuses them into the first convolution's input.
"""

from __future__ import annotations

import argparse
import os
import time

import spdld
import torch
from torch import distributed, nn

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class VisionTransformer(nn.Module):
    """Dosovitskiy et al., 2021; the defaults are ViT-B/16. Takes uint8 images (N, 3, size, size)."""

    def __init__(
        self, classes: int, size: int, *, width: int = 768, layers: int = 12, patch: int = 16
    ) -> None:
        super().__init__()
        self.register_buffer("mean", 255 * torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("std", 255 * torch.tensor(STD).view(3, 1, 1))
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        block = nn.TransformerEncoderLayer(
            width, width // 64 or 1, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = (images - self.mean) / self.std
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline")
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda", help="cpu: to try the script, not to train")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    on_gpu = args.device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        raise SystemExit("this torch sees no GPU; --device cpu tries the script without one")
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    variables = dict(pair.split("=", 1) for pair in args.var)
    loader = spdld.Loader(
        args.pipeline, vars=variables, output="torch", device="cuda" if on_gpu else None
    )
    feed = iter(loader)
    batch = next(feed)
    size = batch["image"].shape[-1]
    model = VisionTransformer(
        len(loader.class_to_idx), size, width=args.width, layers=args.layers
    ).to(args.device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        distributed.init_process_group("nccl" if on_gpu else "gloo")
        model = nn.parallel.DistributedDataParallel(model)
    step = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    images = steps = 0
    waited_before = 0.0
    begun = time.perf_counter()
    while steps < args.steps:
        with torch.autocast(args.device, torch.bfloat16, enabled=on_gpu):
            scores = step(batch["image"])
            labels = batch["label"].to(args.device, non_blocking=True)
            loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        images += batch.rows
        steps += 1
        if steps == args.steps // 10:  # what is compiled, allocated and cached has been by now
            if on_gpu:
                torch.cuda.synchronize()
            begun, images = time.perf_counter(), 0
            waited_before = loader.stats()["waited_s"]
        batch = next(feed, None)
        if batch is None:  # the epoch is over
            feed = iter(loader)
            batch = next(feed)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    waited = loader.stats()["waited_s"] - waited_before
    print(
        f"{images / seconds:.0f} images/s, loss {loss.item():.3f}, waited {waited:.2f} s of"
        f" {seconds:.2f} s for batches ({100 * waited / seconds:.1f} %)"
    )
    loader.close()
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
