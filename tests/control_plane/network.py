"""A network of this process's own, in which every 10.x address is this machine's.

kube-apiserver refuses to reach nodes, pods and services at loopback addresses; in here they have ordinary ones.
"""

import ctypes
import os
import subprocess

from tests.control_plane.binaries import on_path

_NEW_NETWORK = 0x4000_0000
_NEW_USER = 0x1000_0000


class NoNetworkError(Exception):
    """This process may not make a network of its own; the message says why."""


def enter() -> None:
    """Move this process, and all that it starts from now on, into a new network. There must be one thread only.

    Raises:
        NoNetworkError: Neither root nor a user namespace is to be had.
    """
    user, group = os.getuid(), os.getgid()
    if os.geteuid() != 0:
        _unshare(_NEW_USER | _NEW_NETWORK)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {user} 1")
        _write("/proc/self/gid_map", f"0 {group} 1")
    else:
        _unshare(_NEW_NETWORK)
    ip = on_path("ip", "apt-get install iproute2")
    for command in (["link", "set", "lo", "up"], ["route", "add", "local", "10.0.0.0/8", "dev", "lo"]):
        subprocess.run([ip, *command], check=True)


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise NoNetworkError(f"no network of its own: {os.strerror(ctypes.get_errno())}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
