"""Certificate authorities made on the spot: for the demo, and for tests that need a second, wrong one.

Short-lived keys on the NIST P-256 curve. Only the demo's own process imports ``cryptography``; the programs it
starts read the files.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from devicemanager.clock import Clock, SystemClock

VALIDITY: Final = timedelta(days=2)
"""Long enough for a demo left open overnight, short enough to be worthless afterwards."""

BACKDATED: Final = timedelta(minutes=10)
"""Clocks differ: a certificate is valid a little before it was made."""


class Purpose(Enum):
    """What a certificate may be used for: one thing."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, stem: str = "tls") -> tuple[Path, Path]:
        """Write ``<stem>.crt`` and ``<stem>.key`` (readable by the owner only) into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{stem}.crt", folder / f"{stem}.key"
        key.touch(mode=0o600)
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """One certificate authority, living as long as this object."""

    def __init__(self, common_name: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name, ())
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM: what others are told to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, path: Path) -> Path:
        """Write the authority's certificate to ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.certificate)
        return path

    def issue(
        self,
        common_name: str,
        purpose: Purpose,
        names: Sequence[str] = (),
        organizations: Sequence[str] = (),
        validity: timedelta = VALIDITY,
    ) -> KeyPair:
        """A certificate for one purpose.

        Args:
            common_name: Subject CN.
            purpose: The only extended key usage.
            names: Subject alternative names; IP addresses are recognised.
            organizations: Subject O, one each.
            validity: From now; negative makes an expired certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(common_name, organizations), key.public_key(), validity)
        usage = x509.ExtendedKeyUsage([ObjectIdentifier(purpose.value.dotted_string)])
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(usage, critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, validity: timedelta = VALIDITY
    ) -> x509.CertificateBuilder:
        now = self._clock.now()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + validity) - BACKDATED)
            .not_valid_after(now + validity)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
