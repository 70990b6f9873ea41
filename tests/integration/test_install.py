# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` puts somewhere works from there, and names nothing of the build."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest
import release

# Building clients, and compressing debug info, takes longer than other tests do.
pytestmark = pytest.mark.timeout(600)

ITEMS = 24
BATCH = 4
# Reads an epoch of the pipeline argv[1] from the daemon argv[2].
CLIENT = """
#include <cstdio>
#include <spdld/loader.h>

int main(int, char** argv) {
  auto loader = spdld::Loader::open({.pipeline = argv[1], .address = argv[2]});
  unsigned long batches = 0, rows = 0;
  while (auto batch = loader.next()) {
    ++batches;
    rows += batch->rows() * (batch->find("image") != nullptr);
  }
  std::printf("%lu batches, %lu rows, placed by %s%s", batches, rows, loader.placed_by().c_str(),
              loader.ended() ? ", ended" : "");
}
"""
CLIENT_SAYS = f"{ITEMS // BATCH} batches, {ITEMS} rows, placed by "
CLIENT_PROJECT = f"""
cmake_minimum_required(VERSION 3.16)
project(client CXX)
find_package(spdld {release.version_at(release.ROOT, release.PROJECT)} CONFIG REQUIRED)
add_executable(client client.cpp)
target_link_libraries(client PRIVATE spdld::spdld)
"""
PYTHON_CLIENT = """
import sys, spdld
with spdld.Loader(sys.argv[1], address=sys.argv[2]) as loader:
    print(spdld.__file__, sum(batch.rows for batch in loader))
"""
PYTHON_LAUNCH = """
import sys, spdld
with spdld.launch(sys.argv[1]) as server, spdld.Loader("images", address=server.address) as loader:
    print(sum(batch.rows for batch in loader))
"""
SERVICE_FILES = {
    "etc/spdld/spdld.yaml",
    "usr/bin/spdld",
    "usr/bin/spdlctl",
    "usr/lib/systemd/system/spdld.service",
    "usr/lib/systemd/system/spdld-control.socket",
    "usr/lib/systemd/system/spdld-data.socket",
    "usr/lib/sysusers.d/spdld.conf",
    "usr/lib/tmpfiles.d/spdld.conf",
}


def run(*command: str | os.PathLike[str], fails: bool = False, **environment: str) -> str:
    """What it prints; fails with that if it does not end as it should."""
    # What is in the build folder is not what is installed.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, **environment},
        cwd=daemon_module.REPOSITORY,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(prefix: pathlib.Path | str, component: str = "", **environment: str) -> list[str]:
    """Installs what is built; the paths in the manifest, which is put back as it was."""
    build = daemon_module.build_dir()
    manifest = build / (
        f"install_manifest_{component}.txt" if component else "install_manifest.txt"
    )
    kept = manifest.with_suffix(".kept")
    command = ["cmake", "--install", str(build), "--prefix", str(prefix)]
    with locked(build / "install.lock"):
        if manifest.exists():
            manifest.rename(kept)
        try:
            run(*command, *(["--component", component] if component else []), **environment)
            return manifest.read_text().splitlines()
        finally:
            manifest.unlink(missing_ok=True)
            if kept.exists():
                kept.rename(manifest)


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Everything is installed here, once for all of pytest's processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    prefix = shared / "installed"
    manifest = shared / "installed.manifest"
    with locked(shared / "installed.lock"):
        if not manifest.exists():
            manifest.write_text("\n".join(install(prefix)))
    return prefix


def only(paths: Iterator[pathlib.Path]) -> pathlib.Path:
    (path,) = paths
    return path


def files_of(directory: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]


def library_dir(prefix: pathlib.Path) -> pathlib.Path:
    return only(prefix.rglob("libspdld.so")).parent


def binaries(prefix: pathlib.Path) -> list[pathlib.Path]:
    library = library_dir(prefix) / "libspdld.so"
    extension = only(prefix.rglob("_core.*.so"))
    return [prefix / "bin/spdld", prefix / "bin/spdlctl", library.resolve(), extension]


def sections(binary: pathlib.Path) -> set[str]:
    return set(re.findall(r"\] (\.\S+)", run("readelf", "--sections", "--wide", binary)))


def build_id(binary: pathlib.Path) -> str:
    found = re.search(r"Build ID: (\w+)", run("readelf", "--notes", "--wide", binary))
    assert found is not None
    return found.group(1)


