# SPDX-License-Identifier: Apache-2.0
"""What users might write: the functions that `python` stages and DataLoader's workers call."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else it asks the network at its import

HOLE = (56, 56)  # pixels, least and most
_chain = None


def train(root: str) -> Any:
    """torchvision's ImageFolder with transforms of v2, as its users have it."""
    import torch
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    chain = [v2.ToImage(), v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
    return ImageFolder(root, v2.Compose([*chain, v2.ToDtype(torch.float32, scale=True)]))


def same(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x


def same_unkeyed(x: np.ndarray) -> np.ndarray:
    """Without `rng`: all generators that it might draw from are seeded for it."""
    return x


def augment(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """albumentations, about as dear as decoding the JPEG."""
    global _chain
    if _chain is None:
        import albumentations
        import cv2

        cv2.setNumThreads(0)  # there are as many processes as cores
        _chain = albumentations.Compose(
            [
                albumentations.HorizontalFlip(p=0.5),
                albumentations.Affine(rotate=(-15, 15), scale=(0.9, 1.1), p=1),
                albumentations.RandomBrightnessContrast(p=1),
                albumentations.CoarseDropout(
                    num_holes_range=(1, 1), hole_height_range=HOLE, hole_width_range=HOLE, p=1
                ),
            ]
        )
    _chain.set_random_state(rng, random.Random(int(rng.integers(1 << 62))))
    return _chain(image=image)["image"]
