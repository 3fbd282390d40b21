"""Credentials that a program or an identity provider gives: exec plugins, OIDC and the like.

Both ways are the official ``kubernetes`` package's, which is imported only here. Everything here blocks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from typing_extensions import override

from devicemanager.errors import DocumentError, excerpt

T = TypeVar("T")


def exec_credential(plugin: Mapping[str, object], deadline_s: float) -> Mapping[str, object]:
    """The ``status`` of the ExecCredential that a plugin prints.

    Raises:
        DocumentError: It prints none, or not in time.
    """
    provider = import_module("kubernetes.aio.config.exec_provider").ExecProvider
    node = import_module("kubernetes.aio.config.kube_config").ConfigNode
    status = _run(lambda: provider(node("exec", dict(plugin))).run(), "exec plugin", deadline_s)
    if not isinstance(status, dict) or not (status.get("token") or status.get("clientCertificateData")):
        raise DocumentError("its exec plugin gave no credential")
    return status


def provider_authorization(user: Mapping[str, object], deadline_s: float) -> str:
    """The ``Authorization`` header that the provider named in ``auth-provider`` gives.

    Raises:
        DocumentError: It gives none, or not in time.
    """
    configuration = import_module("kubernetes.aio.client.configuration").Configuration()
    loader = import_module("kubernetes.aio.config.kube_config").KubeConfigLoader(
        {
            "current-context": "",
            "clusters": [{"name": "", "cluster": {"server": "https://unused.example"}}],
            "users": [{"name": "user", "user": dict(user)}],
            "contexts": [{"name": "", "context": {"cluster": "", "user": "user"}}],
        },
        config_base_path="",
        active_context="",
    )
    _run(lambda: loader.load_and_set(configuration), "auth provider", deadline_s)
    authorization = configuration.api_key.get("BearerToken")
    if not isinstance(authorization, str):
        raise DocumentError("its auth provider gave no credential")
    return authorization


def _run(ask: Callable[[], Awaitable[T]], what: str, deadline_s: float) -> T:
    """The answer, on a loop of its own: the package reads files on the loop that runs it."""

    async def within_time() -> T:
        try:
            async with asyncio.timeout(deadline_s):
                return await ask()
        finally:
            await _PluginLoop.end_children()

    try:
        with asyncio.Runner(loop_factory=_PluginLoop) as runner:
            return runner.run(within_time())
    except TimeoutError as error:
        raise DocumentError(f"its {what} did not answer within {deadline_s:.3g} s") from error
    except Exception as error:  # the package raises whatever its parsing trips over
        raise DocumentError(
            f"its {what} gave no credential: {excerpt(str(error) or type(error).__name__)}"
        ) from error


class _PluginLoop(asyncio.SelectorEventLoop):
    """A loop that keeps its child processes, to end a plugin that took too long: the package leaves it running."""

    def __init__(self) -> None:
        super().__init__()
        self._children: list[asyncio.SubprocessTransport] = []

    @override
    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._children.append(transport)
        return transport, protocol

    @classmethod
    async def end_children(cls) -> None:
        """Kills child processes that still run, and waits for them."""
        loop = asyncio.get_running_loop()
        running = (
            [each for each in loop._children if each.get_returncode() is None] if isinstance(loop, cls) else []
        )
        for transport in running:
            transport.kill()
        for transport in running:
            while transport.get_returncode() is None:  # noqa: ASYNC110 - a transport offers nothing to wait on
                await asyncio.sleep(0.01)
            transport.close()
