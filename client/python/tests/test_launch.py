# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
"""Starting daemons: who starts one, where, and what is left. A stand-in plays the daemon."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import spdld
from spdld import _launch

_BINARY = Path(__file__).with_name("fake_binary.py")


@pytest.fixture
def notes(tmp_path, monkeypatch) -> Path:
    """What the stand-ins noted, one file for each; they end with the test."""
    directory = tmp_path / "notes"
    directory.mkdir()
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("SPDLD_BIN", str(_BINARY))
    monkeypatch.setenv("FAKE_SPDLD_NOTES", str(directory))
    monkeypatch.setattr(_launch, "SYSTEM_DIRECTORY", str(tmp_path / "system"))
    yield directory
    for note in directory.iterdir():
        end(int(note.name))


def end(pid: int, how: int = signal.SIGKILL) -> None:
    """Ends a process that is nobody's child, and waits until it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(fd, how)
        wait_ended(fd)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def wait_ended(pidfd: int) -> None:
    assert select.select([pidfd], [], [], 20)[0], "it did not end"


def only_note(notes: Path) -> dict:
    (note,) = notes.iterdir()
    return {"pid": int(note.name), **json.loads(note.read_text())}


def test_a_daemon_is_started_where_none_answers(notes) -> None:
    directory = _launch.own_directory()
    _launch.ensure(directory)
    assert _launch.answers(directory)
    note = only_note(notes)
    assert note["settings"] == {
        "runtime_dir": str(directory),
        "state_dir": str(directory / "state"),
        "pipelines": [],
    }
    assert note["exit_when_idle"] == 2 and note["own_runtime_dir"] and not note["parent_fd"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "spdld.log").stat().st_mode) == 0o600


def test_a_daemon_that_answers_is_left_alone(notes) -> None:
    directory = _launch.own_directory()
    for _ in range(3):
        _launch.ensure(directory)
    only_note(notes)


def test_a_started_daemon_has_its_own_session_and_is_nobodys_child(notes) -> None:
    _launch.ensure(_launch.own_directory())
    note = only_note(notes)
    assert note["session"] != os.getsid(0) and note["cwd"] == "/"
    with pytest.raises(ChildProcessError):
        os.waitpid(note["pid"], os.WNOHANG)


def test_a_started_daemon_has_all_cores_and_its_starter_keeps_its_own(notes) -> None:
    everything = os.sched_getaffinity(0)
    one = {min(everything)}
    os.sched_setaffinity(0, one)
    try:
        _launch.ensure(_launch.own_directory())
        assert os.sched_getaffinity(0) == one
    finally:
        os.sched_setaffinity(0, everything)
    assert set(only_note(notes)["affinity"]) >= everything


