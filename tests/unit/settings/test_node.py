"""Settings: where each value comes from, what is refused, and that everything wrong is said at once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from devicemanager.errors import SettingsError
from devicemanager.programs import hardware
from devicemanager.rules.quantity import format_bytes
from devicemanager.serving.budget import DEVICE_MANAGER, WORKER
from devicemanager.settings.flags import Conflict, Settings, effective, settings_of, with_flags
from devicemanager.settings.loading import load
from devicemanager.settings.node import DetectSettings, MonitorSettings, ServeSettings, SnapshotSettings
from devicemanager.settings.output import LogFormat, LogLevel, Output
from devicemanager.settings.usage import help_text

URL = "https://127.0.0.1:32443"


def serve(*arguments: str, environment: Mapping[str, str] | None = None) -> ServeSettings:
    return load(ServeSettings, arguments, environment or {})


def problems(
    model: type[Settings], arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        load(model, arguments, environment or {})
    return raised.value.problems


def test_defaults_are_a_promise() -> None:
    found = serve()

    assert found.model_dump() == {
        "config": None,
        "manufacturer": "auto",
        "no_pci_check": False,
        "sys_root": Path("/sys"),
        "simulated_scenario": None,
        "card_timeout": None,
        "open_timeout": 30.0,
        "collector_memory_limit": 80 << 20,
        "collector_descriptor_limit": 512,
        "memory_limit": None,
        "node_name": None,
        "monitor_period": 15.0,
        "bind_address": None,
        "secure_port": 32443,
        "cert_dir": None,
        "san": (),
        "client_ca_file": None,
        "client_allowed_names": (),
        "allow_anonymous": False,
        "shutdown_timeout": 5.0,
        "log_format": LogFormat.AUTO,
        "log_level": LogLevel.INFO,
    }
    assert found.address == "127.0.0.1"


def test_flag_goes_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("monitor-period: 3s\nsecure-port: 3\nnode-name: from-file\nlog-level: debug\n")
    environment = {"DEVICEMANAGER_MONITOR_PERIOD": "2s", "DEVICEMANAGER_SECURE_PORT": "2"}

    found = serve("--monitor-period=1s", f"--config={file}", environment=environment)

    assert (found.monitor_period, found.secure_port) == (1.0, 2)
    assert (found.node_name, found.log_level) == ("from-file", LogLevel.DEBUG)
    assert found.open_timeout == 30.0


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("manufacturer: simulated\n")

    assert serve(environment={"DEVICEMANAGER_CONFIG": str(file)}).manufacturer == "simulated"


def test_empty_variables_count_as_not_set() -> None:
    assert serve(environment={"DEVICEMANAGER_SECURE_PORT": ""}).secure_port == 32443


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NODE_NAME": "c"}, "c"),
        ({"NODE_NAME": "c", "KUBERNETES_NODE_NAME": "b"}, "b"),
        ({"NODE_NAME": "c", "KUBERNETES_NODE_NAME": "b", "DEVICEMANAGER_NODE_NAME": "a"}, "a"),
        ({}, None),
    ],
    ids=["kubernetes-habit", "operator", "ours", "none"],
)
def test_node_name_is_also_taken_from_the_variables_pods_usually_have(
    environment: Mapping[str, str], expected: str | None
) -> None:
    assert serve(environment=environment).node_name == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--allow-anonymous"], True),
        (["--allow-anonymous=true"], True),
        (["--allow-anonymous=false"], False),
        (["--allow-anonymous=yes"], True),
        (["--allow-anonymous=off"], False),
        (["--allow-anonymous", "--allow-anonymous=false"], False),
    ],
)
def test_switches(arguments: Sequence[str], expected: bool) -> None:
    assert serve(*arguments).allow_anonymous is expected


def test_a_switch_does_not_swallow_the_argument_after_it() -> None:
    found = load(SnapshotSettings, ["--insecure", URL], {})

    assert found.insecure
    assert found.url == URL


@pytest.mark.parametrize("arguments", [["--san", "a, b,", "--san=c"], ["--san=a,b,c"]], ids=["repeated", "commas"])
def test_lists(arguments: Sequence[str]) -> None:
    assert serve(*arguments).san == ("a", "b", "c")


def test_lists_in_a_file_are_lists(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("san: [a, b]\n")

    assert serve("--config", str(file)).san == ("a", "b")


def test_a_file_gives_text_as_flags_do(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node-name: 0123\nallow-anonymous: yes\nsecure-port: 8443\n")

    found = serve("--config", str(file))

    assert (found.node_name, found.allow_anonymous, found.secure_port) == ("0123", True, 8443)


@pytest.mark.parametrize("short", ["-o", "--output"])
def test_short_flags(short: str) -> None:
    assert load(MonitorSettings, [short, "yaml"], {}).output is Output.YAML


def test_every_problem_of_every_source_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("monitor-perod: 1s\nopen-timeout: forever\n")

    found = problems(
        ServeSettings,
        [f"--config={file}", "--secure-port=99999", "--shout", "stray", "--client-allowed-names=worker", "--san"],
        {"DEVICEMANAGER_LOG_LEVEL": "loud"},
    )

    assert found == (
        "--shout: unknown flag",
        "--san: needs a value (NAME,...)",
        f"{file}: monitor-perod: unknown setting; did you mean monitor-period?",
        f"{file}: open-timeout: forever: not a duration; write for example 15s, 1m30s or 500ms",
        "--secure-port=99999: must be between 1 and 65535, or 0 for any free port",
        "DEVICEMANAGER_LOG_LEVEL=loud: must be one of debug, info, warning, error",
        "--client-allowed-names: names are only checked with --client-ca-file; give it, or drop the names",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--manufaturer", "simulated"], ("--manufaturer: unknown flag; did you mean --manufacturer?",)),
        (["--manufaturer=simulated"], ("--manufaturer: unknown flag; did you mean --manufacturer?",)),
        (["--shout", "loud"], ("--shout: unknown flag",)),
        (["--shout", "--san"], ("--shout: unknown flag", "--san: needs a value (NAME,...)")),
        (
            ["--allow-anonymos", "stray"],
            ("--allow-anonymos: unknown flag; did you mean --allow-anonymous?", "stray: unexpected argument"),
        ),
        (["stray"], ("stray: unexpected argument",)),
    ],
    ids=" ".join,
)
def test_one_mistake_is_one_problem(arguments: Sequence[str], expected: Sequence[str]) -> None:
    """Neither its value is one more, nor what follows from the setting that it was meant for being unset."""

    def rule(settings: ServeSettings) -> Iterator[Conflict]:
        if settings.manufacturer == "auto" and "--manufa" in arguments[0]:
            yield Conflict(("manufacturer",), "no card is there")

    with pytest.raises(SettingsError) as caught:
        load(ServeSettings, arguments, {}, rule)

    assert caught.value.problems == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--insecur", "node-1"], ["--insecur: unknown flag; did you mean --insecure?"]),
        (["--ca-fle", "/ca", "node-1"], ["--ca-fle: unknown flag; did you mean --ca-file?"]),
        (["--shout", "node-1"], ["--shout: unknown flag"]),
        (["--shout"], ["--shout: unknown flag", "URL: is required"]),
    ],
    ids=" ".join,
)
def test_what_follows_an_unknown_flag_may_be_what_the_program_is_about(
    arguments: Sequence[str], expected: Sequence[str]
) -> None:
    assert problems(SnapshotSettings, arguments) == tuple(expected)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--monitor-period=999ms", "--monitor-period=999ms: must be between 1s and 1h"),
        ("--monitor-period=15", "--monitor-period=15: not a duration; write for example 15s, 1m30s or 500ms"),
        ("--monitor-period=-15s", "--monitor-period=-15s: not a duration; write for example 15s, 1m30s or 500ms"),
        ("--monitor-period=", "--monitor-period=: not a duration; write for example 15s, 1m30s or 500ms"),
        ("--monitor-period=1e3s", "--monitor-period=1e3s: not a duration; write for example 15s, 1m30s or 500ms"),
        ("--bind-address=example.org", "--bind-address=example.org: must be an IP address"),
        ("--cert-dir=/nowhere", "--cert-dir=/nowhere: no such directory"),
        ("--client-ca-file=/nowhere", "--client-ca-file=/nowhere: no such file"),
        ("--secure-prt=1", "--secure-prt: unknown flag; did you mean --secure-port?"),
        (
            "--secure-port=x",
            "--secure-port=x: must be between 1 and 65535, or 0 for any free port",
        ),
        ("--config=/nowhere", "--config=/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_given(argument: str, expected: str) -> None:
    assert problems(ServeSettings, [argument]) == (expected,)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"- a\n- b\n", "must be a mapping of settings"),
        (b"just text", "must be a mapping of settings"),
        (b"a: [", "is not YAML: expected the node content, but found '<stream end>' (line 1, column 5)"),
        (b"a: 1\nb: 2: 3\n", "is not YAML: mapping values are not allowed here (line 2, column 5)"),
        (b"\xff\xfe\xff", "is not text in UTF-8"),
        (b"config: other.yaml\n", "config: unknown setting"),
        (b"[" * 1000, "is nested too deep"),
        (b"[]", "must be a mapping of settings"),
        (b"san: a\nnode-name: x\nsan: b\n", "san: is there twice"),
        (b"node-name: []\n", "node-name: []: must be text"),
        (b"node-name: {}\n", "node-name: {}: must be text"),
        (b"node-name: [a, b]\n", "must be text"),
        (b"monitor-period: [15s]\n", "must be a number"),
        (b"san: {a: b}\n", "must be a list, or values separated by commas"),
        (b"san: [[a]]\n", "must be"),
        (b"allow-anonymous: [yes]\n", "must be true or false"),
        (b"allow-anonymous: perhaps\n", "must be true or false"),
    ],
    ids=[
        *["list", "text", "unfinished", "two-in-one", "not-utf-8", "another-file", "deep", "empty-list", "twice"],
        *["list-for-text", "mapping-for-text", "names-for-text", "list-for-duration", "mapping-for-list", "lists"],
        *["list-for-switch", "word-for-switch"],
    ],
)
def test_files_that_hold_no_settings(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(content)

    (problem,) = problems(ServeSettings, [f"--config={file}"])

    assert expected in problem


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("# nothing yet\nsan:\n")

    assert serve(f"--config={file}").san == ()


@pytest.fixture
def authority(tmp_path: Path) -> str:
    file = tmp_path / "ca.crt"
    file.write_text("read later")
    return f"--client-ca-file={file}"


def test_without_a_way_to_check_clients_it_listens_on_loopback_only() -> None:
    (problem,) = problems(ServeSettings, ["--bind-address=0.0.0.0"])

    assert problem == (
        "--bind-address=0.0.0.0: anyone who reaches it could read the snapshot; give --client-ca-file to require "
        "client certificates, or --allow-anonymous to let anyone read"
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_any_loopback_address_needs_no_client_check(address: str) -> None:
    assert serve(f"--bind-address={address}").address == address


def test_it_listens_everywhere_once_clients_are_checked_or_anyone_may_read(authority: str) -> None:
    assert serve(authority).address == "0.0.0.0"
    assert serve("--allow-anonymous").address == "0.0.0.0"
    assert serve("--allow-anonymous", "--bind-address=::").address == "::"


def test_a_file_that_cannot_be_read_is_the_only_problem_that_is_known() -> None:
    def rules(_settings: ServeSettings) -> list[Conflict]:
        raise AssertionError("what the file says of the hardware is not known")

    with pytest.raises(SettingsError) as raised:
        load(ServeSettings, ["--config=/nowhere", "--bind-address=0.0.0.0"], {}, rules)

    assert raised.value.problems == ("--config=/nowhere: cannot be read: No such file or directory",)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--allow-anonymous=perhaps", "must be true or false"),
        ("--log-format=xml", "must be one of auto, json, console"),
        ("--san=a/b", "must be DNS names and IP addresses"),
        ("--san=node-1,n\u00f6de", "must be DNS names and IP addresses"),
        ("--secure-port=https", "must be between 1 and 65535, or 0 for any free port"),
    ],
)
def test_what_a_value_must_be_is_said_in_our_words(argument: str, expected: str) -> None:
    assert problems(ServeSettings, [argument]) == (f"{argument}: {expected}",)


def test_a_problem_with_a_file_names_the_flag_that_gave_it(tmp_path: Path) -> None:
    settings = serve(f"--cert-dir={tmp_path}")

    assert with_flags(settings, [f"{tmp_path}/tls.crt: gone", f"{tmp_path}x: is another"]) == [
        f"--cert-dir: {tmp_path}/tls.crt: gone",
        f"{tmp_path}x: is another",
    ]


def test_a_rule_is_not_reported_when_one_of_its_settings_is_invalid() -> None:
    assert problems(ServeSettings, ["--bind-address=0.0.0.0", "--client-ca-file=/nowhere"]) == (
        "--client-ca-file=/nowhere: no such file",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--card-timeout=15s"], "--card-timeout: 15s must be shorter than --monitor-period (15s)"),
        (["--no-pci-check"], "name one with --manufacturer"),
        (["--simulated-scenario={file}", "--manufacturer=nvidia"], "or give --manufacturer=simulated"),
        (["--client-ca-file={file}", "--allow-anonymous"], "drop one of them"),
        (["--cert-dir={folder}", "--san=a"], "drop one of them"),
    ],
    ids=["card-timeout", "no-pci-check", "scenario", "anonymous", "san"],
)
def test_settings_that_do_not_go_together(tmp_path: Path, arguments: Sequence[str], expected: str) -> None:
    file = tmp_path / "file"
    file.write_text("")

    (problem,) = problems(ServeSettings, [one.format(file=file, folder=tmp_path) for one in arguments])

    assert expected in problem


@pytest.mark.parametrize(
    "url", ["", "a:0", "a:x", "a b", "[::1", "http://127.0.0.1", "https://", "https://a:x", "https://[::1"]
)
def test_snapshot_addresses_that_are_none(url: str) -> None:
    assert problems(SnapshotSettings, [url]) == ("URL: must look like HOST, HOST:PORT or https://HOST:PORT",)


@pytest.mark.parametrize("url", ["user:pw@node-1", "user@node-1:32443", "https://:pw@node-1", "https://@node-1/x"])
def test_an_address_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    (problem,) = problems(SnapshotSettings, [url])

    assert problem.startswith("URL: must hold neither user nor password")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--simulated-scenario={folder}", "is a directory, and must be a file"),
        ("--client-ca-file={folder}", "is a directory, and must be a file"),
        ("--cert-dir={file}", "is a file, and must be a directory"),
        ("--sys-root={file}", "is a file, and must be a directory"),
        ("--config={folder}", "cannot be read: Is a directory"),
    ],
)
def test_a_path_to_the_wrong_kind_of_thing_says_which(tmp_path: Path, argument: str, expected: str) -> None:
    file = tmp_path / "file"
    file.touch()
    given = argument.format(folder=tmp_path, file=file)

    assert f"{given}: {expected}" in problems(ServeSettings, [given])


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:32443", "https://127.0.0.1:32443"),
        ("127.0.0.1", "https://127.0.0.1:32443"),
        ("node-1", "https://node-1:32443"),
        ("node-1.example:8443", "https://node-1.example:8443"),
        ("node-1/monitor/snapshot", "https://node-1:32443/monitor/snapshot"),
        ("node-1:443/metrics", "https://node-1:443/metrics"),
        ("127.0.0.1?x=1", "https://127.0.0.1:32443?x=1"),
        ("node-1#/x", "https://node-1:32443#/x"),
        ("::1", "https://[::1]:32443"),
        ("[::1]", "https://[::1]:32443"),
        ("[::1]:443", "https://[::1]:443"),
        ("https://node-1", "https://node-1"),
        ("https://node-1:1/x", "https://node-1:1/x"),
    ],
)
def test_a_device_manager_is_named_as_briefly_as_possible(given: str, url: str) -> None:
    found = load(SnapshotSettings, [given], {})

    assert isinstance(found, SnapshotSettings)
    assert found.url == url


def test_what_is_required_is_missed_together_with_other_problems() -> None:
    assert problems(SnapshotSettings, ["--timeout=never"]) == (
        "URL: is required",
        "--timeout=never: not a duration; write for example 15s, 1m30s or 500ms",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--cert={file}"], "--cert, --key: a client certificate needs both"),
        (["--insecure", "--ca-file={file}"], "--insecure: would make --ca-file pointless; drop one of them"),
    ],
)
def test_snapshot_settings_that_do_not_go_together(tmp_path: Path, arguments: Sequence[str], expected: str) -> None:
    file = tmp_path / "file"
    file.write_text("")

    assert problems(SnapshotSettings, [URL, *(one.format(file=file) for one in arguments)]) == (expected,)


def test_the_least_memory_is_for_the_program_to_say() -> None:
    assert serve("--memory-limit=1").memory_limit == 1
    assert problems(ServeSettings, ["--memory-limit=2048Ti"]) == (
        "--memory-limit=2048Ti: must be at most 1048576Gi",
    )


def test_the_help_names_the_memory_that_each_server_is_designed_for() -> None:
    (limit,) = (setting for setting in settings_of(ServeSettings) if setting.name == "memory_limit")
    designed = (format_bytes(program.designed_bytes) for program in (DEVICE_MANAGER, WORKER))

    assert limit.default == "the limit of its cgroup, else {} for serve and {} for worker".format(*designed)


@pytest.mark.parametrize("key", ["monitor-period", "secure-port", "kubelet-mode", "once", "namespace"])
def test_what_another_command_has_is_said_to_be_of_another_one(tmp_path: Path, key: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"{key}: 5s\n")

    assert problems(MonitorSettings, [f"--config={file}"]) == (
        f"{file}: {key}: not a setting of this command, but of another one",
    )
    assert problems(MonitorSettings, [f"--{key}=5s"]) == (
        f"--{key}: not a flag of this command, but of another one",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--foo"], ["--foo: unknown flag"]),
        (["foo"], ["foo: unexpected argument"]),
        (
            ["--foo", "--manufacturer=nobody"],
            ["--foo: unknown flag", "--manufacturer=nobody: unknown; known are "],
        ),
        (["--no-pci-check"], ["--no-pci-check: without the PCI bus nothing tells"]),
    ],
    ids=["flag", "argument", "beside-another", "no-bus"],
)
def test_one_mistake_is_one_problem_also_where_no_card_is_found(
    tmp_path: Path, arguments: Sequence[str], expected: Sequence[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(MonitorSettings, [*arguments, f"--sys-root={tmp_path}"], {}, hardware.rules)

    assert len(raised.value.problems) == len(expected)
    assert all(map(str.startswith, raised.value.problems, expected))


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        serve().secure_port = 1  # type: ignore[misc]


@pytest.mark.parametrize("model", [ServeSettings, DetectSettings, MonitorSettings, SnapshotSettings])
def test_help_shows_every_flag_variable_and_default(model: type[Settings]) -> None:
    text = help_text("devicemanager x", "What it does.", model)

    for setting in settings_of(model):
        assert setting.flag in text
        assert all(variable in text for variable in setting.variables)
    assert "Usage: devicemanager x " in text
    assert max(map(len, text.splitlines())) <= 100
    assert "--manufacturer NAME" in text or model is SnapshotSettings


def test_no_two_settings_of_a_program_share_a_name_or_a_letter() -> None:
    for model in (ServeSettings, DetectSettings, MonitorSettings, SnapshotSettings):
        flags = [setting.flag for setting in settings_of(model)]
        letters = [setting.spec.short for setting in settings_of(model) if setting.spec.short]
        assert len(set(flags)) == len(flags)
        assert len(set(letters)) == len(letters)


def test_effective_settings_are_spelled_as_in_a_file(tmp_path: Path) -> None:
    given = effective(serve("--monitor-period=90s", "--allow-anonymous", f"--sys-root={tmp_path}", "--san=a,b"))

    assert given["monitor-period"] == "1m30s"
    assert given["allow-anonymous"] == "true"
    assert given["sys-root"] == str(tmp_path)
    assert given["san"] == "a,b"
    assert given["secure-port"] == "32443"
    assert "cert-dir" not in given
    assert "config" not in given


SIZE = "must be a size such as 80Mi: whole bytes, or a number with k, M, G, T, Ki, Mi, Gi or Ti"


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--collector-memory-limit=64Mi", 64 << 20),
        ("--collector-memory-limit=1.5Gi", 1536 << 20),
        ("--collector-memory-limit=67108864", 64 << 20),
        ("--collector-memory-limit=0.1Ki", SIZE),
        ("--collector-memory-limit=64MB", SIZE),
        ("--collector-memory-limit=-1", SIZE),
        ("--collector-memory-limit=64", "must be between 16Mi and 64Gi"),
    ],
)
def test_sizes_are_quantities(flag: str, expected: int | str) -> None:
    if isinstance(expected, int):
        assert serve(flag).collector_memory_limit == expected
        return
    with pytest.raises(SettingsError) as refused:
        serve(flag)
    assert refused.value.problems == (f"{flag}: {expected}",)


@pytest.mark.parametrize("count", ["63", "2000000", "many"])
def test_a_limit_of_descriptors_is_a_sensible_number(count: str) -> None:
    with pytest.raises(SettingsError) as refused:
        serve(f"--collector-descriptor-limit={count}")
    what = "must be a whole number" if count == "many" else "must be between 64 and 1048576"
    assert refused.value.problems == (f"--collector-descriptor-limit={count}: {what}",)
