# SPDX-License-Identifier: Apache-2.0
"""'spdlctl service' makes a daemon of the user's own, beside a stand-in for systemd's manager."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
from integration.ranks import Rank

BIN = daemon_module.build_dir() / "bin"
UNITS = ("spdld.service", "spdld-control.socket", "spdld-data.socket")
# Notes what it is told, and shows of a unit what the test has put into the file of its name. A verb
# hangs or fails where the test says so, unless it returns at once, and the unit with it.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$FAKE/calls"
if [ "$3" != --no-block ] && [ -e "$FAKE/$2" ]; then
  echo ActiveState=failed > "$FAKE/$3"
  cat "$FAKE/$2" >&2
  exit 1
fi
case $1.$2 in
  show-user.*) cat "$FAKE/user" 2>/dev/null ;;
  *.show-environment) [ ! -e "$FAKE/down" ] || { cat "$FAKE/down" >&2; exit 1; } ;;
  *.show) cat "$FAKE/$3" 2>/dev/null || echo ActiveState=inactive ;;
esac
"""


class Login:
    """A user's home, runtime directory and service manager."""

    def __init__(self) -> None:
        # Not below the test's own directory, as paths of sockets are short.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-", dir="/tmp"))
        self.units = self.directory / "home/.config/systemd/user"
        self.runtime = self.directory / "run"
        for name in ("home", "run", "bin"):
            (self.directory / name).mkdir(mode=0o700)
        for name in ("systemctl", "loginctl"):
            program = self.directory / "bin" / name
            program.write_text(SYSTEMCTL)
            program.chmod(0o755)
        self.environment = {
            "FAKE": str(self.directory),
            "HOME": str(self.directory / "home"),
            "PATH": f"{self.directory / 'bin'}:/usr/bin:/bin",
            "XDG_RUNTIME_DIR": str(self.runtime),
        }

    @property
    def own_directory(self) -> pathlib.Path:
        """Where launch=True looks."""
        program = "import spdld._launch; print(spdld._launch.own_directory())"
        environment = {**self.environment, "PYTHONPATH": str(daemon_module.build_dir() / "python")}
        python = [daemon_module.REPOSITORY / ".venv/bin/python", "-c", program]
        return pathlib.Path(subprocess.check_output(python, env=environment, text=True).strip())

    def begin(self, *arguments: str, **changes: str) -> subprocess.Popen[str]:
        """spdlctl service ARGUMENTS."""
        return subprocess.Popen(
            [BIN / "spdlctl", "service", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **changes},
        )

    def service(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        with self.begin(*arguments, **changes) as process:
            out, err = process.communicate(timeout=daemon_module.WATCHDOG_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def install(self, *arguments: str, **changes: str) -> str:
        done = self.service("install", *arguments, **changes)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str, **changes: str) -> str:
        done = self.service(*arguments, **changes)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    def hangs(self, verb: str) -> None:
        """As does the service manager for ever, from now on, once it is told that."""
        os.mkfifo(self.directory / verb)

    def fails(self, verb: str, why: str) -> None:
        """Likewise."""
        (self.directory / verb).write_text(f"{why}\n")

    def shows(self, unit: str, **properties: str) -> None:
        """What the service manager says of the unit from now on."""
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.directory / unit).write_text(text)

    def calls(self) -> list[str]:
        """What the service manager was told to do since the last time."""
        file = self.directory / "calls"
        told = [line.removeprefix("--user ") for line in file.read_text().splitlines()]
        file.unlink()
        return [each for each in told if not each.startswith("show")]


@pytest.fixture
def login() -> Iterator[Login]:
    login = Login()
    yield login
    shutil.rmtree(login.directory)


def verify(login: Login) -> str:
    """What systemd finds to complain about."""
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", *map(str, login.units.iterdir())],
        capture_output=True,
        text=True,
        env={**login.environment, "SYSTEMD_UNIT_PATH": f"{login.units}:"},
    )
    return "".join(line for line in done.stderr.splitlines(True) if "spdld" in line)


