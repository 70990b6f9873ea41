# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ hold together: links lead somewhere, and the ops are those that are built."""

from __future__ import annotations

import pathlib
import re
import subprocess

import daemon as daemon_module
import pytest

ROOT = daemon_module.REPOSITORY
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors_of(page: pathlib.Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    lower = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings]
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in lower}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    wrong = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            wrong.append(link)
    assert not wrong


def test_every_page_is_named_by_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {name for name in pages if f"docs/{name}" not in readme} == set()


def test_the_page_of_ops_is_what_the_program_prints() -> None:
    spdld = daemon_module.build_dir() / "bin/spdld"
    printed = subprocess.run(
        [spdld, "--print-ops"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    page = (ROOT / "docs/ops.md").read_text()
    assert printed in page, "put what 'spdld --print-ops' prints under 'Reference' in docs/ops.md"
    names = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert names == re.findall(r"^### (\w+)$", printed, re.MULTILINE), "and nothing else"
