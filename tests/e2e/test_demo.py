"""``devicemanager demo`` as a newcomer runs it: real processes, real TLS, the real kubectl."""

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import ANY

import psutil
import pytest

from tests.timing import wait_until

pytestmark = pytest.mark.timeout(120)

COMMAND = [sys.executable, "-m", "devicemanager.cli", "demo"]
KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
DEADLINE_S = 60.0


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still do something: one that only waits to be buried by init does not."""
    found = []
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


class Demo:
    """A running demo."""

    def __init__(self, process: subprocess.Popen[str], kubeconfig: Path, printed: Path) -> None:
        self.process = process
        self.kubeconfig = kubeconfig
        self.printed = printed

    def family(self) -> list[psutil.Process]:
        """Every process the demo started, and those they started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: signal.Signals) -> tuple[int, str, list[psutil.Process]]:
        """Send a signal; exit code, standard error, and the processes that outlived it."""
        family = self.family()
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, err, alive(family)

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run kubectl against the demo."""
        assert KUBECTL is not None
        environment = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent)}
        return subprocess.run(
            [KUBECTL, *arguments], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """The demo's environment: temporary files go where the test can look at what is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return {**os.environ, "TMPDIR": str(scratch), "DEVICEMANAGER_MANUFACTURER": "not-for-the-children"}


@pytest.fixture
def demo(tmp_path: Path, environment: Mapping[str, str]) -> Iterator[Demo]:
    """A demo that serves, without a terminal, and may be ended."""
    with serving(tmp_path / "kubeconfig", environment) as running:
        yield running


