"""Files that only their owner may read, written whole: whatever lies at their path, nothing else is written to."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600


def write_whole(path: Path, content: bytes, *, mode: int = PRIVATE, replace: bool = True) -> None:
    """Write a file that appears with all of its content and with this mode, in a folder that others may write to.

    A link at the path is replaced and not followed.

    Args:
        path: In a folder that exists.
        content: All of it.
        mode: Whatever the mode of a file there before.
        replace: Whether what lies there may go.

    Raises:
        FileExistsError: Something lies there, and must not go.
        OSError: It cannot be written.
    """
    fresh = path.with_name(f".{secrets.token_hex(16)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(fresh, flags, PRIVATE), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if replace:
                fresh.replace(path)
            else:
                os.link(fresh, path, follow_symlinks=False)
        finally:
            with suppress(FileNotFoundError):
                fresh.unlink()