def test_installed_units_listen_where_launch_looks(login: Login) -> None:
    printed = login.install()
    assert sorted(path.name for path in login.units.iterdir()) == sorted(UNITS)
    assert verify(login) == ""
    assert login.calls() == [
        "daemon-reload",
        "enable --now spdld-control.socket spdld-data.socket",
        "try-restart spdld.service",
    ]
    assert f"export SPDLD_ADDRESS={login.own_directory}\n" in printed
    assert "loginctl enable-linger" in printed
    for name, kind in (("control", "ListenStream"), ("data", "ListenSequentialPacket")):
        text = (login.units / f"spdld-{name}.socket").read_text()
        [path] = [line for line in text.splitlines() if line.startswith(f"{kind}=")]
        path = path.replace("%t", str(login.runtime)).replace("%U", str(os.geteuid()))
        assert path == f"{kind}={login.own_directory}/{name}.sock"
        assert f"FileDescriptorName={name}\n" in text
        assert "DirectoryMode=0700\n" in text, "launch=True enters no directory that others may"


def test_verify_would_see_a_misspelt_directive(login: Login) -> None:
    login.install()
    unit = login.units / "spdld.service"
    unit.write_text(unit.read_text().replace("Restart=", "Restrat="))
    assert "Restrat" in verify(login)


def test_an_install_again_restarts_nothing(login: Login) -> None:
    login.install()
    login.calls()
    login.shows("user", Linger="yes")
    printed = login.install()
    assert "as before" in printed and "(lingering is on)" in printed
    assert login.calls() == [
        "daemon-reload",
        "enable --now spdld-control.socket spdld-data.socket",
    ]


def test_a_confined_service_is_started_at_once(login: Login) -> None:
    login.install("--confined")
    assert verify(login) == ""
    assert login.calls()[-1] == "restart spdld.service"
    state = login.directory / "home/.local/state/spdld"
    assert state.is_dir(), "what its namespace binds must be there"
    login.install("--confined")
    assert login.calls()[-1] == "start spdld.service"
    login.install()
    assert login.calls()[-1] == "try-restart spdld.service"
    assert "PrivateUsers=" not in (login.units / "spdld.service").read_text()


TAKEN_BACK = [
    "reset-failed spdld.service",
    "disable spdld-control.socket spdld-data.socket",
    "stop --no-block spdld.service spdld-control.socket spdld-data.socket",
    "daemon-reload",
]