@pytest.fixture
def installed_daemon(
    prefix: pathlib.Path,
    make_daemon: Callable[..., Any],
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
) -> Any:
    """The installed program, with a pipeline that the installed spdlctl has applied."""
    daemon = make_daemon(programs=prefix / "bin")
    daemon.ctl("apply", "-f", write_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH}))
    return daemon


def test_cmake_finds_what_a_client_needs(
    prefix: pathlib.Path, installed_daemon: Any, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(CLIENT_PROJECT)
    (tmp_path / "client.cpp").write_text(CLIENT)
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    assert str(library_dir(prefix)) in run("ldd", build / "client")
    printed = run(build / "client", "images", installed_daemon.address)
    assert printed.startswith(CLIENT_SAYS)


def test_cmake_refuses_a_package_of_another_major_version(
    prefix: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(CLIENT_PROJECT.replace("0.1", "1.0"))
    options = ["-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    said = run("cmake", *options, fails=True)
    assert "compatible with requested version" in " ".join(said.split())


def test_pkg_config_finds_what_a_client_needs(
    prefix: pathlib.Path, installed_daemon: Any, tmp_path: pathlib.Path
) -> None:
    library = library_dir(prefix)
    found = {"PKG_CONFIG_PATH": str(library / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "spdld", **found).split()
    (tmp_path / "client.cpp").write_text(CLIENT)
    run(
        "g++",
        "-std=c++20",
        "-Wall",
        "-Werror",
        tmp_path / "client.cpp",
        *flags,
        "-o",
        tmp_path / "client",
    )
    printed = run(
        tmp_path / "client", "images", installed_daemon.address, LD_LIBRARY_PATH=str(library)
    )
    assert printed.startswith(CLIENT_SAYS)


def test_a_virtual_environment_imports_what_is_installed_into_it(
    installed_daemon: Any, tmp_path: pathlib.Path
) -> None:
    environment = make_environment(tmp_path / "environment")
    install(environment, "python")
    python = environment / "bin/python"
    where, rows = run(python, "-c", PYTHON_CLIENT, "images", installed_daemon.address).split()
    assert pathlib.Path(where).is_relative_to(environment)
    assert rows == str(ITEMS)


def make_environment(directory: pathlib.Path) -> pathlib.Path:
    """A virtual environment that sees the system's numpy."""
    run(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", directory)
    return directory


def test_the_package_launches_the_daemon_of_its_own_prefix(
    prefix: pathlib.Path,
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    tmp_path: pathlib.Path,
) -> None:
    pipeline = write_pipeline(make_dataset(count=ITEMS), batch={"size": BATCH})
    site_packages = only(prefix.rglob("spdld/__init__.py")).parents[1]
    rows = run(
        sys.executable,
        "-c",
        PYTHON_LAUNCH,
        pipeline,
        PYTHONPATH=str(site_packages),
        PATH="/usr/bin:/bin",
    )
    assert rows.strip() == str(ITEMS)


@pytest.mark.parametrize(
    ("option", "path", "missing"),
    [
        ("-DSPDLD_BUILD_SERVER=OFF", "/nowhere", "there is no C++ compiler here"),
        ("-DPython_INCLUDE_DIR=/nowhere", os.environ["PATH"], "needs Python 3.10 or newer and its"),
    ],
)
def test_pip_where_it_cannot_build_names_the_compiler_and_the_headers(
    tmp_path: pathlib.Path, option: str, path: str, missing: str
) -> None:
    options = [f"-DSPDLD_BUILD_{part}=OFF" for part in ("SERVER", "TESTS", "BENCHMARKS")]
    cmake = shutil.which("cmake")
    assert cmake is not None
    said = run(
        *[cmake, "-GNinja", "-S", ".", "-B", tmp_path, *options, "-DSKBUILD=2", option],
        fails=True,
        PATH=path,
        CXX="",
    )
    said = " ".join(said.split())
    assert missing in said
    assert "python3-dev" in said and "headers" in said


def test_the_installed_configuration_passes_its_own_check(prefix: pathlib.Path) -> None:
    config = prefix / "etc/spdld/spdld.yaml"
    checked = run(prefix / "bin/spdld", "--config", config, "--check")
    assert "0 pipelines are fine" in checked


def test_installed_units_name_what_is_installed(prefix: pathlib.Path) -> None:
    units = prefix / "lib/systemd/system"
    service = (units / "spdld.service").read_text()
    starts = re.findall(r"^ExecStart(?:Pre)?=(\S+) --config (\S+)", service, re.MULTILINE)
    assert set(starts) == {(str(prefix / "bin/spdld"), str(prefix / "etc/spdld/spdld.yaml"))}
    assert len(starts) == 2
    assert all(pathlib.Path(named).is_file() for named in starts[0])
    run(
        *["systemd-analyze", "verify", "--man=no", *sorted(units.iterdir())],
        SYSTEMD_UNIT_PATH=f"{units}:",
    )


def test_what_is_installed_is_stripped_with_debug_info_beside_it(prefix: pathlib.Path) -> None:
    for binary in binaries(prefix):
        assert not sections(binary) & {".debug_info", ".symtab"}
        identity = build_id(binary)
        debug = prefix / "lib/debug/.build-id" / identity[:2] / f"{identity[2:]}.debug"
        assert build_id(debug) == identity
        assert {".debug_info", ".symtab"} <= sections(debug)


@pytest.mark.skipif(daemon_module.has_failpoints(), reason="only what is shipped is hardened")
def test_what_is_installed_is_hardened(prefix: pathlib.Path) -> None:
    for binary in binaries(prefix):
        program = binary.parent == prefix / "bin"
        assert "GNU_RELRO" in run("readelf", "--segments", "--wide", binary)
        flags = re.search(r"\(FLAGS_1\) +Flags: (.*)", run("readelf", "--dynamic", binary))
        assert flags is not None
        assert flags.group(1).split() == (["NOW", "PIE"] if program else ["NOW"])
        called = run("nm", "--dynamic", "--undefined-only", binary)
        assert "__stack_chk_fail" in called
        assert not program or re.search(r" __\w+_chk\b", called), "it is not fortified"


def test_nothing_but_debug_info_names_the_build(prefix: pathlib.Path) -> None:
    build = os.fsencode(daemon_module.build_dir().resolve())
    for path in files_of(prefix):
        assert path.is_relative_to(prefix / "lib/debug") or build not in path.read_bytes(), path
    for binary in binaries(prefix):
        assert not re.search(r"\((RPATH|RUNPATH)\)", run("readelf", "--dynamic", binary))


def test_only_the_service_names_the_prefix(prefix: pathlib.Path) -> None:
    named = [path for path in files_of(prefix) if os.fsencode(prefix) in path.read_bytes()]
    assert named == [prefix / "lib/systemd/system/spdld.service"]


def test_the_library_exports_every_function_of_its_headers(prefix: pathlib.Path) -> None:
    library = library_dir(prefix) / "libspdld.so"
    exported = run("nm", "--dynamic", "--demangle", "--defined-only", library)
    exported = exported.replace("[abi:cxx11]", "")
    for header, name in [("loader.h", "Loader"), ("batch.h", "Batch")]:
        text = (prefix / "include/spdld" / header).read_text()
        declared = re.search(
            rf"class SPDLD_API {name} {{\n public:\n(.*?)\n private:", text, re.DOTALL
        )
        assert declared is not None
        functions = set(re.findall(r"^  [^ /].*?\b(\w+)\(", declared.group(1), re.MULTILINE))
        assert len(functions) > 10
        missing = [one for one in functions if f"spdld::{name}::{one}(" not in exported]
        assert not missing


def test_the_manifest_lists_everything_but_the_configuration(prefix: pathlib.Path) -> None:
    manifest = prefix.with_name("installed.manifest").read_text().splitlines()
    installed = {str(path) for path in files_of(prefix)}
    config = {str(path) for path in files_of(prefix / "etc")}
    assert set(manifest) == installed - config
    assert config


def test_a_staged_install_for_usr_is_laid_out_as_distributions_have_it(
    tmp_path: pathlib.Path,
) -> None:
    install("/usr", "server", DESTDIR=str(tmp_path))
    assert {str(path.relative_to(tmp_path)) for path in files_of(tmp_path)} == SERVICE_FILES
    service = (tmp_path / "usr/lib/systemd/system/spdld.service").read_text()
    assert "ExecStart=/usr/bin/spdld --config /etc/spdld/spdld.yaml\n" in service


def test_an_edited_configuration_outlives_the_next_install(tmp_path: pathlib.Path) -> None:
    install("/usr", "server", DESTDIR=str(tmp_path))
    config = tmp_path / "etc/spdld"
    (config / "spdld.yaml").write_text("executor: {cpu_threads: 4}\n")
    (config / "pipelines/train.yaml").write_text("pipeline: train\n")
    install("/usr", "server", DESTDIR=str(tmp_path))
    assert (config / "spdld.yaml").read_text() == "executor: {cpu_threads: 4}\n"
    assert (config / "pipelines/train.yaml").read_text() == "pipeline: train\n"
