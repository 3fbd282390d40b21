"""A device manager in a container that was made before the driver was loaded.

Files stand in for what the container sees of the kernel and of its device files.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.device_manager import DEADLINE_S, DeviceManager, Serve
from tests.standins import binding
from tests.standins.nvml import NvmlStandin, Scenario

IMPATIENT = """
import pathlib, sys
from devicemanager import cli
from devicemanager.node import container
from devicemanager.programs import hardware

container.LACKING_FOR_S, container.LOOK_EVERY_S = 0.5, 0.05
hardware.DEV_ROOT = pathlib.Path({dev!r})
sys.exit(cli.main())
"""
"""A device manager that waits half a second instead of five minutes, and looks for device files in a folder."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What a container sees: ``sys/module`` for the kernel's modules and ``dev`` for device files, both empty."""
    for name in ("sys/module", "sys/bus", "dev"):
        (tmp_path / "container" / name).mkdir(parents=True)
    return tmp_path / "container"


def in_container(serve: Serve, files: Path, environment: Mapping[str, str]) -> DeviceManager:
    flags = ("--manufacturer=nvidia", "--monitor-period=1s", "--no-pci-check", f"--sys-root={files / 'sys'}")
    return serve(*flags, environment=environment, code=IMPATIENT.format(dev=str(files / "dev")))


def assert_ended_for_a_new_container(manager: DeviceManager, lacking: str) -> None:
    assert manager.process.wait(DEADLINE_S) == 1
    (said,) = manager.events("container_outdated")
    assert said["level"] == "error"
    assert "the kernel module nvidia is loaded" in said["detail"]
    assert lacking in said["detail"]
    assert "it is made anew" in said["detail"]
    assert not manager.events("program_failed")


def test_a_container_made_before_the_driver_was_loaded_ends_so_that_it_is_made_anew(
    serve: Serve, files: Path
) -> None:
    """Library missing while the module is loaded."""
    (files / "dev/nvidiactl").touch()
    (files / "sys/module/nvidia").mkdir()

    manager = in_container(serve, files, {"LD_LIBRARY_PATH": ""})

    assert_ended_for_a_new_container(manager, "without the manufacturer's library")


def test_a_driver_loaded_later_than_the_container_ends_it_too(serve: Serve, files: Path) -> None:
    """On a node without a driver it stays; the driver is what makes the difference."""
    manager = in_container(serve, files, {"LD_LIBRARY_PATH": ""})
    since = manager.until_state("library_missing")["collector"]["consecutiveFailures"]
    # Two more attempts take the pauses between them, 1 s and 2 s: longer than the half second.
    manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= since + 2)
    assert (manager.ask("/livez").status, manager.ask("/readyz").status) == (200, 200)

    (files / "sys/module/nvidia").mkdir()

    assert_ended_for_a_new_container(manager, "without the manufacturer's library")


def test_a_library_that_finds_no_device_files_ends_the_container(
    serve: Serve, files: Path, nvml: NvmlStandin
) -> None:
    """Init answers 999 for ever, the module is loaded, and the device files are missing."""
    nvml.play(Scenario.healthy(1).call("nvmlInitWithFlags", code=999))
    (files / "sys/module/nvidia").mkdir()

    manager = in_container(serve, files, nvml.environment)

    assert_ended_for_a_new_container(manager, f"without {files / 'dev/nvidiactl'}")


def test_with_its_device_files_a_library_that_fails_is_waited_for(
    serve: Serve, files: Path, nvml: NvmlStandin
) -> None:
    """A new container would have nothing that this one lacks."""
    nvml.play(Scenario.healthy(1).call("nvmlInitWithFlags", code=999))
    (files / "sys/module/nvidia").mkdir()
    (files / "dev/nvidiactl").touch()

    manager = in_container(serve, files, nvml.environment)

    manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 3)


def test_a_container_that_had_a_sample_has_what_it_needs(serve: Serve, files: Path, nvml: NvmlStandin) -> None:
    """A library that goes away later, as in an update of the driver, is waited for."""
    nvml.play(Scenario.healthy(1))
    (files / "sys/module/nvidia").mkdir()
    (files / "dev/nvidiactl").touch()
    manager = in_container(serve, files, nvml.environment)
    manager.until_state("ok")

    (files / "dev/nvidiactl").unlink()
    nvml.play(Scenario.healthy(1).call("*", code=12))

    manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 3)


def test_a_python_module_that_is_missing_is_no_reason_for_a_new_container(serve: Serve, files: Path) -> None:
    """Every container of the image lacks it."""
    (files / "dev/nvidiactl").touch()
    (files / "sys/module/nvidia").mkdir()
    foreign = binding.something_else(files / "modules")
    path = os.pathsep.join([str(foreign), os.environ.get("PYTHONPATH", str(Path.cwd()))])

    manager = in_container(serve, files, {"LD_LIBRARY_PATH": "", "PYTHONPATH": path})

    # The pauses between the attempts, 1 s and 2 s, are longer than the half second.
    seen = manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 3)
    assert seen["collector"]["state"] == "failed"
    assert "the Python module pynvml is not that of nvidia-ml-py" in seen["collector"]["detail"]