def test_a_system_that_forbids_confinement_is_told_of(login: Login) -> None:
    login.fails("restart", "Job for spdld.service failed")
    said = login.refused("install", "--confined")
    assert "'systemctl --user restart spdld.service' failed: Job for spdld.service failed" in said
    assert "user namespaces, which some systems forbid" in said
    assert "; its units are removed again\n" in said
    assert login.calls()[-5:] == ["restart spdld.service", *TAKEN_BACK]
    assert list(login.units.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--confined"]], ids=["plain", "confined"])
def test_sockets_that_cannot_listen_are_taken_back(login: Login, options: list[str]) -> None:
    login.fails("enable", "Job for spdld-data.socket failed")
    said = login.refused("install", *options)
    assert "failed: Job for spdld-data.socket failed; its units are removed again\n" in said
    assert login.calls()[-4:] == TAKEN_BACK
    assert list(login.units.iterdir()) == []


def test_a_start_that_hangs_is_not_waited_for_longer_than_said(login: Login) -> None:
    login.hangs("restart")
    said = login.refused("--timeout", "2", "install", "--confined")
    assert said.startswith("waits up to 2 s for spdld.service to be ready: it reads the files")
    assert "'systemctl --user restart spdld.service' has not ended in 2 s (--timeout): " in said
    assert "data of new ones, which may not answer" in said
    assert "user namespaces" not in said
    assert "; its units are removed again\n" in said
    assert login.calls()[-4:] == TAKEN_BACK
    assert list(login.units.iterdir()) == []


@pytest.mark.parametrize("verb", ["hangs", "fails"])
@pytest.mark.parametrize(
    ("options", "start"),
    [([], "try-restart"), (["--confined"], "restart")],
    ids=["plain", "confined"],
)
def test_an_install_that_fails_brings_back_the_units_before(
    login: Login, options: list[str], start: str, verb: str
) -> None:
    config = login.directory / "my.yaml"
    config.write_text("{}")
    login.install("--config", str(config))
    before = {unit: unit.read_text() for unit in login.units.iterdir()}
    for unit in UNITS:
        login.shows(unit, ActiveState="active", UnitFileState="enabled")
    login.calls()
    if verb == "hangs":
        login.hangs(start)
    else:
        login.fails(start, "Job for spdld.service failed")
    said = login.refused("--timeout", "1", "install", *options)
    assert "; the units are as before again, and the service is started anew with them\n" in said
    assert {unit: unit.read_text() for unit in login.units.iterdir()} == before
    assert login.calls()[-4:] == [
        f"{start} spdld.service",
        "reset-failed spdld.service",
        "daemon-reload",
        "restart --no-block spdld.service",
    ]


def test_a_service_that_still_runs_is_not_restarted(login: Login) -> None:
    login.install()
    for unit in UNITS:
        login.shows(unit, ActiveState="active", UnitFileState="enabled")
    login.fails("enable", "Access denied")
    assert "; the units are as before again\n" in login.refused("install", "--confined")
    assert login.calls()[-1] == "daemon-reload"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_install_that_is_interrupted_is_taken_back(
    login: Login, wait_until: Callable[..., Any], number: signal.Signals
) -> None:
    login.hangs("restart")
    with login.begin("install", "--confined") as install:
        calls = login.directory / "calls"
        wait_until(lambda: calls.exists() and "restart" in calls.read_text(), "the start")
        install.send_signal(number)
        _, said = install.communicate(timeout=daemon_module.WATCHDOG_S)
    assert install.returncode == 1
    assert "restart spdld.service' was interrupted" in said
    assert "; its units are removed again\n" in said
    assert list(login.units.iterdir()) == []


def test_what_cannot_be_taken_back_is_said(login: Login) -> None:
    login.fails("restart", "Job for spdld.service failed")
    login.fails("disable", "Connection reset")
    said = login.refused("install", "--confined")
    assert "; its units are not all taken back, as 'systemctl --user disable" in said
    assert "failed: Connection reset: 'spdlctl service remove' does it\n" in said


def test_a_check_of_the_configuration_that_hangs_installs_nothing(login: Login) -> None:
    program = login.directory / "spdld"
    program.write_text('#!/bin/sh\ncat "$FAKE/check"\n')
    program.chmod(0o755)
    login.hangs("check")
    config = login.directory / "my.yaml"
    config.write_text("{}")
    said = login.refused(
        "--timeout", "2", "install", "--config", str(config), SPDLD_BIN=str(program)
    )
    assert said.startswith(f"waits up to 2 s for the check of {config} ")
    assert "--check' has not ended in 2 s (--timeout): a file may lie on storage that" in said
    assert not login.units.exists()


def test_the_service_names_the_program_that_it_was_installed_with(login: Login) -> None:
    other = login.directory / "my env 100%/spdld"
    other.parent.mkdir()
    shutil.copy("/bin/true", other)
    config = login.directory / "my.yaml"
    config.write_text("{}")
    login.install()
    assert f'ExecStart="{BIN.resolve()}/spdld" --set' in (login.units / UNITS[0]).read_text()
    login.install("--config", str(config), SPDLD_BIN=os.path.relpath(other))
    text = (login.units / UNITS[0]).read_text()
    escaped = str(other).replace("%", "%%")
    assert f'ExecStart="{escaped}" --config "{config}" --set' in text
    assert verify(login) == ""
    assert "there is no program /nowhere/spdld" in login.refused(
        "install", SPDLD_BIN="/nowhere/spdld"
    )


def test_a_configuration_that_the_daemon_refuses_is_not_installed(login: Login) -> None:
    config = login.directory / "my.yaml"
    config.write_text("executr: {}")
    done = login.service("install", "--config", str(config))
    assert done.returncode == 2
    assert "the service would not start" in done.stderr and "executr" in done.stderr
    assert not login.units.exists()


def test_units_lie_in_the_users_configuration(login: Login) -> None:
    login.install(XDG_CONFIG_HOME=str(login.directory / "other"))
    assert not login.units.exists()
    assert (login.directory / "other/systemd/user/spdld.service").exists()


@pytest.mark.parametrize("command", ["install", "remove"])
def test_an_edited_unit_is_kept_unless_forced(login: Login, command: str) -> None:
    login.install()
    unit = login.units / "spdld-data.socket"
    unit.write_text(edited := unit.read_text() + "Backlog=1\n")
    said = login.refused(command)
    assert f"{unit} is edited: move it away, or say --force" in said
    assert unit.read_text() == edited
    assert login.service(command, "--force").returncode == 0
    assert unit.exists() == (command == "install")
    assert command == "remove" or unit.read_text() == edited.removesuffix("Backlog=1\n")


@pytest.mark.parametrize("command", ["install", "remove"])
def test_somebody_elses_unit_is_kept_unless_forced(login: Login, command: str) -> None:
    login.units.mkdir(parents=True)
    unit = login.units / "spdld.service"
    unit.symlink_to("/dev/null")
    assert f"{unit} is not of 'spdlctl service'" in login.refused(command)
    assert unit.is_symlink()
    assert login.calls() == []
    assert login.service(command, "--force").returncode == 0
    assert not unit.is_symlink()


def test_a_login_without_a_manager_is_led_to_launch(login: Login) -> None:
    way_out = "launch=True) starts a daemon when it needs one"
    for command in ("install", "status", "remove"):
        said = login.refused(command, XDG_RUNTIME_DIR="")
        assert "$XDG_RUNTIME_DIR is not set" in said and way_out in said
        assert way_out in login.refused(command, XDG_RUNTIME_DIR="/nowhere")
    (login.directory / "down").write_text("Failed to connect to bus\n")
    said = login.refused("install")
    assert "no user manager of systemd answers here: Failed to connect to bus; " in said
    assert way_out in said
    said = login.refused("install", PATH=str(login.directory))
    assert "there is no systemd here" in said and way_out in said
    assert not login.units.exists()


def test_a_home_that_cannot_be_written_is_named(login: Login) -> None:
    said = login.refused("install", XDG_CONFIG_HOME="/proc/nothing")
    assert "cannot write /proc/nothing/systemd/user: " in said


@pytest.fixture
def own_daemon(login: Login) -> Iterator[daemon_module.Daemon]:
    """One that serves where the user's service would."""
    with daemon_module.Daemon() as daemon:
        daemon.runtime_dir = login.own_directory
        daemon.runtime_dir.mkdir(mode=0o700)
        daemon.configure(pipelines=[], settings={})
        yield daemon


def test_no_service_is_put_over_a_daemon_that_was_launched(
    login: Login, own_daemon: daemon_module.Daemon
) -> None:
    own_daemon.start()
    assert f"serves in {login.own_directory}" in login.refused("install")
    assert not login.units.exists()
    # Once it is the unit's, it is left to systemd.
    login.shows("spdld-data.socket", ActiveState="active")
    login.install()


def test_a_removal_says_first_what_becomes_of_ranks(
    login: Login,
    own_daemon: daemon_module.Daemon,
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    start_rank: Callable[..., Rank],
) -> None:
    own_daemon.configure(pipelines=[write_pipeline(make_dataset())], settings={})
    own_daemon.start()
    login.shows("spdld-data.socket", ActiveState="active")
    login.shows("spdld.service", ActiveState="active", MainPID=str(own_daemon.pid))
    login.install()
    login.calls()
    rank = start_rank(own_daemon, job="run", rank=0, world_size=1)
    rank.take(1)
    done = login.service("remove", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        "1 rank reads from it: those that bring a file and have launch=True"
    )
    assert json.loads(done.stdout)["readers"] == 1
    assert login.calls() == [
        "disable --now spdld.service spdld-control.socket spdld-data.socket",
        "daemon-reload",
    ]
    assert list(login.units.iterdir()) == []
    assert "nothing to remove" in login.refused("remove")


def test_status_says_what_runs_and_whom_clients_find(login: Login) -> None:
    assert "'spdlctl service install' writes it" in login.refused("status")
    login.install()
    program = f"{BIN.resolve()}/spdld"
    login.shows(
        "spdld.service", ActiveState="inactive", ExecStart=f"{{ path={program} ; argv[]=x }}"
    )
    for name in ("spdld-control.socket", "spdld-data.socket"):
        login.shows(name, ActiveState="active")
    facts = json.loads(login.service("status", "-o", "json").stdout)
    assert facts == {
        "unit": str(login.units / "spdld.service"),
        "file": "as installed",
        "program": program,
        "program_there": True,
        "address": str(login.own_directory),
        "found_by_launch": str(login.own_directory),
        "listens": True,
        "service": "inactive",
        "lingers": False,
    }
    login.shows(
        "spdld.service",
        ActiveState="active",
        MainPID="42",
        ExecStart="{ path=/gone/spdld ; argv[]=x }",
    )
    login.shows("spdld-data.socket", ActiveState="failed")
    printed = login.service("status").stdout
    assert "program  /gone/spdld, which is not there any more" in printed
    assert f"listens  not in {login.own_directory}\n" in printed
    assert "service  active, pid 42\n" in printed
    assert f"export SPDLD_ADDRESS={login.own_directory}" in printed