@pytest.fixture(scope="module")
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo that serves for those who only ask."""
    with serving(tmp_path_factory.mktemp("demo") / "kubeconfig", os.environ) as running:
        yield running


@contextlib.contextmanager
def serving(kubeconfig: Path, environment: Mapping[str, str]) -> Iterator[Demo]:
    """A demo for the length of a block."""
    printed = kubeconfig.with_name("printed")
    with printed.open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, f"--kubeconfig={kubeconfig}"], env=environment, stdout=out, stderr=subprocess.PIPE, text=True
        )
    running = Demo(process, kubeconfig, printed)
    try:
        wait_until(lambda: kubeconfig.exists() or process.poll() is not None, "the kubeconfig")
        assert process.poll() is None, process.communicate()
        yield running
    finally:
        if process.poll() is None:
            running.end(signal.SIGTERM)
        if process.stderr is not None:
            process.stderr.close()


def test_once_prints_each_instance_with_its_own_cards(environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [*COMMAND, "--once", "-o", "json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "InstanceMetricsList"
    samples = {item["metadata"]["name"]: item["sample"] for item in document["items"]}
    cards = {name: [card["id"] for card in sample["accelerators"]] for name, sample in samples.items()}
    assert cards == {"chat": ["SIM-aurora-0"], "train": ["SIM-aurora-1", "SIM-borealis-0"]}
    for sample in samples.values():
        limits = sample["limits"]
        assert 0 < sample["cpuUsageNanoCores"] < limits["cpuMilliCores"] * 1_000_000
        assert 0 < sample["memoryWorkingSetMiB"] < limits["memoryMiB"]
        assert 0 < sample["rootfsUsedMiB"] <= sample["ephemeralStorageUsedMiB"] < limits["ephemeralStorageMiB"]
        assert "absent" not in sample
        for card in sample["accelerators"]:
            assert 0 < card["memoryUsageMiB"] < card["memoryMiB"]
            assert 0 <= card["coresUtilizationPercent"] <= 100
            assert 20 < card["temperatureCelsius"] < 100
            assert 20 < card["powerUsageWatts"] < 1000
            assert card["unhealthy"] is False
    assert [(source["name"], source["state"]) for source in samples["train"]["sources"]] == [
        ("kubelet", "ok"),
        ("device-manager/simulated-aurora", "ok"),
        ("device-manager/simulated-borealis", "ok"),
    ]
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_kubectl_gets_what_the_demo_says_it_gets(shared_demo: Demo) -> None:
    raw = shared_demo.kubectl(
        "get", "--raw", "/apis/worker.gpustack.ai/v1/namespaces/team-a/instances/chat/metrics"
    )
    assert raw.returncode == 0, raw.stderr
    assert json.loads(raw.stdout)["sample"]["accelerators"][0]["id"] == "SIM-aurora-0"

    table = shared_demo.kubectl("get", "instancemetrics")
    assert (table.returncode, table.stderr) == (0, "")
    header, *rows = (re.split(r"\s{2,}", line) for line in table.stdout.splitlines())
    assert header[:5] == ["NAME", "CPU", "MEMORY", "DISK", "GPUS"]
    assert [(row[0], row[4]) for row in rows] == [("chat", "1"), ("train", "2")]


def test_kubectl_shows_the_registration_and_its_availability(shared_demo: Demo) -> None:
    registered = shared_demo.kubectl("get", "apiservices")
    assert (registered.returncode, registered.stderr) == (0, "")
    assert [re.split(r"\s{2,}", line) for line in registered.stdout.splitlines()] == [
        ["NAME", "SERVICE", "AVAILABLE", "AGE"],
        ["v1.worker.gpustack.ai", "gpustack-system/devicemanager-worker", "True", ANY],
    ]
    one = shared_demo.kubectl("get", "apiservice", "v1.worker.gpustack.ai", "--no-headers")
    assert one.stdout.split()[:3] == ["v1.worker.gpustack.ai", "gpustack-system/devicemanager-worker", "True"]

    where = shared_demo.kubectl("cluster-info")
    assert (where.returncode, where.stderr) == (0, "")
    assert "control plane" in where.stdout


def test_one_instance_is_asked_for_by_name(shared_demo: Demo) -> None:
    command = [sys.executable, "-m", "devicemanager.cli", "instance-metrics", "train", "-n", "team-a", "-o", "json"]
    environment = {**os.environ, "KUBECONFIG": str(shared_demo.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["metadata"]["name"] == "train"
    assert [card["id"] for card in document["sample"]["accelerators"]] == ["SIM-aurora-1", "SIM-borealis-0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_it_ends_cleanly_when_told(demo: Demo, environment: Mapping[str, str], number: signal.Signals) -> None:
    assert len(demo.family()) >= 5  # two device managers with a collector each, and the worker
    wait_until(lambda: "team-a/train" in demo.printed.read_text(), "the figures")

    code, err, left = demo.end(number)

    assert (code, err, left) == (0, "", [])
    out = demo.printed.read_text()
    assert f"export KUBECONFIG={demo.kubeconfig}" in out
    assert "kubectl get --raw /apis/worker.gpustack.ai/v1/namespaces/team-a/instances/chat/metrics" in out
    assert not demo.kubeconfig.exists()
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_a_killed_demo_leaves_no_process_behind(demo: Demo, environment: Mapping[str, str]) -> None:
    family = demo.family()
    demo.process.kill()
    demo.process.communicate(timeout=DEADLINE_S)
    wait_until(lambda: not alive(family), "the end of every child")

    scratch = Path(environment["TMPDIR"])
    (left,) = scratch.iterdir()
    assert left.name.startswith("devicemanager-demo-")
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    subprocess.run([*COMMAND, "--once"], env=environment, capture_output=True, timeout=DEADLINE_S, check=True)
    assert list(scratch.iterdir()) == []  # the next demo took it along


def test_it_says_which_part_ended_and_ends_the_others(demo: Demo, environment: Mapping[str, str]) -> None:
    family = demo.family()
    (victim,) = [one for one in family if "--manufacturer=simulated-borealis" in one.cmdline()]

    victim.kill()
    _, err = demo.process.communicate(timeout=DEADLINE_S)

    assert demo.process.returncode == 1
    assert "the device manager of simulated-borealis ended" in err
    assert "Traceback" not in err
    wait_until(lambda: not alive(family), "the end of the orphaned collector")
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_a_port_in_use_is_said_at_once(environment: Mapping[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--once", f"--port={port}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen on port {port}" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


@pytest.mark.parametrize("flags", [["--once"], ["--once", "-o", "json"], []], ids=["table", "json", "serving"])
def test_an_output_that_cannot_be_written_is_said_in_one_line(
    environment: Mapping[str, str], flags: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *flags],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (
        1,
        ["devicemanager: standard output cannot be written: No space left on device"],
    )
    assert "Traceback" not in done.stderr


def test_another_programs_kubeconfig_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "config"
    theirs.write_text("apiVersion: v1\nkind: Config\n")
    done = subprocess.run(
        [*COMMAND, f"--kubeconfig={theirs}"], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 2
    assert "not the demo's own" in done.stderr
    assert theirs.read_text() == "apiVersion: v1\nkind: Config\n"


class Terminal:
    """A terminal with a demo on it, and what it was sent so far."""

    def __init__(self, environment: Mapping[str, str], kind: str) -> None:
        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            COMMAND,
            env={**environment, "TERM": kind, "COLUMNS": "80", "LINES": "24"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        self._seen = bytearray()

    @property
    def raw(self) -> str:
        """Everything, control sequences included. Must be read now and then, or the demo cannot go on printing."""
        if select.select([self._leader], [], [], 0)[0]:
            with contextlib.suppress(OSError):
                self._seen.extend(os.read(self._leader, 65_536))
        return self._seen.decode(errors="replace")

    def frames(self, pattern: str) -> list[tuple[str, ...]]:
        """What matches in each picture of the Instances."""
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.raw)
        return [tuple(re.findall(pattern, frame)) for frame in text.split("team-a/chat ")[1:]]

    def end(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        wait_until(lambda: (self.raw, self.process.poll())[1] is not None, "the end")
        os.close(self._leader)
        return self.process.returncode


@pytest.fixture
def terminal(environment: Mapping[str, str], request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """A demo on a terminal of the kind that the test names."""
    running = Terminal(environment, request.param)
    yield running
    if running.process.poll() is None:
        running.end()


@pytest.mark.parametrize("terminal", ["xterm-256color"], indirect=True)
def test_on_a_terminal_every_figure_moves(terminal: Terminal) -> None:
    figures = (r"\d+ W", r"[\d.]+ / \d+ cores", r"[\d.]+ / (?:8|64) GiB", r"[\d.]+ / (?:20|100) GiB")
    wait_until(lambda: all(len(set(terminal.frames(each))) >= 3 for each in figures), "three values of each figure")
    assert terminal.end() == 0


@pytest.mark.parametrize("terminal", ["dumb"], indirect=True)
def test_a_terminal_that_cannot_be_drawn_over_is_shown_the_figures_once(terminal: Terminal) -> None:
    wait_until(lambda: re.search("team-a/train .* sampled ", terminal.raw, re.DOTALL), "the figures")
    assert len(terminal.frames(r"\d+ W")) == 1
    assert "\x1b" not in terminal.raw
    assert terminal.end() == 0
