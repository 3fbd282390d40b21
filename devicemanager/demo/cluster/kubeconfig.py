"""A kubeconfig for one token."""

from base64 import b64encode

import yaml


def kubeconfig_text(server: str, ca: bytes, token: str, namespace: str) -> str:
    """A kubeconfig with one context, YAML; ``ca`` is trusted to have signed the server's certificate, PEM."""
    name = "stand-in"
    cluster = {"server": server, "certificate-authority-data": b64encode(ca).decode()}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
            "current-context": name,
        },
        sort_keys=False,
    )
