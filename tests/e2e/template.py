"""A process that has imported most programs, and forks to become one of them whenever it is asked.

Importing is most of the processor time that a start takes. :mod:`tests.e2e.forked` asks; this file runs by itself,
and imports nothing of the tests.
"""

import json
import os
import socket
import sys
from pkgutil import resolve_name
from typing import NoReturn

from devicemanager import cli

PROGRAMS = ("serve", "monitor", "detect", "worker", "instance-metrics")
REQUEST_BYTES = 1 << 18


def main() -> int:
    """Fork for each request; one of the children returns from here as the program itself, with its exit code."""
    for command in map(cli.COMMANDS.__getitem__, PROGRAMS):
        for name in (command.settings, command.run, command.rules):
            resolve_name(name)
    requests = socket.socket(fileno=os.dup(0))
    waiting: list[int] = []
    while True:
        raw, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not raw:
            return 0
        output, errors, status = descriptors
        waiting.append(os.fork())
        if waiting[-1] == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        waiting = [pid for pid in waiting if os.waitpid(pid, os.WNOHANG) == (0, 0)]
    requests.close()
    if pid := os.fork():
        wait_for(pid, status)
    request = json.loads(raw)
    for standard, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
        os.dup2(descriptor, standard)
    for descriptor in descriptors:
        os.close(descriptor)
    # Python's own were made for what the template prints to: whether that can seek is remembered.
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return cli.main(request["arguments"])


def wait_for(pid: int, status: int) -> NoReturn:
    """Say which process it is, and then how it ended: negative for a signal."""
    os.write(status, f"{pid}\n".encode())
    os.write(status, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
