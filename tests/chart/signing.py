"""Leaves that the chart's own authority might have signed, each wrong in one way. Helm's keys are RSA."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devicemanager.tls.certificates import PemPair

SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


def signed(
    issuer: PemPair,
    name: str,
    usages: Sequence[x509.ObjectIdentifier] = (SERVER, CLIENT),
    ends_in: timedelta = timedelta(days=1),
) -> PemPair:
    """A leaf for a name, by an authority with an RSA key.

    Args:
        issuer: The authority.
        name: Common name and only DNS name.
        usages: What it may be used for; Helm's leaves may be used for both.
        ends_in: From now; negative for one that has ended.
    """
    authority = x509.load_pem_x509_certificate(issuer.certificate)
    signing = serialization.load_pem_private_key(issuer.key, None)
    assert isinstance(signing, rsa.RSAPrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + ends_in)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return PemPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
