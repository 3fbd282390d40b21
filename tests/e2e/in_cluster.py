"""``python -m tests.e2e.in_cluster FOLDER COMMAND...``: a program as in a pod, with the folder as service account.

The package ``kubernetes`` cannot be imported, as in an image that was made for this.
"""

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

from typing_extensions import override

from devicemanager import cli
from devicemanager.programs import worker as program


class _WithoutKubernetes(MetaPathFinder):
    @override
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.partition(".")[0] == "kubernetes":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name="kubernetes")


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutKubernetes())
    program.SERVICE_ACCOUNT = Path(sys.argv[1])  # type: ignore[attr-defined]
    sys.exit(cli.main(sys.argv[2:]))
