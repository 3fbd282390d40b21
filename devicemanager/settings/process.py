"""This process's environment: the one module that reads it."""

import os
from collections.abc import Mapping, Sequence
from typing import TypeVar

from devicemanager.settings.flags import ENVIRONMENT_PREFIX, Settings
from devicemanager.settings.loading import Rules, load, no_rules

S = TypeVar("S", bound=Settings)


def from_process(model: type[S], arguments: Sequence[str], rules: Rules = no_rules) -> S:
    """A program's settings, loaded with this process's environment.

    Raises:
        SettingsError: With every problem found.
    """
    return load(model, arguments, os.environ, rules)


def api_server_environment() -> Mapping[str, str]:
    """The variables in which the kubelet tells every pod where the API server is."""
    return {name: value for name, value in os.environ.items() if name.startswith("KUBERNETES_SERVICE_")}


def proxy_environment() -> Mapping[str, str]:
    """The variables that name proxies, for commands that a person runs. Services in a cluster connect directly."""
    names = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    return {name: value for name, value in os.environ.items() if name.upper() in names}


def environment_of_collectors() -> Mapping[str, str]:
    """This process's environment, which a manufacturer's library may read, without what is no library's business.

    That is our own settings, where the API server is, and proxies, whose addresses may hold a password.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((ENVIRONMENT_PREFIX, "KUBERNETES_")) and not name.lower().endswith("_proxy")
    }


def environment_of_children() -> Mapping[str, str]:
    """This process's environment without our own settings: the demo's programs get theirs as flags."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ENVIRONMENT_PREFIX) and name != "KUBECONFIG"
    }
