from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from devicemanager.tls.certificates import Authority
from devicemanager.tls.der import CLIENT_AUTH, SERVER_AUTH, may_be_used, not_after
from tests.tls_peers import SERVER_NAMES, authority


def der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    "days",
    [pytest.param(-1, id="ended"), pytest.param(365, id="utc-time"), pytest.param(40 * 365, id="generalized-time")],
)
def test_the_end_is_the_one_that_cryptography_reads(days: int) -> None:
    pem = authority().client("worker", now=datetime(2026, 8, 1, 12, 30, 15, tzinfo=UTC), days=days).certificate
    expected = x509.load_pem_x509_certificate(pem).not_valid_after_utc

    assert not_after(der(pem)) == expected


def test_two_digits_of_a_year_from_50_on_are_of_the_last_century() -> None:
    pem = Authority.create("old", now=datetime(1960, 1, 1, tzinfo=UTC), days=1).pem.certificate

    assert not_after(der(pem)) == datetime(1960, 1, 2, tzinfo=UTC)


def test_what_a_certificate_is_for_is_its_extended_key_usage() -> None:
    server, client = (
        der(pem.certificate) for pem in (authority().serving(SERVER_NAMES), authority().client("worker"))
    )

    assert [may_be_used(one, SERVER_AUTH) for one in (server, client)] == [True, False]
    assert [may_be_used(one, CLIENT_AUTH) for one in (server, client)] == [False, True]


def test_a_certificate_without_that_extension_is_for_everything() -> None:
    assert may_be_used(der(authority().pem.certificate), SERVER_AUTH)


def test_a_usage_that_is_all_of_them_is_this_one_too() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1)
        .not_valid_before(datetime(2026, 8, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 8, 1, tzinfo=UTC))
    )
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])
    made = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())

    assert may_be_used(made.public_bytes(serialization.Encoding.DER), SERVER_AUTH)


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_of_a_certificate_that_is_cut_off_nothing_is_said(length: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        may_be_used(der(authority().client("worker").certificate)[:length], SERVER_AUTH)
