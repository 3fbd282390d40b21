"""Programs that begin as a copy of a process that has imported everything; see ``template.py``.

From there on they are processes like any other, with their own files, settings, signals and children.
"""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from tests.e2e.template import REQUEST_BYTES

PRINTED_BYTES = 1 << 20


class ForkedProgram:
    """One running program, with as much of the interface of ``subprocess.Popen`` as the tests use."""

    def __init__(self, status: IO[bytes]) -> None:
        self._status = status
        self.pid = int(status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        """The same once it has ended.

        Raises:
            subprocess.TimeoutExpired: It runs on after ``timeout`` seconds.
        """
        code = self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _exit_code(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode


class AwaitedProgram:
    """The same for an event loop, with as much of ``asyncio.subprocess.Process`` as the tests use."""

    def __init__(self, program: ForkedProgram, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._program = program
        self.pid = program.pid
        self.stdout, self.stderr = stdout, stderr
        self.send_signal, self.kill = program.send_signal, program.kill

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._program.poll()

    async def wait(self) -> int:
        """The same once it has ended."""
        return await asyncio.to_thread(self._program.wait)

    async def communicate(self) -> tuple[bytes, bytes]:
        """What is left of its output and its errors, at its end."""
        async with asyncio.TaskGroup() as tasks:
            printed = [tasks.create_task(stream.read()) for stream in (self.stdout, self.stderr)]
        await self.wait()
        out, err = (task.result() for task in printed)
        return out, err


class Template:
    """The process that is copied; programs outlive it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", str(Path(__file__).with_name("template.py"))]
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), env=dict(environment))

    def end(self) -> None:
        """Starts none any more."""
        self._requests.close()
        self._process.wait()

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        output: IO[bytes],
        errors: IO[bytes] | None = None,
    ) -> ForkedProgram:
        """Start ``devicemanager`` with these arguments and this environment alone, in ``folder``.

        Args:
            output: Where it prints to.
            errors: The same for standard error; None for ``output``.
        """
        request = {"arguments": arguments, "environment": dict(environment), "folder": str(folder)}
        raw = json.dumps(request).encode()
        assert len(raw) <= REQUEST_BYTES
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb"):
            socket.send_fds(self._requests, [raw], [output.fileno(), (errors or output).fileno(), writing])
        return ForkedProgram(os.fdopen(reading, "rb", buffering=0))

    async def start_awaited(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> AwaitedProgram:
        """The same for an event loop, with pipes from its output and its errors."""
        loop = asyncio.get_running_loop()
        streams, theirs = [], []
        for _ in range(2):
            reading, writing = os.pipe()
            streams.append(asyncio.StreamReader())
            protocol = partial(asyncio.StreamReaderProtocol, streams[-1])
            await loop.connect_read_pipe(protocol, os.fdopen(reading, "rb", buffering=0))
            theirs.append(os.fdopen(writing, "wb"))
        with theirs[0] as output, theirs[1] as errors:
            program = self.start(arguments, environment, folder, output, errors)
        return AwaitedProgram(program, *streams)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``devicemanager`` to its end, and capture what it prints.

        Raises:
            subprocess.TimeoutExpired: It ran on after ``timeout`` seconds, and was killed.
        """
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            program = self.start(arguments, environment, folder, output, errors)
            try:
                program.wait(timeout)
            finally:
                program.kill()
                code = program.wait()
            return subprocess.CompletedProcess(
                arguments, code, *(os.pread(one.fileno(), 1 << 20, 0) for one in (output, errors))
            )
