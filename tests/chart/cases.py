"""Values to render the chart with: a file for each installation on the pages, and their choices combined.

The choices are too many for each combination of all; each combination of two is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final

import yaml

Values = Mapping[str, Any]

FILES: Final[Mapping[str, Values]] = {
    path.stem: yaml.safe_load(path.read_text()) or {}
    for path in sorted((Path(__file__).parent / "values").glob("*.yaml"))
}

PEM: Final = "-----BEGIN CERTIFICATE-----\ngiven\n-----END CERTIFICATE-----\n"
_GIVEN: Final = {"deviceManager": "dm", "worker": "w", "workerClient": "c", "scraperClient": "s", "caBundle": PEM}
_NETWORK: Final = [{"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]
_ADDRESSES: Final = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]

CHOICES: Final[Mapping[str, Mapping[str, Values]]] = {
    "certificates": {
        "cert-manager": {"tls": {"mode": "certManager"}},
        "an-issuer": {"tls": {"mode": "certManager", "certManager": {"issuerRef": {"name": "company"}}}},
        "existing": {"tls": {"mode": "existingSecret", "existingSecret": _GIVEN}},
        "bundle": {
            "tls": {
                "mode": "existingSecret",
                "existingSecret": _GIVEN,
                "trustBundle": {"configMap": "all", "apiServiceSecret": "all"},
            }
        },
    },
    "kubelet": {
        "proxy": {},
        "direct": {"worker": {"kubelet": {"mode": "direct"}}},
        "own-ca": {"worker": {"kubelet": {"mode": "direct", "certificateAuthority": PEM}}},
        "unverified": {"worker": {"kubelet": {"mode": "direct", "insecureSkipVerify": True}}},
    },
    "group": {
        "default": {},
        "own": {"worker": {"apiService": {"group": "metrics.example.org"}}},
        "taken-over": {"worker": {"apiService": {"takeOver": True}}},
        "unregistered": {"worker": {"apiService": {"create": False}}},
    },
    "peers": {
        "own": {},
        "the-operator's": {
            "worker": {"deviceManagers": {"namespace": "gpustack-system", "insecureSkipVerify": True}}
        },
        "for-the-operator": {"deviceManager": {"allowAnonymous": True}},
    },
    "cards": {
        "nvidia": {},
        "simulated": {"manufacturers": {"nvidia": {"enabled": False}, "simulated-east": {"enabled": True}}},
        "mounted": {"manufacturers": {"amd": {"enabled": True, "privileged": True, "supplementalGroups": [44]}}},
        "plug-in": {"manufacturers": {"acme": {"enabled": True, "image": {"repository": "acme"}}}},
    },
    "workers": {
        "two": {},
        "one": {"worker": {"replicas": 1}},
        "none": {"worker": {"replicas": 0}},
        "not-installed": {"worker": {"enabled": False}},
    },
    "network": {
        "open": {},
        "policies": {
            "worker": {"networkPolicy": {"enabled": True}},
            "deviceManager": {"networkPolicy": {"scrapers": [{"podSelector": {}}]}},
        },
        "narrowed": {
            "worker": {"networkPolicy": {"enabled": True, "controlPlane": [{"ipBlock": {"cidr": "192.0.2.0/28"}}]}},
            "deviceManager": {"networkPolicy": {"enabled": True, "extraIngress": _NETWORK}},
        },
        "the-host's": {"worker": {"hostNetwork": True, "securePort": 10261}},
        "no-policies": {"deviceManager": {"networkPolicy": {"enabled": False}}},
        "outbound": {
            "worker": {
                "networkPolicy": {"egress": {"enabled": True, "apiServer": _ADDRESSES, "kubelets": _ADDRESSES}}
            }
        },
    },
    "scraped": {"no": {}, "yes": {"deviceManager": {"podMonitor": {"enabled": True}}}},
    "platform": {
        "any": {},
        "gke": {"priorityClassQuota": {"create": True}},
        "openshift": {
            part: {"podSecurityContext": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))}
            for part in ("deviceManager", "worker")
        },
        "no-definition": {"instanceCrd": {"create": True}},
    },
    "accounts": {
        "made": {},
        "given": {
            part: {"serviceAccount": {"create": False, "name": f"given-{part.lower()}"}}
            for part in ("deviceManager", "worker")
        },
    },
}
"""What the pages let an administrator choose, and the values that say so."""


def pairs() -> Iterator[Mapping[str, str]]:
    """Choices such that any two options of different ones are together in one of them; the same each time."""
    names = list(CHOICES)
    missing = {
        ((one, a), (two, b)) for one, two in combinations(names, 2) for a, b in product(CHOICES[one], CHOICES[two])
    }
    while missing:
        chosen: dict[str, str] = dict(min(missing))
        for name in names:
            if name not in chosen:
                chosen[name] = max(CHOICES[name], key=lambda option: _gain({**chosen, name: option}, missing))
        yield {name: chosen[name] for name in names}
        missing -= set(combinations([(name, chosen[name]) for name in names], 2))


def _gain(chosen: Mapping[str, str], missing: set[tuple[tuple[str, str], tuple[str, str]]]) -> int:
    taken = [(name, chosen[name]) for name in CHOICES if name in chosen]
    return sum(pair in missing for pair in combinations(taken, 2))


def together(values: Sequence[Values]) -> Values:
    """Maps merged at every depth; of anything else the last one."""
    made: dict[str, Any] = {}
    for each in values:
        for key, value in each.items():
            old = made.get(key)
            made[key] = together([old, value]) if isinstance(old, dict) and isinstance(value, dict) else value
    return made


COMBINED: Final[Mapping[str, Values]] = {
    "+".join(options.values()): together([CHOICES[name][option] for name, option in options.items()])
    for options in pairs()
}

CASES: Final[Mapping[str, Values]] = {**FILES, **COMBINED}
