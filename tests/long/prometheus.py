#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: a real Prometheus scrapes for a minute: each alert and panel has data; a good scrape beside 200 bad connections
# build: release spdld spdlctl
"""prometheus.py [SECONDS]: as root, for its slow mount. Prometheus is Debian's, from PATH, or
unpacked into build/prometheus. Two jobs are read meanwhile, one from a cache. Then connections that
are idle, drip, flood, send too much or do not read come again and again for half as long, and a scrape
is made every 100 ms. Fails if an expression has no data, a scrape takes more than 1 s, or the daemon
takes more memory for them than the bounds of its HTTP server allow."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from daemon import REPOSITORY, Daemon, build_dir, wait_until
from http_client import ask, free_port
from integration.hung_mount import HungMount
from metrics import DIRECTORY, alerts, dashboard, names, read
from PIL import Image

BAD = 200
MOST_SCRAPE_S = 1.0
MOST_BYTES = 64 << 20
IMAGES = 64
# What a machine without them has no figures of.
NOT_EVERYWHERE = ("spdld_gpu_", "spdld_throttled_", "spdld_worker_core_wait_")
PIPELINE = """\
pipeline: {name}
source: {{files: {{root: {root}, pattern: "*.jpg", label: none}}}}
shuffle: global
stages: [fetch, decode_image, {{random_resized_crop: 64}}]
batch: {{size: 8}}
{more}
"""
CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: spdld
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def program() -> pathlib.Path:
    if (installed := shutil.which("prometheus")) is not None:
        return pathlib.Path(installed)
    directory = REPOSITORY / "build/prometheus"
    unpacked = directory / "usr/bin/prometheus"
    if not unpacked.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Installed, it would start a server.
        download = ["apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", "prometheus"]
        subprocess.run(download, cwd=directory, check=True)
        (package,) = directory.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package, directory], check=True)
    return unpacked


class Prometheus:
    def __init__(self, directory: pathlib.Path, port: int) -> None:
        config = directory / "prometheus.yml"
        config.write_text(CONFIG.format(rules=DIRECTORY / "spdld.rules.yml", port=port))
        self._port = free_port()
        self._log = (directory / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                program(),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        wait_until(self._is_ready, "Prometheus")

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return ask(self._port, "/-/ready")[0] == 200
        return False

    def api(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values that are numbers."""
        result = self.api("query", query=expression)["result"]
        values = [(one["metric"], float(one["value"][1])) for one in result]
        return [(labels, value) for labels, value in values if value == value]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@contextlib.contextmanager
