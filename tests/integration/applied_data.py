# SPDX-License-Identifier: Apache-2.0
"""A rank that can lose its connection, and a dataset that can be changed and put back."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import stat
import sys
from typing import Any

from PIL import Image

if __package__:
    from integration import ranks
else:  # as the program of a rank
    import ranks

CLASSES, EACH = 6, 10
ITEMS = CLASSES * EACH


class Served(ranks.Served):
    """As every rank, and told to lose its connection."""

    def do_hang_up(self) -> dict[str, Any]:
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            with contextlib.suppress(OSError):
                if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                    continue
                with socket.socket(fileno=os.dup(fd)) as end:
                    if end.type == socket.SOCK_SEQPACKET:
                        end.shutdown(socket.SHUT_RDWR)
        return {}


class Rank(ranks.Rank):
    program = __file__


def label_of(index: int) -> int:
    """The class of an item of the dataset that was applied: classes have EACH items, in order."""
    return index // EACH


class Data:
    """CLASSES directories of EACH images, and five ways to change them; restore() undoes each."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self._aside = root.parent / (root.name + "-aside")
        for label in range(CLASSES):
            (root / f"class_{label}").mkdir(parents=True)
            for number in range(EACH):
                self.draw(f"class_{label}/{number:02}.jpg", grey=100)

    def draw(self, name: str, grey: int) -> None:
        Image.new("RGB", (16, 16), (grey, grey, grey)).save(self.root / name)

    def remove_files(self) -> None:
        shutil.copytree(self.root, self._aside)
        for number in range(0, EACH, 2):
            (self.root / f"class_3/{number:02}.jpg").unlink()

    def add_files(self) -> None:
        (self.root / "aaa_first").mkdir()
        self.draw("aaa_first/00.jpg", grey=50)
        self.draw("class_2/05a.jpg", grey=50)

    def replace_files(self) -> None:
        for number in range(EACH):
            (self.root / f"class_3/{number:02}.jpg").unlink()
            self.draw(f"class_3/{number:02}.jpg", grey=200)

    def remove_classes(self) -> None:
        shutil.copytree(self.root, self._aside)
        for label in (1, 3):
            shutil.rmtree(self.root / f"class_{label}")

    def swap_root(self) -> None:
        self.root.rename(self._aside)
        self.root.mkdir()
        shutil.copytree(self._aside / "class_0", self.root / "class_0")
        (self.root / "aaa_first").mkdir()
        self.draw("aaa_first/00.jpg", grey=50)

    def restore(self) -> None:
        """By a copy, as from a backup: the same names in other directories."""
        shutil.rmtree(self.root)
        shutil.copytree(self._aside, self.root)


if __name__ == "__main__":
    Served(json.loads(sys.argv[1])).serve()
