"""Makes and inspects certificates, in processes that end soon after.

The only module that imports ``cryptography``. A serving process never imports it (8 MiB resident, for one use): it
runs ``python -m devicemanager.tls.certificates self-signed`` and reads its output. The demo, the tests
and people use the small certificate authority. Leaves can do one thing only: a serving certificate cannot be shown
by a client, nor the other way round.
"""

import argparse
import ipaddress
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devicemanager import streams
from devicemanager.argument_parser import ArgumentParser
from devicemanager.errors import excerpt
from devicemanager.rules.object_names import is_peer_name
from devicemanager.tls.material import reason_of
from devicemanager.tls.private_files import write_whole

LEAF_DAYS: Final = 365
AUTHORITY_DAYS: Final = 3650
SELF_SIGNED_DAYS: Final = 3650
"""A self-signed pair is used for as long as its process runs, and must be valid for as long."""

_BACKDATED: Final = timedelta(minutes=5)
"""Peers whose clock is a little behind accept a certificate made a moment ago."""

_COMMON_NAME_LIMIT: Final = 64
"""RFC 5280, appendix A.1, ub-common-name."""


@dataclass(frozen=True, slots=True)
class PemPair:
    """A certificate and its private key, both PEM; the key is not encrypted."""

    certificate: bytes
    key: bytes = field(repr=False)

    def write(self, directory: Path, name: str = "tls") -> None:
        """Write ``<name>.crt`` and ``<name>.key``, the key readable by its owner only."""
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / f"{name}.crt", self.certificate, mode=0o644)
        write_whole(directory / f"{name}.key", self.key)


class Authority:
    """A certificate authority small enough for a demo and for tests."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, *, now: datetime | None = None, days: int = AUTHORITY_DAYS) -> "Authority":
        """A new authority, self-signed, valid from ``now``; negative ``days`` make one that has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, name, key, now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, pair: PemPair) -> "Authority":
        """The authority that :attr:`pem` once gave.

        Raises:
            ValueError: The bytes are not a certificate with an elliptic-curve key.
        """
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an elliptic-curve key")  # noqa: TRY004
        return cls(x509.load_pem_x509_certificate(pair.certificate), key)

    @property
    def pem(self) -> PemPair:
        """The authority's own certificate and key."""
        return _pem(self._certificate, self._key)

    def serving(self, names: Sequence[str], *, now: datetime | None = None, days: int = LEAF_DAYS) -> PemPair:
        """A pair for a server known by these DNS names and IP addresses; the first is its common name."""
        return self._issue(names[0], names, ExtendedKeyUsageOID.SERVER_AUTH, now, days)

    def client(self, name: str, *, now: datetime | None = None, days: int = LEAF_DAYS) -> PemPair:
        """A pair for a client of this common name, which is its only DNS name too."""
        return self._issue(name, [name], ExtendedKeyUsageOID.CLIENT_AUTH, now, days)

    def _issue(
        self, common_name: str, names: Sequence[str], usage: x509.ObjectIdentifier, now: datetime | None, days: int
    ) -> PemPair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        builder = (
            _leaf(_builder(common_name, str(issuer), key, now, days), names, usage)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )  # fmt: skip
        return _pem(builder.sign(self._key, hashes.SHA256()), key)


def self_signed(names: Sequence[str], *, now: datetime | None = None, days: int = SELF_SIGNED_DAYS) -> PemPair:
    """A self-signed serving pair for these DNS names and IP addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _leaf(_builder(names[0], names[0], key, now, days), names, ExtendedKeyUsageOID.SERVER_AUTH)
    return _pem(builder.sign(key, hashes.SHA256()), key)


def host_names() -> list[str]:
    """The names of this machine: its host name, ``localhost``, and the loopback addresses."""
    return [socket.gethostname(), "localhost", "127.0.0.1", "::1"]


def not_after(certificate: bytes) -> datetime:
    """End of the validity of the first certificate of a PEM file, aware UTC.

    Raises:
        ValueError: It does not parse.
    """
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m devicemanager.tls.certificates``. Returns the exit code."""
    return streams.answering("certificates", lambda: _answer(arguments))


