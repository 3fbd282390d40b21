import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from devicemanager.tls import certificates
from devicemanager.tls.certificates import Authority, PemPair, host_names, main, self_signed
from tests.tls_peers import authority

NOW = datetime(2026, 8, 1, tzinfo=UTC)


def usages(pair: PemPair) -> list[x509.ObjectIdentifier]:
    parsed = x509.load_pem_x509_certificate(pair.certificate)
    return list(parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def alternative_names(certificate: bytes) -> x509.SubjectAlternativeName:
    parsed = x509.load_pem_x509_certificate(certificate)
    return parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_a_leaf_can_do_one_thing_only() -> None:
    assert usages(authority().serving(["a"])) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert usages(authority().client("a")) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert usages(self_signed(["a"])) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_leaf_signs_nothing_and_the_authority_signs_leaves_only() -> None:
    leaf = x509.load_pem_x509_certificate(authority().client("a").certificate)
    root = x509.load_pem_x509_certificate(authority().pem.certificate)

    leaf.verify_directly_issued_by(root)
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    constraints = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)


def test_names_and_addresses_are_told_apart() -> None:
    names = alternative_names(authority().serving(["node-1.example", "10.0.0.1", "::1"]).certificate)

    assert names.get_values_for_type(x509.DNSName) == ["node-1.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("10.0.0.1"), ip_address("::1")]


def test_validity_begins_a_little_early_and_ends_when_asked() -> None:
    made = x509.load_pem_x509_certificate(authority().client("a", now=NOW, days=10).certificate)

    assert made.not_valid_after_utc == NOW + timedelta(days=10)
    assert NOW - timedelta(hours=1) < made.not_valid_before_utc < NOW


def test_an_ended_certificate_can_be_made() -> None:
    made = x509.load_pem_x509_certificate(authority().client("a", now=NOW, days=-1).certificate)

    assert made.not_valid_before_utc < made.not_valid_after_utc == NOW - timedelta(days=1)


def test_an_authority_comes_back_from_its_files(tmp_path: Path) -> None:
    assert main(["authority", str(tmp_path)]) == 0
    assert main(["serving", str(tmp_path), "node-1.example", "10.0.0.1"]) == 0
    assert main(["client", str(tmp_path), "worker"]) == 0

    root = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    for name in ("node-1.example", "worker"):
        made = x509.load_pem_x509_certificate((tmp_path / name / "tls.crt").read_bytes())
        made.verify_directly_issued_by(root)
        assert stat.S_IMODE((tmp_path / name / "tls.key").stat().st_mode) == 0o600


def test_inspect_prints_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Authority.create("a", now=NOW, days=3).pem.write(tmp_path, "ca")

    assert main(["inspect", str(tmp_path / "ca.crt")]) == 0
    assert capsys.readouterr().out == "2026-08-04T00:00:00+00:00\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b"not a certificate", "does not begin with a certificate in PEM"),
    ],
    ids=["missing", "garbage"],
)
def test_inspect_says_what_is_wrong(
    content: bytes | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tls.crt"
    if content is not None:
        path.write_bytes(content)

    assert main(["inspect", str(path)]) == 1
    assert capsys.readouterr().err == f"{path}: {problem}\n"


def test_an_authority_that_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_text("nothing")

    assert main(["client", str(tmp_path), "worker"]) == 1
    named = f"{tmp_path}/ca.crt and {tmp_path}/ca.key"
    assert capsys.readouterr().err == f"{named}: not an authority that was made here\n"


def test_the_help_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    printed = capsys.readouterr().out
    assert "Make certificates for a demo or a small installation" in printed
    assert "imports" not in printed


def test_the_self_signed_process_prints_a_pair_for_this_host() -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "devicemanager.tls.certificates",
            "self-signed",
            "--san",
            "10.0.0.9",
            "--san",
            "extra",
        ],
        capture_output=True,
        check=True,
        timeout=30,
    )

    names = alternative_names(run.stdout)
    found = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    assert set(found) == {*host_names(), "10.0.0.9", "extra"}
    assert b"PRIVATE KEY" in run.stdout
    assert certificates.not_after(run.stdout) > datetime.now(UTC) + timedelta(days=3000)


def test_a_key_is_not_shown_by_accident() -> None:
    assert "PRIVATE" not in repr(authority().pem)


def test_a_second_authority_does_not_take_the_place_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["authority", str(tmp_path)]) == 0
    assert main(["client", str(tmp_path), "worker"]) == 0
    files = [
        tmp_path / "ca.crt",
        tmp_path / "ca.key",
        tmp_path / "worker" / "tls.crt",
        tmp_path / "worker" / "tls.key",
    ]
    before = [path.read_bytes() for path in files]

    assert main(["authority", str(tmp_path)]) == 1
    assert main(["client", str(tmp_path), "worker"]) == 1
    assert main(["serving", str(tmp_path), "worker"]) == 1

    assert [path.read_bytes() for path in files] == before
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"{tmp_path / 'ca.crt'}: is there already; --replace makes a new pair in its place"
    assert len(said) == 3


@pytest.mark.parametrize("left", ["ca.crt", "ca.key"])
def test_half_an_authority_is_not_replaced_either(left: str, tmp_path: Path) -> None:
    (tmp_path / left).write_text("half")

    assert main(["authority", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == [left]


def test_a_pair_is_replaced_on_demand(tmp_path: Path) -> None:
    assert main(["authority", str(tmp_path)]) == 0
    before = (tmp_path / "ca.crt").read_bytes()

    assert main(["authority", str(tmp_path), "--replace"]) == 0
    assert (tmp_path / "ca.crt").read_bytes() != before


@pytest.mark.parametrize("name", ["../outside", "a/b", "", ".", "..", "n\u00f6de", "a b"])
@pytest.mark.parametrize("what", ["serving", "client"])
def test_a_name_that_can_be_no_peers_is_wrong_usage(what: str, name: str, tmp_path: Path) -> None:
    assert main(["authority", str(tmp_path / "pki")]) == 0

    with pytest.raises(SystemExit) as ended:
        main([what, str(tmp_path / "pki"), name])

    assert ended.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["pki"]


def test_without_an_authority_it_says_what_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serving", str(tmp_path), "name"]) == 1

    assert capsys.readouterr().err == f"{tmp_path / 'ca.crt'}: no such file; make the authority first\n"