def test_a_service_managers_words_to_the_trainer_are_not_passed_on(notes, monkeypatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.setenv("KEPT", "1")
    _launch.ensure(_launch.own_directory())
    environment = only_note(notes)["environment"]
    assert "KEPT" in environment
    assert not {"NOTIFY_SOCKET", "LISTEN_FDS"} & set(environment)


def test_ranks_that_come_at_once_start_one_daemon(notes) -> None:
    code = "from spdld import _launch; _launch.ensure(_launch.own_directory()); print('up')"
    ranks = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert [rank.communicate()[0] for rank in ranks] == ["up\n"] * 6
    only_note(notes)


def test_a_killed_daemons_directory_is_taken_over(notes) -> None:
    directory = _launch.own_directory()
    _launch.ensure(directory)
    first = only_note(notes)["pid"]
    end(first)
    assert (directory / "data.sock").exists() and not _launch.answers(directory)
    _launch.ensure(directory)
    assert _launch.answers(directory)
    assert len(list(notes.iterdir())) == 2


def test_a_daemon_that_left_is_started_again(notes) -> None:
    directory = _launch.own_directory()
    _launch.ensure(directory)
    end(only_note(notes)["pid"], signal.SIGTERM)
    assert not directory.exists()
    _launch.ensure(directory)
    assert _launch.answers(directory)


def test_a_daemon_that_does_not_come_up_is_an_error_with_its_words(notes, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_SPDLD", "fail")
    with pytest.raises(spdld.ConnectionError, match="7 bytes are too few"):
        _launch.ensure(_launch.own_directory())


def test_a_daemon_that_never_listens_is_ended_and_an_error(notes, monkeypatch) -> None:
    spawned: list[int] = []
    spawn = _launch._spawn_detached

    def note_pid(*arguments: object) -> tuple[int, int]:
        pid, alive_fd = spawn(*arguments)
        spawned.append(os.pidfd_open(pid))
        return pid, alive_fd

    monkeypatch.setattr(_launch, "_spawn_detached", note_pid)
    monkeypatch.setenv("FAKE_SPDLD", "mute")
    monkeypatch.setattr(_launch, "_START_SECONDS", 0.1)
    with pytest.raises(spdld.ConnectionError, match="did not come up"):
        _launch.ensure(_launch.own_directory())
    (pidfd,) = spawned
    wait_ended(pidfd)
    os.close(pidfd)


def test_a_directory_that_others_may_enter_is_not_used(notes) -> None:
    directory = _launch.own_directory()
    directory.mkdir(mode=0o755)
    with pytest.raises(spdld.ConnectionError, match="mode 0755"):
        _launch.ensure(directory)
    assert list(notes.iterdir()) == []


def test_a_directory_of_somebody_else_is_not_used(notes, monkeypatch) -> None:
    directory = _launch.own_directory()
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(spdld.ConnectionError, match=f"belongs to uid {os.getuid()}"):
        _launch.ensure(directory)


def test_a_link_in_the_directorys_place_is_not_followed(notes, tmp_path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    _launch.own_directory().symlink_to(target)
    with pytest.raises(spdld.ConnectionError, match="a link or a file"):
        _launch.ensure(_launch.own_directory())
    assert list(target.iterdir()) == []


def test_a_file_in_the_directorys_place_is_not_used(notes) -> None:
    _launch.own_directory().write_text("")
    with pytest.raises(spdld.ConnectionError, match="a link or a file"):
        _launch.ensure(_launch.own_directory())


def test_a_directory_with_other_things_in_it_is_not_used(notes, tmp_path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "thesis.tex").write_text("")
    with pytest.raises(spdld.ConnectionError, match=r"holds 'thesis.tex' and is no runtime_dir"):
        _launch.ensure(home)
    assert (home / "thesis.tex").exists()


def test_a_directory_that_cannot_be_made_is_an_error(notes, tmp_path) -> None:
    with pytest.raises(spdld.ConnectionError, match="cannot make the directory"):
        _launch.ensure(tmp_path / "no" / "where")


def test_the_directory_is_the_users_and_the_scheduler_jobs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert _launch.own_directory() == tmp_path / f"spdld-{os.geteuid()}"
    monkeypatch.setenv("SLURM_JOB_ID", "12/../3")
    assert _launch.own_directory() == tmp_path / f"spdld-{os.geteuid()}-12_.._3"


def test_a_runtime_directory_of_somebody_else_is_passed_over(tmp_path, monkeypatch) -> None:
    for given in ("", str(tmp_path / "none")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", given)
        assert _launch.own_directory().parent == Path("/tmp")


def test_a_given_address_is_kept(notes, tmp_path, monkeypatch) -> None:
    address, starter = _launch.choose(str(tmp_path / "mine"))
    assert address == str(tmp_path / "mine") and starter is not None
    monkeypatch.setenv("SPDLD_ADDRESS", "/somewhere")
    assert _launch.choose("")[0] == "/somewhere"


def test_the_systems_daemon_is_used_if_it_answers(notes, tmp_path) -> None:
    system = tmp_path / "system"
    system.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(system / "data.sock"))
        listener.listen()
        assert _launch.choose("") == (str(system), None)
    assert _launch.choose("")[0] == str(_launch.own_directory())


def test_a_loader_starts_the_daemon_when_it_first_needs_it(notes) -> None:
    loader = spdld.Loader("numbers", launch=True, timeout=1.0)
    assert list(notes.iterdir()) == []
    assert loader.address == str(_launch.own_directory())
    with pytest.raises(spdld.Error):  # the stand-in does not answer
        len(loader)
    only_note(notes)


def test_a_loader_without_a_program_to_start_says_where_it_looked(notes, monkeypatch) -> None:
    monkeypatch.setenv("SPDLD_BIN", "/none/spdld")
    with pytest.raises(spdld.ConnectionError, match=r"SPDLD_BIN is /none/spdld"):
        len(spdld.Loader("numbers", launch=True))
    monkeypatch.delenv("SPDLD_BIN")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_launch, "__file__", "/none/lib/spdld/_launch.py")
    monkeypatch.setattr(sys, "executable", "/none/bin/python")
    with pytest.raises(spdld.ConnectionError, match="no program 'spdld'"):
        len(spdld.Loader("numbers", launch=True))


def test_the_program_is_found_on_path(notes, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SPDLD_BIN")
    monkeypatch.setattr(_launch, "__file__", "/none/lib/spdld/_launch.py")
    monkeypatch.setattr(sys, "executable", "/none/bin/python")
    (tmp_path / "spdld").symlink_to(_BINARY)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _launch.find_binary() == str(tmp_path / "spdld")


def test_the_program_of_the_daemons_wheel_comes_before_its_entry_point(
    notes, tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv("SPDLD_BIN")
    site = tmp_path / "lib/python3/site-packages"
    monkeypatch.setattr(_launch, "__file__", str(site / "spdld/_launch.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    for directory in (site / "spdld_daemon/bin", tmp_path / "bin"):
        directory.mkdir(parents=True)
        (directory / "spdld").symlink_to(_BINARY)
    assert _launch.find_binary() == str(site / "spdld_daemon/bin/spdld")


def test_a_program_that_may_not_be_executed_is_named(notes, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SPDLD_BIN")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_launch, "__file__", str(tmp_path / "spdld/_launch.py"))
    monkeypatch.setattr(sys, "executable", "/none/bin/python")
    program = tmp_path / "spdld_daemon/bin/spdld"
    program.parent.mkdir(parents=True)
    program.write_text("")
    with pytest.raises(spdld.ConnectionError, match=f"{program} may not be executed"):
        _launch.find_binary()


@pytest.fixture
def yaml(tmp_path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text("pipeline: numbers\n")
    return path


def test_a_private_daemon_ends_with_its_block(notes, yaml) -> None:
    with spdld.launch(yaml) as server:
        note = only_note(notes)
        assert note["pid"] == server.pid and note["parent_fd"]
        assert note["exit_when_idle"] is None
        assert note["settings"]["pipelines"] == [str(yaml)]
        assert _launch.answers(server.address) and Path(server.log).exists()
        loader = server.loader(seed=3)
        assert (loader.pipeline, loader.address) == ("numbers", server.address)
        pidfd = os.pidfd_open(server.pid)
    wait_ended(pidfd)
    os.close(pidfd)
    assert not Path(server.address).exists()
    server.stop()
    assert "stopped" in repr(server)


def test_a_private_daemon_ends_when_it_is_dropped(notes, yaml) -> None:
    server = spdld.launch(yaml)
    address = Path(server.address)
    del server
    assert not address.exists()


def test_two_private_daemons_do_not_meet(notes, yaml) -> None:
    with spdld.launch(yaml) as one, spdld.launch(yaml) as other:
        assert one.address != other.address


def test_a_private_daemon_ends_when_its_starter_is_killed(notes, yaml) -> None:
    code = f"""
        import os, signal, spdld
        server = spdld.launch({str(yaml)!r})
        print(server.pid, server.address, flush=True)
        os.read(0, 1)
    """
    starter = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid, address = starter.stdout.readline().split()
    pidfd = os.pidfd_open(int(pid))
    starter.kill()
    starter.communicate()
    wait_ended(pidfd)
    os.close(pidfd)
    assert not Path(address).exists()


def test_a_private_daemon_that_was_killed_leaves_no_directory(notes, yaml) -> None:
    with spdld.launch(yaml) as server:
        os.kill(server.pid, signal.SIGKILL)
    assert not Path(server.address).exists()


def test_a_private_daemon_that_does_not_come_up_leaves_nothing(notes, yaml, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_SPDLD", "fail")
    with pytest.raises(spdld.ConnectionError, match="7 bytes are too few"):
        spdld.launch(yaml)
    assert list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir()) == []


def test_launch_takes_a_file(notes, tmp_path) -> None:
    with pytest.raises(ValueError, match="not the name 'imagenet-train'"):
        spdld.launch("imagenet-train")
    with pytest.raises(spdld.PipelineError, match=r"none\.yaml"):
        spdld.launch(tmp_path / "none.yaml")
    assert list(notes.iterdir()) == []


def test_a_server_without_a_pipeline_wants_one_for_its_loader(notes) -> None:
    with spdld.launch() as server:
        with pytest.raises(ValueError, match="without a pipeline"):
            server.loader()
        assert server.loader("numbers").pipeline == "numbers"