def job(daemon: Daemon, name: str) -> Iterator[None]:
    """Reads until the end."""
    reader = subprocess.Popen(
        [
            build_dir() / "bin/spdlctl",
            *("--address", daemon.address, "consume", name, "--job", f"run-{name}"),
            *("--epochs", "1000000"),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        reader.kill()
        reader.wait()


def http_cpu_s(pid: int) -> float:
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "spdld-http":
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise AssertionError("there is no thread spdld-http")


def without_comparison(alert: str) -> str:
    """What it looks at, which is there also while all is well."""
    alert = re.sub(r"^absent\((.*)\)$", r"\1", alert)
    return re.split(r" (?:>|unless) ", alert)[0]


def unfilled(prometheus: Prometheus, told: set[str]) -> list[str]:
    """What is wrong with expressions; prints what each group has."""
    wrong = []
    expressions = [(without_comparison(alert), "") for alert in alerts()] + dashboard()
    filled, elsewhere = 0, []
    for written, legend in expressions:
        expression = written.replace("$__rate_interval", "30s").replace("$instance", ".*")
        expression = expression.replace("$run", ".*")
        if not names(expression):
            elsewhere.append(written)  # node_exporter's
            continue
        missing = names(expression) - told
        if missing and all(name.startswith(NOT_EVERYWHERE) for name in missing):
            elsewhere.append(written)
            continue
        result = prometheus.query(expression)
        if not result:
            wrong.append(f"no data: {written}")
            continue
        filled += 1
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            if any(label not in labels for labels, _ in result):
                wrong.append(f"no label {label}: {written}")
    print(f"{filled} of {len(expressions)} expressions have data; not to be had here:")
    for written in elsewhere:
        print(f"    {written}")
    rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
    wrong += [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]
    if len(rules) != len(alerts()):
        wrong.append(f"Prometheus has {len(rules)} of {len(alerts())} alerts")
    print(f"alerts: {', '.join(rule['name'] + ' ' + rule['state'] for rule in rules)}")
    return wrong


def be_bad(port: int) -> None:
    """Until it is killed."""
    request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n"
    first = (b"", request + b"X: ", b"", request + b"\r\n", request)
    then = (b"", b"a", b"\xff\r\n\x00" * 16384, b"", b"X: y\r\n" * 10_000)
    open_now: list[socket.socket | None] = [None] * BAD
    while True:
        for number, connection in enumerate(open_now):
            kind = number % len(first)
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", port), 5)
                    connection.setblocking(False)
                    open_now[number] = connection
                    connection.send(first[kind])
                elif then[kind]:
                    connection.send(then[kind])
                elif kind == 0 and connection.recv(1) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                if connection is not None:
                    connection.close()
                open_now[number] = None
        time.sleep(0.005)


def scrape_beside(daemon: Daemon, port: int, seconds: float) -> list[str]:
    wrong = []

    def for_a_while(seconds: float) -> tuple[list[float], float, int]:
        """Times of scrapes, rows a second, and the most memory."""
        took, most = [], 0
        rows, began = daemon.ctl_json("status")["rows"], time.monotonic()
        while time.monotonic() < began + seconds:
            asked = time.monotonic()
            status, text = ask(port, "/metrics")
            took.append(time.monotonic() - asked)
            if status != 200 or "spdld_uptime_seconds" not in read(text):
                wrong.append(f"a scrape was answered with {status}")
            most = max(most, daemon.resident_bytes())
            time.sleep(0.1)
        lasted = time.monotonic() - began
        return took, (daemon.ctl_json("status")["rows"] - rows) / lasted, most

    alone, rows_alone, most_alone = for_a_while(seconds / 3)
    spent = http_cpu_s(daemon.pid)
    bad = subprocess.Popen([sys.executable, __file__, "--bad", str(port)])
    try:
        took, rows, most = for_a_while(seconds)
    finally:
        bad.kill()
        bad.wait()
    spent = http_cpu_s(daemon.pid) - spent
    for what, times, rate, memory in (
        ("alone", alone, rows_alone, most_alone),
        (f"beside {BAD} bad connections", took, rows, most),
    ):
        print(
            f"{what}: {len(times)} scrapes, median {statistics.median(times) * 1000:.1f} ms, "
            f"longest {max(times) * 1000:.1f} ms; {rate:.0f} rows/s; {memory / (1 << 20):.1f} MiB"
        )
    print(f"spdld-http took {spent:.2f} s of a core for them in {seconds:.0f} s")
    if max(took) > MOST_SCRAPE_S:
        wrong.append(f"a scrape took {max(took):.2f} s")
    if most - most_alone > MOST_BYTES:
        wrong.append(f"the daemon took {(most - most_alone) >> 20} MiB for bad connections")
    return wrong


def main(seconds: float) -> int:
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        for name in ("images", "slow"):
            (directory / name).mkdir()
        for number in range(IMAGES):
            picture = Image.effect_noise((320, 240), 40).convert("RGB")
            picture.save(directory / f"images/{number}.jpg")
        slow = HungMount(directory / "images", directory / "slow", read_s=0.002)
        stack.callback(slow.close)
        port = free_port()
        http = {"listen": f"127.0.0.1:{port}", "jobs": True}
        daemon = stack.enter_context(Daemon(settings={"http": http}))
        daemon.start()
        for name, root, more in (
            ("slow", directory / "slow", ""),
            ("cached", directory / "images", "cache: {form: decoded, size: 64MiB, where: ram}"),
        ):
            text = PIPELINE.format(name=name, root=root, more=more)
            daemon.ctl("apply", "-f", "-", stdin=text)
            stack.enter_context(job(daemon, name))
        prometheus = Prometheus(directory, port)
        stack.callback(prometheus.close)
        time.sleep(seconds)

        told = set(read(ask(port, "/metrics")[1]))
        wrong = unfilled(prometheus, told)
        ((_, scrapes),) = prometheus.query("count_over_time(up[10m])")
        ((_, failed),) = prometheus.query("count_over_time(up[10m]) - sum_over_time(up[10m])")
        ((_, longest),) = prometheus.query("max_over_time(scrape_duration_seconds[10m])")
        ((_, samples),) = prometheus.query("scrape_samples_scraped")
        print(
            f"Prometheus: {scrapes:.0f} scrapes, {failed:.0f} failed, {samples:.0f} samples each, "
            f"the longest took {longest * 1000:.1f} ms; {len(told)} metrics"
        )
        if failed > 0 or scrapes < seconds - 10:
            wrong.append("scrapes failed or did not come")
        wrong += scrape_beside(daemon, port, seconds / 2)
        for one in wrong:
            print(f"FAILED: {one}", file=sys.stderr)
        return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bad"]:
        be_bad(int(sys.argv[2]))
    else:
        sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