def _answer(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{reason_of(error)}\n")
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    match options.what:
        case "self-signed":
            pair = self_signed(list(dict.fromkeys([*host_names(), *options.san])))
            streams.print_answer((pair.certificate + pair.key).decode("ascii").rstrip("\n"))
        case "authority":
            _make(lambda: Authority.create(options.name).pem, options, options.directory, "ca")
        case "serving":
            folder = options.directory / options.names[0]
            _make(lambda: _authority_in(options.directory).serving(options.names), options, folder)
        case "client":
            folder = options.directory / options.name
            _make(lambda: _authority_in(options.directory).client(options.name), options, folder)
        case _:
            streams.print_answer(_end_of(options.file).isoformat())


def _end_of(file: Path) -> datetime:
    try:
        return not_after(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file}: does not begin with a certificate in PEM") from error


def _make(pair: Callable[[], PemPair], options: argparse.Namespace, folder: Path, name: str = "tls") -> None:
    """Write a new pair.

    Raises:
        ValueError: One is there, and may be in use.
    """
    there = [path for path in (folder / f"{name}.crt", folder / f"{name}.key") if path.exists()]
    if there and not options.replace:
        raise ValueError(f"{there[0]}: is there already; --replace makes a new pair in its place")
    pair().write(folder, name)


def _parser() -> argparse.ArgumentParser:
    what = "Make certificates for a demo or a small installation, and say when one ends."
    parser = ArgumentParser(prog="python -m devicemanager.tls.certificates", description=what)
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("self-signed", help="print a self-signed serving pair")
    one.add_argument(
        "--san", type=_peer, action="append", default=[], help="another DNS name or IP address; repeatable"
    )
    authority = commands.add_parser("authority", help="write DIRECTORY/ca.crt and ca.key")
    authority.add_argument("directory", type=Path)
    authority.add_argument("--name", type=_common_name, default="accelerator device manager demo CA")
    serving = commands.add_parser(
        "serving", help="write DIRECTORY/NAME/tls.crt and tls.key, signed by DIRECTORY/ca.key"
    )
    serving.add_argument("directory", type=Path)
    serving.add_argument("names", type=_peer, nargs="+", help="DNS names and IP addresses, the common name first")
    client = commands.add_parser(
        "client", help="write DIRECTORY/NAME/tls.crt and tls.key, signed by DIRECTORY/ca.key"
    )
    client.add_argument("directory", type=Path)
    client.add_argument("name", type=_peer)
    for one in (authority, serving, client):
        one.add_argument("--replace", action="store_true", help="make a new pair where there is one already")
    one = commands.add_parser("inspect", help="print when the first certificate of FILE ends")
    one.add_argument("file", type=Path)
    return parser


def _peer(written: str) -> str:
    """A DNS name or an IP address, which also names a folder."""
    if not is_peer_name(written):
        raise argparse.ArgumentTypeError(f"{excerpt(written)!r} is neither a DNS name nor an IP address")
    return written


def _common_name(written: str) -> str:
    if not written.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return written


def _authority_in(directory: Path) -> Authority:
    certificate, key = directory / "ca.crt", directory / "ca.key"
    try:
        return Authority.load(PemPair(certificate.read_bytes(), key.read_bytes()))
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: no such file; make the authority first") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{certificate} and {key}: not an authority that was made here") from error


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, now: datetime | None, days: int
) -> x509.CertificateBuilder:
    end = (now or datetime.now(UTC)) + timedelta(days=days)
    start = min(now or datetime.now(UTC), end - timedelta(days=1)) - _BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _leaf(
    builder: x509.CertificateBuilder, names: Sequence[str], usage: x509.ObjectIdentifier
) -> x509.CertificateBuilder:
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_LIMIT])])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> PemPair:
    return PemPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
