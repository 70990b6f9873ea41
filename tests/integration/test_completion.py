# SPDX-License-Identifier: Apache-2.0
"""What Tab does behind spdlctl, in the shells themselves."""

from __future__ import annotations

import os
import pathlib
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest


@pytest.fixture
def pipeline(write_pipeline: Callable[..., pathlib.Path], dataset: Any) -> pathlib.Path:
    return write_pipeline(dataset)


class Shell:
    """An interactive shell on a terminal of its own, with the built spdlctl on its path."""

    def __init__(self, command: list[str], directory: pathlib.Path, address: str) -> None:
        self._terminal, theirs = os.openpty()
        path = f"{daemon_module.build_dir().resolve() / 'bin'}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env={
                **os.environ,
                "PATH": path,
                "SPDLD_ADDRESS": address,
                "TERM": "dumb",
                "HOME": str(directory),
            },
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def await_text(self, text: str) -> None:
        """Returns when the terminal has shown this; what came before is forgotten."""
        deadline = time.monotonic() + daemon_module.WATCHDOG_S
        while text not in self._seen:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._terminal], [], [], max(left, 0))
            assert ready, f"never showed {text!r}, but {self._seen!r}"
            self._seen += os.read(self._terminal, 4096).decode(errors="replace")
        self._seen = self._seen.split(text, 1)[1]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def start_shell(tmp_path: pathlib.Path, daemon: Any) -> Iterator[Callable[..., Shell]]:
    started: list[Shell] = []

    def start(*command: str) -> Shell:
        home = tmp_path / "home"
        home.mkdir()
        started.append(Shell(list(command), home, daemon.address))
        return started[-1]

    yield start
    for shell in started:
        shell.close()


# Bash's own completion, and then what it was given: words of its own line, so that readline has
# taken the line apart as it does.
RECORD = """
source <(spdlctl completion bash)
record() {
  __spdlctl_complete "$@"
  printf '%s\\n' "${COMPREPLY[@]}" >answer.new
  mv answer.new answer
}
complete -F record spdlctl
PS1='ready> '
"""


@pytest.fixture
def complete_in_bash(
    start_shell: Callable[..., Shell], tmp_path: pathlib.Path, wait_until: Callable[..., Any]
) -> Callable[[str], list[str]]:
    """complete_in_bash(line): what COMPREPLY holds after Tab behind this line."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    shell = start_shell("bash", "--norc", "--noprofile", "-i")
    home = tmp_path / "home"
    (home / "record").write_text(RECORD)
    shell.type("source ./record\n")
    shell.await_text("ready> ")
    answer = home / "answer"

    def complete(line: str) -> list[str]:
        answer.unlink(missing_ok=True)
        shell.type(f"{line}\t")
        wait_until(answer.exists, f"completions of {line!r}")
        shell.type("\x15")  # forget the line
        return [word for word in answer.read_text().splitlines() if word]

    return complete


def test_bash_completes_commands_options_and_their_choices(
    complete_in_bash: Callable[[str], list[str]],
) -> None:
    assert complete_in_bash("spdlctl ge") == ["get"]
    assert set(complete_in_bash("spdlctl get ")) >= {"jobs", "pipelines", "stages"}
    assert complete_in_bash("spdlctl get jobs --pip") == ["--pipeline"]
    assert complete_in_bash("spdlctl get pipelines -o ") == ["table", "json", "yaml"]
    assert complete_in_bash("spdlctl get nothing ") == []
    assert complete_in_bash("spdlctl dr") == ["drain"]
    assert complete_in_bash("spdlctl drain --w") == ["--wait"]
    assert complete_in_bash("spdlctl und") == ["undrain"]


def test_bash_completes_words_that_it_takes_apart(
    complete_in_bash: Callable[[str], list[str]],
) -> None:
    # Readline replaces what stands behind '=' or ':' only.
    assert complete_in_bash("spdlctl get jobs --output=") == ["table", "json"]
    assert complete_in_bash("spdlctl get jobs --output=j") == ["json"]
    assert complete_in_bash("spdlctl apply --at=st") == ["step:"]
    assert complete_in_bash("spdlctl apply --at step:") == []


def test_bash_completes_the_names_that_the_daemon_has(
    complete_in_bash: Callable[[str], list[str]], daemon: Any
) -> None:
    daemon.ctl("job", "create", "run:7", "--pipeline", "images")
    assert complete_in_bash("spdlctl consume ") == ["images"]
    assert complete_in_bash("spdlctl delete job ru") == ["run:7"]
    assert complete_in_bash("spdlctl delete job run:") == ["7"]
    assert complete_in_bash("spdlctl --address=$SPDLD_ADDRESS get jobs r") == ["run:7"]
    assert complete_in_bash("spdlctl --address /nowhere consume ") == []
    daemon.kill()
    assert complete_in_bash("spdlctl consume ") == []


def test_bash_completes_the_values_that_tune_changes(
    complete_in_bash: Callable[[str], list[str]], daemon: Any
) -> None:
    daemon.ctl("job", "create", "run", "--pipeline", "images")
    assert complete_in_bash("spdlctl tune run we") == ["weight="]
    assert complete_in_bash("spdlctl tune run weight=3 mem") == ["memory="]
    assert complete_in_bash("spdlctl tune run --reset pref") == ["prefetch"]
    assert complete_in_bash("spdlctl tune daemon arena.b") == ["arena.budget="]
    assert complete_in_bash("spdlctl tune nobody ") == []


def test_bash_shows_what_it_has_completed(start_shell: Callable[..., Shell]) -> None:
    shell = start_shell("bash", "--norc", "--noprofile", "-i")
    shell.type("touch 'a file.yaml'; source <(spdlctl completion bash); echo loa''ded\n")
    shell.await_text("loaded")
    shell.type("spdlctl get sta\t")
    shell.await_text("spdlctl get stages ")
    shell.type("\x15spdlctl apply --at st\t2/0")
    shell.await_text("--at step:2/0")
    shell.type("\x15spdlctl apply -f a\t")
    shell.await_text("apply -f a\\ file.yaml ")


def test_zsh_shows_what_it_has_completed(start_shell: Callable[..., Shell]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh")
    shell = start_shell("zsh", "-f", "-i")
    shell.type("autoload -U compinit; compinit -D -u; unset zle_bracketed_paste\n")
    shell.type("touch 'a file.yaml'; source <(spdlctl completion zsh); echo loa''ded\n")
    shell.await_text("loaded")
    shell.type("spdlctl get sta\t")
    shell.await_text("spdlctl get stages ")
    shell.type("\x15spdlctl get jobs --output=j\t")
    shell.await_text("--output=json ")
    shell.type("\x15spdlctl apply --at st\t2/0")
    shell.await_text("--at step:2/0")
    shell.type("\x15spdlctl apply -f a\t")
    shell.await_text("apply -f a\\ file.yaml ")
    shell.type("\x15spdlctl consume \t")
    shell.await_text("consume images ")
