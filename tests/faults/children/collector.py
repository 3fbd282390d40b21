"""A collector process that misbehaves in one way: ``collector.py MODE --control FILE --fd N --period S …``.

It speaks the line protocol by hand, so that it shares no mistake with the real one. Where a mode depends on what
the test does meanwhile, it looks at the control file; beside it, in ``.starts``, each process leaves its id and
cards.
"""

# mypy: disable-error-code="explicit-override"
# It runs without site-packages, to start fast, and the standard library of 3.11 has no ``override``.

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BAD = 3

LEAKED: list[bytes] = []


def leak(mib: str) -> None:
    LEAKED.append(bytes(range(256)) * (int(mib or 0) << 12))


class Steady:
    """Eight cards, read every period. The modes below change one thing."""

    manufacturer = "nvidia"
    obeys = True

    def __init__(self, options: argparse.Namespace) -> None:
        self.fd: int = options.fd
        self.control_file: Path = options.control
        self.skip: list[str] = options.skip
        self.only: list[str] = options.only
        self.assumed = {int(index): card_id for index, _, card_id in (a.partition("=") for a in options.assume)}
        self.tick = 0

    def run(self, period_s: float) -> None:
        self.at_open()
        self.say({"hello": {"v": 3, "manufacturer": self.manufacturer, "countCall": "acmeCount"}})
        while True:
            self.tick += 1
            self.say({"begin": self.moment()})
            self.at_begin()
            count = self.count()
            for index in range(count):
                if self.touches(index):
                    self.say({"card": {"index": index, "id": None, "name": None, "pci": None}})
                    self.at_card(index)
                    self.say({"reading": self.reading(index)})
                    self.after_card(index)
            self.say({"end": {"count": count}})
            self.at_rest()
            time.sleep(period_s)

    def moment(self) -> dict[str, float]:
        moment = {"monotonic": time.monotonic(), "wall": time.time()}
        with self.control_file.with_suffix(".begun").open("a") as begun:
            begun.write(f"{moment['monotonic']!r}\n")
        return moment

    def touches(self, index: int) -> bool:
        """By the same keys as in the real process, a card being identified by no more than what is assumed."""
        keys = {f"index:{index}", self.assumed.get(index, "")}
        return not self.obeys or (keys.isdisjoint(self.skip) and (not self.only or not keys.isdisjoint(self.only)))

    def reading(self, index: int) -> dict[str, object]:
        return {
            "index": index,
            "id": f"GPU-{index}",
            "name": "Fake",
            "pci": f"0000:{index:02x}:00.0",
            "memory": 80 << 30,
            "memoryUsed": self.tick << 20,
            "cores": index,
            "temperature": 40,
            "power": 100_000,
            "unhealthy": None,
            "unread": {},
        }

    def say(self, line: object) -> None:
        self.write(json.dumps(line).encode() + b"\n")

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.fd, data) :]

    @property
    def control(self) -> str:
        return self.control_file.read_text() if self.control_file.exists() else ""

    def count(self) -> int:
        return 8

    def at_open(self) -> None:
        """Instead of opening a library."""

    def at_begin(self) -> None:
        """Before cards are counted."""

    def at_card(self, index: int) -> None:
        """Instead of touching a card."""

    def after_card(self, index: int) -> None:
        """When its line is written."""

    def at_rest(self) -> None:
        """After the end of a sample."""


def hang() -> None:
    while True:
        time.sleep(3600)


class HangOpen(Steady):
    def at_open(self) -> None:
        hang()


class HangBegin(Steady):
    def at_begin(self) -> None:
        hang()


class HangRest(Steady):
    def at_rest(self) -> None:
        hang()


class HangCard(Steady):
    def at_card(self, index: int) -> None:
        if index == BAD:
            hang()


class HangNamed(Steady):
    """Hangs on the cards whose indexes the control file names; without a file, on none."""

    def at_card(self, index: int) -> None:
        if str(index) in self.control.split():
            hang()


class HangInCompany(Steady):
    """Hangs unless the card is read alone."""

    def at_card(self, index: int) -> None:
        if index == BAD and not self.only:
            hang()


class Slow(Steady):
    """Each card takes the time that the control file says."""

    def at_card(self, index: int) -> None:
        time.sleep(float(self.control))


class SlowFirst(Steady):
    """Each card takes the time that the control file says, once."""

    def at_card(self, index: int) -> None:
        if self.tick == 1:
            time.sleep(float(self.control))


class BeginsTomorrow(Steady):
    def moment(self) -> dict[str, float]:
        return {"monotonic": time.monotonic() + 86_400, "wall": time.time()}


class BeganBefore(Steady):
    """Says that a sample began before there was a process."""

    def moment(self) -> dict[str, float]:
        return {"monotonic": 0.0, "wall": time.time()}


class BeginsSometime(Steady):
    def moment(self) -> dict[str, float]:
        return {}


class Disobedient(HangCard):
    obeys = False


class CrashCard(Steady):
    def at_card(self, index: int) -> None:
        if index == BAD:
            os.write(2, b"Xid 79\n")
            os.kill(os.getpid(), signal.SIGSEGV)


class CrashAll(Steady):
    def at_card(self, index: int) -> None:
        os.abort()


class CrashBegin(Steady):
    def at_begin(self) -> None:
        os.abort()


class CrashBetween(Steady):
    def after_card(self, index: int) -> None:
        if index == BAD:
            os.abort()


