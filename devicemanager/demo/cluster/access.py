"""Authentication and authorization of the stand-in cluster: bearer tokens, RBAC-like rules, and reviews."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from devicemanager.demo.cluster.request_info import RequestInfo
from devicemanager.demo.cluster.selectors import JsonObject
from devicemanager.worker.workloads.registry import WORKLOADS

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
HEALTH_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})
_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class User:
    """A user, perhaps the anonymous one."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def authenticated(self) -> "User":
        """This user with the group that every authenticated user is in."""
        return self if AUTHENTICATED in self.groups else replace(self, groups=(*self.groups, AUTHENTICATED))

    def document(self) -> JsonObject:
        """As TokenReview's ``status.user``."""
        user: JsonObject = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            user["uid"] = self.uid
        if self.extra:
            user["extra"] = {key: list(values) for key, values in self.extra.items()}
        return user


ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class Rule:
    """Allows something; no rule denies.

    Attributes:
        subject: A user's or a group's name.
        verbs: ``*`` for all, as in the other sequences.
        namespace: Only there; None everywhere, the scope of the cluster included.
        names: Only these objects; empty for all.
        paths: For requests that name no resource; a trailing ``*`` matches any ending.
    """

    subject: str
    verbs: Sequence[str]
    groups: Sequence[str] = ("",)
    resources: Sequence[str] = ()
    namespace: str | None = None
    names: Sequence[str] = ()
    paths: Sequence[str] = ()

    def allows(self, user: User, asked: RequestInfo) -> bool:
        """Whether this rule allows it."""
        if self.subject != user.name and self.subject not in user.groups:
            return False
        if not _within(asked.verb, self.verbs):
            return False
        if not asked.resource:
            return any(_path_matches(asked.path, path) for path in self.paths)
        return (
            _within(asked.group, self.groups)
            and _within(asked.rule_resource, self.resources)
            and self.namespace in {None, asked.namespace}
            and (not self.names or asked.authorized_name in self.names)
        )


DISCOVERY: Final = (
    Rule(
        AUTHENTICATED,
        ("get",),
        paths=("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", *HEALTH_PATHS),
    ),
    Rule(AUTHENTICATED, ("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews",)),
)
"""What every authenticated user may do in every cluster."""


def worker_rules(subject: str, system_namespace: str, *, direct_kubelets: bool = False) -> tuple[Rule, ...]:
    """What the worker's service account needs, and nothing else; the chart's roles say the same."""
    sources = [workload.resource.source for workload in WORKLOADS]
    return (
        Rule(subject, ("get",), ("",), ("nodes", "nodes/stats") if direct_kubelets else ("nodes/proxy",)),
        *(Rule(subject, ("get", "list"), (each.group,), (each.plural,)) for each in sources),
        Rule(subject, ("get", "list"), ("",), ("pods",)),
        Rule(subject, ("list", "watch"), ("",), ("pods",), namespace=system_namespace),
        Rule(subject, ("get",), ("metrics.k8s.io",), ("pods",)),
        Rule(subject, ("create",), ("authentication.k8s.io",), ("tokenreviews",)),
        Rule(subject, ("create",), ("authorization.k8s.io",), ("subjectaccessreviews",)),
        Rule(
            subject,
            ("get", "list", "watch"),
            ("",),
            ("configmaps",),
            namespace="kube-system",
            names=("extension-apiserver-authentication",),
        ),
        Rule(subject, ("get",), ("apiregistration.k8s.io",), ("apiservices",)),
    )


class InvalidTokenError(Exception):
    """An unknown bearer token."""


class Access:
    """Tokens and rules, changeable at any moment."""

    def __init__(self) -> None:
        self.tokens: dict[str, User] = {}
        self.rules: list[Rule] = list(DISCOVERY)

    def authenticate(self, authorization: str | None) -> User:
        """Who sent a request.

        Raises:
            InvalidTokenError: There is an ``Authorization`` header, and no user has its token.
        """
        if authorization is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise InvalidTokenError
        return user.authenticated()

    def decide(self, user: User, asked: RequestInfo) -> tuple[bool, str]:
        """Whether the user may do it, and the reason in the words of kube-apiserver's RBAC."""
        if MASTERS in user.groups:
            return True, ""
        for rule in self.rules:
            if rule.allows(user, asked):
                return True, f'RBAC: allowed by a rule of the stand-in cluster to "{rule.subject}"'
        return False, ""

    def review_token(self, review: JsonObject) -> JsonObject:
        """Answer a TokenReview, with the texts of the real one."""
        user = self.tokens.get(review.get("spec", {}).get("token", ""))
        if user is None:
            return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
        status = {
            "authenticated": True,
            "user": user.authenticated().document(),
            "audiences": ["https://kubernetes.default.svc"],
        }
        return {**review, "status": status}

    def review_access(self, review: JsonObject, asking: User | None = None) -> JsonObject:
        """Answer a SubjectAccessReview about the groups it names; with ``asking``, a SelfSubjectAccessReview."""
        spec = review.get("spec", {})
        user = asking or User(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()))
        allowed, reason = self.decide(user, _reviewed(spec))
        return {**review, "status": {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}}


def forbidden_message(user: User, asked: RequestInfo) -> str:
    """The sentence kube-apiserver answers with 403."""
    if not asked.resource:
        return f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
    named = f' "{asked.authorized_name}"' if asked.authorized_name else ""
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return (
        f'{qualified}{named} is forbidden: User "{user.name}" cannot {asked.verb} resource "{asked.rule_resource}" '
        f'in API group "{asked.group}" {where}'
    )


def _reviewed(spec: JsonObject) -> RequestInfo:
    """The request that the ``spec`` of a SubjectAccessReview describes."""
    if (paths := spec.get("nonResourceAttributes")) is not None:
        return RequestInfo(paths.get("verb", ""), paths.get("path", ""))
    asked = spec.get("resourceAttributes") or {}
    keys = ("group", "namespace", "resource", "subresource", "name")
    return RequestInfo(asked.get("verb", ""), "", **{key: asked.get(key, "") for key in keys})


def _within(value: str, allowed: Sequence[str]) -> bool:
    return _ANY in allowed or value in allowed


def _path_matches(path: str, pattern: str) -> bool:
    if pattern.endswith(_ANY):
        return path.startswith(pattern[:-1])
    return path == pattern
