from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from devicemanager.tls.certificates import Authority
from devicemanager.tls.der import not_after
from tests.tls_peers import authority


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
