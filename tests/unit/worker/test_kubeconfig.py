"""Kubeconfigs: several files as one, as kubectl joins them, and what a context says."""

from base64 import b64encode
from pathlib import Path

import pytest

from devicemanager.errors import DocumentError
from devicemanager.worker.kubeconfig import bytes_of, impersonation, merge, select, text


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def named(name: str, *, current: str = "") -> str:
    """A whole kubeconfig whose every name and value is this."""
    return f"""
clusters: [{{name: c, cluster: {{server: "https://{name}.example"}}}}, {{name: c-{name}, cluster: {{}}}}]
users: [{{name: u, user: {{token: {name}}}}}]
contexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]
current-context: {current}
"""


def test_of_several_files_the_first_entry_of_a_name_and_the_first_current_context_count(tmp_path: Path) -> None:
    first = write(tmp_path, "first", named("one", current="one"))
    second = write(tmp_path, "second", named("two", current="two"))

    merged = merge([first, second])

    assert merged.current_context == "one"
    assert set(merged.contexts) == {"one", "two"}
    assert set(merged.clusters) == {"c", "c-one", "c-two"}
    assert merged.clusters["c"]["server"] == "https://one.example"
    assert select(merged, None).user == {"token": "one"}
    assert select(merged, "two").cluster["server"] == "https://one.example"


@pytest.mark.parametrize(
    "content", ["", "\n# nothing\n", "current-context: null", "clusters:\nusers:\ncontexts:\n", "apiVersion: v1"]
)
def test_a_file_without_anything_leaves_the_others_as_they_are(tmp_path: Path, content: str) -> None:
    empty, full = write(tmp_path, "empty", content), write(tmp_path, "full", named("one", current="one"))

    for files in ([empty, full], [full, empty], [tmp_path / "missing", full]):
        assert select(merge(files), None).cluster["server"] == "https://one.example"


def test_the_second_files_current_context_counts_where_the_first_has_none(tmp_path: Path) -> None:
    files = [write(tmp_path, "a", named("one")), write(tmp_path, "b", named("two", current="two"))]
    assert merge(files).current_context == "two"


def test_files_are_named_from_the_folder_of_their_kubeconfig(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "deep/config",
        """
clusters: [{name: c, cluster: {server: "https://x", certificate-authority: ../ca.crt}}]
users:
- name: u
  user: {client-certificate: me.crt, client-key: /keys/me.key, tokenFile: token, exec: {command: ./plugin}}
- name: on-path
  user: {exec: {command: plugin}}
""",
    )

    merged = merge([path])

    folder = tmp_path / "deep"
    assert merged.clusters["c"]["certificate-authority"] == str(folder / "../ca.crt")
    assert merged.users["u"] == {
        "client-certificate": str(folder / "me.crt"),
        "client-key": "/keys/me.key",
        "tokenFile": str(folder / "token"),
        "exec": {"command": str(folder / "./plugin")},
    }
    assert merged.users["on-path"]["exec"] == {"command": "plugin"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not YAML"),
        ("current-context: 2026-13-45", "is not YAML"),
        pytest.param("current-context: " + "1" * 5000, "is not YAML", id="a number of 5,000 digits"),
        ("users: [{name: u, user: {token: 'my-secret}}]", "is not YAML, see line"),
        ("[]", "is not a kubeconfig"),
        ("just text", "is not a kubeconfig"),
        ("clusters: 7", "clusters of .* is not a list"),
        ("users: {}", "users of .* is not a list"),
        ("contexts: [7]", "contexts of .* holds something that is none"),
        ("users: [{user: {token: my-secret}}]", "users of .* holds something that is none"),
        ("users: [{name: u, user: my-secret}]", "users of .* holds something that is none"),
        ("users: [{name: u}, {name: u}]", "two users of the name 'u'"),
        ("users: [{name: u, user: {tokenFile: [my-secret]}}]", "tokenFile is not text"),
    ],
)
def test_what_is_no_kubeconfig_is_said_without_its_content(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem) as caught:
        merge([write(tmp_path, "config", content)])

    assert "my-secret" not in str(caught.value)


def test_no_file_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        merge([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(DocumentError, match="no such file"):
        merge([])


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ("nowhere", "there is no context 'nowhere'"),
        ("no-cluster", "context 'no-cluster' names the cluster 'gone', which is not there"),
        ("no-user", "context 'no-user' names the user 'gone', which is not there"),
        (None, "it names no current context"),
    ],
)
def test_a_context_that_leads_nowhere_is_named(tmp_path: Path, context: str | None, problem: str) -> None:
    path = write(
        tmp_path,
        "config",
        """
clusters: [{name: c, cluster: {}}]
contexts:
- {name: no-cluster, context: {cluster: gone}}
- {name: no-user, context: {cluster: c, user: gone}}
- {name: nobody, context: {cluster: c}}
- {name: empty}
""",
    )
    merged = merge([path])

    with pytest.raises(DocumentError, match=problem):
        select(merged, context)
    assert select(merged, "nobody").user == {}


def test_data_counts_before_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"from the file")
    entry = {"client-key": str(tmp_path / "file"), "client-key-data": b64encode(b"inline").decode()}

    assert bytes_of(entry, "client-key") == b"inline"
    assert bytes_of({**entry, "client-key-data": ""}, "client-key") == b"from the file"
    assert bytes_of({}, "client-key") is None
    for wrong in ("a", "YWJ\N{SNOWMAN}"):
        with pytest.raises(DocumentError, match="client-key-data is not base64"):
            bytes_of({"client-key-data": wrong}, "client-key")
    with pytest.raises(FileNotFoundError):
        bytes_of({"client-key": str(tmp_path / "gone")}, "client-key")


def test_a_number_is_no_text() -> None:
    assert text({"token": None}, "token") == text({}, "token") == ""
    with pytest.raises(DocumentError, match="token is not text"):
        text({"token": 12345}, "token")


def test_whom_a_user_acts_as() -> None:
    user = {
        "as": "jane",
        "as-uid": "u-1",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Acme.com/Project": ["a", "b"]},
    }

    assert impersonation(user) == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "u-1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-acme.com%2Fproject", "a"),
        ("Impersonate-Extra-acme.com%2Fproject", "b"),
    )
    assert impersonation({"as": "", "as-groups": None, "as-user-extra": None}) == ()


@pytest.mark.parametrize(
    "user",
    [
        {"as-groups": ["dev"]},
        {"as-uid": "u"},
        {"as": "jane\r\nX-Other: 1"},
        {"as": "j", "as-groups": "dev"},
        {"as": "j", "as-groups": [1]},
        {"as": "j", "as-user-extra": ["a"]},
        {"as": "j", "as-user-extra": {"k": "v"}},
        {"as": 7},
    ],
)
def test_what_cannot_be_impersonated_is_refused_and_not_left_out(user: dict[str, object]) -> None:
    with pytest.raises(DocumentError):
        impersonation(user)
