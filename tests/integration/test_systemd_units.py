# SPDX-License-Identifier: Apache-2.0
"""The units load, and confine the daemon as far as they say."""

from __future__ import annotations

import configparser
import pathlib
import re
import shutil
import subprocess

import pytest

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd"
NAMES = ("spdld.service", "spdld-control.socket", "spdld-data.socket")


def source(name: str) -> pathlib.Path:
    """The file that the unit is installed from: as it is, or with its paths filled in."""
    as_it_is = UNITS / name
    return as_it_is if as_it_is.exists() else UNITS / f"{name}.in"


@pytest.fixture
def installed(tmp_path: pathlib.Path) -> pathlib.Path:
    """The units beside each other, with a program in place of the one that is not installed."""
    for name in NAMES:
        text = source(name).read_text()
        text = text.replace("@CMAKE_INSTALL_FULL_BINDIR@/spdld", "/bin/true")
        (tmp_path / name).write_text(text.replace("@CMAKE_INSTALL_FULL_SYSCONFDIR@", "/etc"))
    return tmp_path


def analyze(*arguments: str, units: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        capture_output=True,
        text=True,
        env={
            "SYSTEMD_UNIT_PATH": f"{units}:",
            "PATH": "/usr/bin:/bin",
            "XDG_RUNTIME_DIR": str(units),
        },
    )


def read(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(source(name))
    return parser


@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_nothing_to_complain_about(installed: pathlib.Path, name: str) -> None:
    done = analyze("verify", "--man=no", str(installed / name), units=installed)
    complaints = [line for line in done.stderr.splitlines() if "spdld" in line]
    assert done.returncode == 0, done.stderr
    assert not complaints


def test_verify_would_see_a_misspelt_directive(installed: pathlib.Path) -> None:
    unit = installed / "spdld.service"
    unit.write_text(unit.read_text().replace("Restart=", "Restrat="))
    done = analyze("verify", "--man=no", str(unit), units=installed)
    assert "Restrat" in done.stderr


def exposure(units: pathlib.Path, *options: str) -> str:
    """How systemd rates the service, from 0 to 10."""
    service = str(units / "spdld.service")
    done = analyze("security", "--offline=true", *options, service, units=units)
    level = re.search(r"exposure level.*: ([\d.]+)", done.stdout)
    assert level is not None, done.stderr
    return level.group(1)


def documented(unit: str) -> str:
    text = (UNITS.parents[1] / "docs/security.md").read_text()
    [level] = re.findall(rf"^\| {unit}[^|]* \| ([\d.]+) \|", text, re.MULTILINE)
    return level


def test_the_services_are_as_hardened_as_docs_say(installed: pathlib.Path) -> None:
    assert exposure(installed) == documented("the system's")
    assert float(exposure(installed)) < 2.0
    for name in ("gpu", "http"):
        add_drop_in(installed, name)
        assert exposure(installed) == documented(f"with \\[`{name}.conf`")
        shutil.rmtree(installed / "spdld.service.d")
    own = (UNITS / "user/spdld.service.in").read_text()
    own = own.replace('"@PROGRAM@" @CONFIG@', "/bin/true ")
    (installed / "spdld.service").write_text(own)
    assert exposure(installed, "--user") == documented("one's own")


def add_drop_in(installed: pathlib.Path, name: str) -> None:
    drop_in = installed / "spdld.service.d" / f"{name}.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((UNITS / f"{name}.conf").read_text())


def test_the_service_with_gpus_has_their_devices_alone(installed: pathlib.Path) -> None:
    add_drop_in(installed, "gpu")
    done = analyze("verify", "--man=no", str(installed / "spdld.service"), units=installed)
    # The program that makes device nodes is there where there is a driver.
    complaints = [
        line
        for line in done.stderr.splitlines()
        if ("spdld" in line or "gpu.conf" in line) and "nvidia-modprobe" not in line
    ]
    assert not complaints
    unit = read("gpu.conf")["Service"]
    assert unit["DevicePolicy"] == "closed"
    assert unit["PrivateDevices"] == "no"
    # All else stays as hardened as it was.
    assert set(unit) == {
        "PrivateDevices",
        "DevicePolicy",
        "DeviceAllow",
        "ExecStartPre",
        "LimitMEMLOCK",
        "Environment",
    }


def test_the_service_with_http_has_internet_sockets_beside_its_own(
    installed: pathlib.Path,
) -> None:
    add_drop_in(installed, "http")
    done = analyze("verify", "--man=no", str(installed / "spdld.service"), units=installed)
    assert not [line for line in done.stderr.splitlines() if "spdld" in line or "http.conf" in line]
    assert read("spdld.service")["Service"]["RestrictAddressFamilies"] == "AF_UNIX"
    unit = read("http.conf")["Service"]
    assert unit["RestrictAddressFamilies"] == "AF_INET AF_INET6"
    assert set(unit) == {"RestrictAddressFamilies", "IPAddressDeny", "IPAddressAllow"}


@pytest.mark.parametrize("name", ["control", "data"])
def test_each_socket_is_named_as_the_daemon_asks_for_it(name: str) -> None:
    socket = read(f"spdld-{name}.socket")["Socket"]
    kind = {"control": "ListenStream", "data": "ListenSequentialPacket"}[name]
    assert socket[kind] == f"/run/spdld/{name}.sock"
    assert socket["FileDescriptorName"] == name
    assert socket["Service"] == "spdld.service"
    assert socket["SocketMode"] == "0660"


def test_stopping_the_service_leaves_the_sockets_directory_alone() -> None:
    assert "RuntimeDirectory" not in read("spdld.service")["Service"]
    assert re.search(
        r"^d /run/spdld 0755 spdld spdld", (UNITS / "spdld.tmpfiles").read_text(), re.MULTILINE
    )
