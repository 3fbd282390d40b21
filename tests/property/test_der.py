import contextlib
import ssl
from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.tls.der import not_after
from tests.tls_peers import authority

CERTIFICATE = ssl.PEM_cert_to_DER_cert(authority().pem.certificate.decode())


@given(st.binary(max_size=200))
def test_any_bytes_give_a_time_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert not_after(data).tzinfo is UTC


@given(cut=st.integers(min_value=0), flip=st.integers(min_value=0), value=st.integers(0, 255))
def test_a_damaged_certificate_gives_a_time_or_a_value_error(cut: int, flip: int, value: int) -> None:
    damaged = bytearray(CERTIFICATE)
    damaged[flip % len(damaged)] = value
    del damaged[len(damaged) - cut % len(damaged) :]
    with contextlib.suppress(ValueError):
        assert not_after(bytes(damaged)).tzinfo is UTC
