"""The Pod Security Standards as rules on a pod's spec: which level admits it, and why a stricter one does not.

https://kubernetes.io/docs/concepts/security/pod-security-standards/, less what is of Windows.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

LEVELS: Final = ("restricted", "baseline", "privileged")
_CAPABILITIES: Final = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
_SELINUX_TYPES: Final = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_VOLUMES: Final = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
}

Pod = Mapping[str, Any]


def level(pod: Pod) -> str:
    """The strictest level that admits the pod."""
    if any(baseline(pod)):
        return "privileged"
    return "baseline" if any(restricted(pod)) else "restricted"


def _contexts(pod: Pod) -> list[Mapping[str, Any]]:
    return [pod.get("securityContext", {}), *(one.get("securityContext", {}) for one in pod["containers"])]


def baseline(pod: Pod) -> Iterator[str]:
    """What baseline forbids."""
    yield from (key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key))
    yield from (f"hostPath {volume['name']}" for volume in pod.get("volumes", ()) if "hostPath" in volume)
    if pod.get("securityContext", {}).get("sysctls"):
        yield "sysctls"
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        if context.get("privileged"):
            yield "privileged"
        yield from set(context.get("capabilities", {}).get("add", ())) - _CAPABILITIES
        if context.get("procMount", "Default") != "Default":
            yield "procMount"
        yield from (f"hostPort {port['hostPort']}" for port in container.get("ports", ()) if port.get("hostPort"))
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if container.get(probe, {}).get("httpGet", {}).get("host"):
                yield f"{probe}.host"
    for context in _contexts(pod):
        options = context.get("seLinuxOptions", {})
        if options.get("type", "") not in _SELINUX_TYPES or options.get("user") or options.get("role"):
            yield "seLinuxOptions"
        if context.get("seccompProfile", {}).get("type") == "Unconfined":
            yield "seccompProfile"
        if context.get("appArmorProfile", {}).get("type") == "Unconfined":
            yield "appArmorProfile"


def restricted(pod: Pod) -> Iterator[str]:
    """What restricted forbids beyond that."""
    own = pod.get("securityContext", {})
    yield from (v["name"] for v in pod.get("volumes", ()) if not _VOLUMES & v.keys())
    for container in pod["containers"]:
        context = {**own, **container.get("securityContext", {})}
        if context.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation"
        if context.get("runAsNonRoot") is not True:
            yield "runAsNonRoot"
        if context.get("runAsUser") == 0:
            yield "runAsUser"
        if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
            yield "seccompProfile"
        capabilities = context.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
            yield "capabilities"
