"""The memory limit is the lowest of the cgroup, its ancestors and the flag."""

from pathlib import Path

import pytest

from devicemanager.serving.memory_limit import MemoryLimit, Source, cgroup_bytes, memory_limit

MIB = 1 << 20
NO_LIMIT_OF_V1 = "9223372036854771712"


class Machine:
    """A ``/proc/self`` and the cgroups that it names, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.mounts = folder / "cgroup"
        self.proc.mkdir()

    def process(self, cgroup: str, mountinfo: str) -> "Machine":
        (self.proc / "cgroup").write_text(cgroup)
        (self.proc / "mountinfo").write_text(mountinfo.replace("MOUNTS", str(self.mounts)))
        return self

    def limit(self, path: str, text: str) -> "Machine":
        file = self.mounts / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return self


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


V2 = "33 24 0:28 / MOUNTS rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:31 / MOUNTS/cpu rw - cgroup cgroup rw,cpu\n36 31 0:32 / MOUNTS/memory rw - cgroup cgroup rw,memory\n"


def test_in_a_container_of_the_second_version_its_own_limit_counts(machine: Machine) -> None:
    machine.process("0::/\n", V2).limit("memory.max", str(192 * MIB))

    assert cgroup_bytes(machine.proc) == 192 * MIB


@pytest.mark.parametrize(("own", "above"), [("max", "100"), ("200", "100"), ("100", "max"), ("100", "200")])
def test_the_lowest_of_a_cgroup_and_its_ancestors_counts(machine: Machine, own: str, above: str) -> None:
    machine.process("0::/system.slice/worker.service\n", V2)
    machine.limit("system.slice/worker.service/memory.max", own).limit("system.slice/memory.max", above)

    assert cgroup_bytes(machine.proc) == 100


def test_the_first_version_is_read_too(machine: Machine) -> None:
    machine.process("5:cpu:/other\n4:memory:/kubepods/pod1\n0::/\n", V1)
    machine.limit("memory/kubepods/pod1/memory.limit_in_bytes", NO_LIMIT_OF_V1)
    machine.limit("memory/kubepods/memory.limit_in_bytes", str(300 * MIB))
    machine.limit("memory/memory.limit_in_bytes", NO_LIMIT_OF_V1)

    assert cgroup_bytes(machine.proc) == 300 * MIB


def test_a_container_that_sees_its_own_cgroup_under_the_hosts_name_finds_its_limit(machine: Machine) -> None:
    """Without a cgroup namespace the mount begins at the container's cgroup, and the path at the host's root."""
    machine.process("4:memory:/kubepods/pod1/abc\n", V1.replace("0:32 /", "0:32 /kubepods/pod1/abc"))
    machine.limit("memory/memory.limit_in_bytes", str(80 * MIB))

    assert cgroup_bytes(machine.proc) == 80 * MIB


def test_a_path_outside_of_what_is_mounted_leaves_the_mounts_own_limit(machine: Machine) -> None:
    machine.process("0::/../sibling\n", V2).limit("memory.max", "100")

    assert cgroup_bytes(machine.proc) == 100


@pytest.mark.parametrize("text", ["max", NO_LIMIT_OF_V1, "", "0", "-1", "1e9", "²"])
def test_what_is_no_limit_counts_as_none(machine: Machine, text: str) -> None:
    machine.process("0::/\n", V2).limit("memory.max", text)

    assert cgroup_bytes(machine.proc) is None


@pytest.mark.parametrize("mountinfo", ["", "nonsense", "1 2 - cgroup2", V2])
def test_without_a_readable_cgroup_there_is_none(machine: Machine, mountinfo: str) -> None:
    machine.process("nonsense\n", mountinfo)

    assert cgroup_bytes(machine.proc) is None
    assert cgroup_bytes(machine.proc / "missing") is None


def test_the_lower_of_cgroup_and_flag_counts_and_the_default_without_both(machine: Machine) -> None:
    nothing = machine.proc / "missing"
    machine.process("0::/\n", V2).limit("memory.max", "100")

    assert memory_limit(None, 50, machine.proc) == MemoryLimit(100, Source.CGROUP)
    assert memory_limit(200, 50, machine.proc) == MemoryLimit(100, Source.CGROUP)
    assert memory_limit(99, 50, machine.proc) == MemoryLimit(99, Source.FLAG)
    assert memory_limit(99, 50, nothing) == MemoryLimit(99, Source.FLAG)
    assert memory_limit(None, 50, nothing) == MemoryLimit(50, Source.DEFAULT)


def test_a_limit_says_where_it_comes_from() -> None:
    assert str(MemoryLimit(192 * MIB, Source.CGROUP)) == "192Mi (cgroup)"
    assert str(MemoryLimit(64 * MIB, Source.FLAG)) == "64Mi (--memory-limit)"