class CrashLater(CrashBetween):
    """Crashes between two cards of every tick but the first of the first process."""

    def after_card(self, index: int) -> None:
        if self.tick > 1 or self.control:
            self.control_file.write_text("crashed")
            super().after_card(index)


class CrashRest(Steady):
    def at_rest(self) -> None:
        os.abort()


class Exit(Steady):
    """Ends with the code in the control file."""

    def at_open(self) -> None:
        os.write(2, b"cannot map the device\n\n")
        sys.exit(int(self.control))


class Fail(Steady):
    """Says the state and detail in the control file, as long as there is one."""

    def at_open(self) -> None:
        if self.control:
            state, _, detail = self.control.partition(":")
            self.say({"failed": {"state": state, "detail": detail}})
            sys.exit(1)


class Counting(Steady):
    """Counts as many cards as the control file says; none is a failure, as in the real process."""

    def count(self) -> int:
        count = int(self.control or 8)
        if count == 0:
            self.say({"failed": {"state": "no_devices", "detail": "the library counts no card"}})
            sys.exit(70)
        return count


class CountNone(Steady):
    """Counts no card and does not end by itself."""

    def count(self) -> int:
        return 0


class Noise(Steady):
    def at_begin(self) -> None:
        for descriptor in (1, 2):
            os.write(descriptor, b"x" * 1_000_000 + b"\n")


class HalfLine(Steady):
    def at_card(self, index: int) -> None:
        if index == BAD:
            self.write(b'{"reading":{"index":3,"me')
            sys.exit(0)


class HugeLine(Steady):
    def at_card(self, index: int) -> None:
        if index == BAD:
            self.write(b'{"reading":{"index":3,"name":"' + b"x" * 10_000_000)


class InvalidJson(Steady):
    def at_card(self, index: int) -> None:
        if index == BAD:
            self.write(b"{'reading': }\n")


class WrongCard(Steady):
    def reading(self, index: int) -> dict[str, object]:
        return super().reading(index + 1 if index == BAD else index)


class Other(Steady):
    manufacturer = "amd"


class ClosePipe(Steady):
    def at_rest(self) -> None:
        os.close(self.fd)
        hang()


class LeaveHeir(Steady):
    """Crashes and leaves a process behind that keeps the pipe open."""

    def at_rest(self) -> None:
        heir = subprocess.Popen(["sleep", "30"], pass_fds=(self.fd,))
        self.control_file.write_text(str(heir.pid))
        os.abort()


class LeakMemory(Steady):
    """Takes as many MiB after each card as the control file says, and never gives them back."""

    def after_card(self, index: int) -> None:
        leak(self.control)
        if index == 4 and len(LEAKED[0]) * (index + 1) > 128 << 20:
            hang()  # until it is noticed: how soon that is depends on the machine


class SwallowMemory(Steady):
    """Takes as many MiB for one card as the control file says, one by one, in a call that does not return."""

    def at_card(self, index: int) -> None:
        if index == BAD and self.control != "0":
            for _ in range(int(self.control)):
                leak("1")
                time.sleep(0.005)
            hang()


class SlowWithMuchMemory(Steady):
    """Takes as many MiB before a card that takes long."""

    def at_card(self, index: int) -> None:
        if index == BAD:
            time.sleep(60)

    def after_card(self, index: int) -> None:
        if index == BAD - 1:
            leak(self.control)


class LeakDescriptors(Steady):
    def at_card(self, index: int) -> None:
        for _ in range(10):
            os.dup(self.fd)


class Killed(Steady):
    """Ends itself by the signal that the control file names while it reads a card, the first so many times.

    As from outside: a process cannot see who sent it a signal. The control file: ``SIGKILL 2``.
    """

    def at_card(self, index: int) -> None:
        name, _, times = self.control.partition(" ")
        if index == BAD and int(times or 0) > 0:
            self.control_file.write_text(f"{name} {int(times) - 1}")
            os.kill(os.getpid(), signal.Signals[name])
            hang()


class ForkAndCrash(Steady):
    """Leaves a copy of itself that holds all its descriptors, and crashes as it opens the library."""

    def at_open(self) -> None:
        pid = os.fork()
        if pid == 0:
            hang()
        self.control_file.write_text(str(pid))
        os.write(2, b"segmentation fault in libvendor.so\n")
        os.kill(os.getpid(), signal.SIGSEGV)


class Daemonise(Steady):
    """Starts a helper in a session of its own, which no longer has anything of this process but its environment."""

    def at_open(self) -> None:
        helper = "import os, sys, time; os.fork() and os._exit(0); sys.stdout.write(str(os.getpid())); "
        helper += "sys.stdout.flush(); os.close(1); time.sleep(3600)"
        started = subprocess.run(
            [sys.executable, "-I", "-S", "-c", helper],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        self.control_file.write_text(started.stdout.decode())


class DaemoniseAndCrash(Daemonise):
    def at_rest(self) -> None:
        os.abort()


class Dump(Steady):
    """Says how large a core it may leave."""

    def at_rest(self) -> None:
        import resource

        self.control_file.write_text(" ".join(map(str, resource.getrlimit(resource.RLIMIT_CORE))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("--control", type=Path, required=True)
    parser.add_argument("--period", type=float, required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--assume", action="append", default=[])
    options = parser.parse_args()
    with options.control.with_suffix(".starts").open("a") as starts:
        starts.write(f"{os.getpid()} {' '.join(['skip', *options.skip, 'only', *options.only])}\n")
    globals()[options.mode](options).run(options.period)


if __name__ == "__main__":
    main()
