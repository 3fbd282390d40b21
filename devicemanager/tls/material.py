"""The parts of a TLS context: a certificate with its key, trusted CAs, and the context made of them.

Everything here is made once and never changed; :mod:`devicemanager.tls.identity` replaces it. Contexts are made
from bytes already read, so that what was compared is what is served.
"""

import contextlib
import os
import re
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from devicemanager.errors import excerpt
from devicemanager.tls.der import CLIENT_AUTH, SERVER_AUTH, may_be_used, not_after

_PEM_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----")
_PEM_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_ENCODING_DER: Final = 2
"""As the layer below :mod:`ssl` numbers its encodings."""

Use: TypeAlias = Literal["server", "client"]
_USAGES: Final[Mapping[Use, bytes]] = {"server": SERVER_AUTH, "client": CLIENT_AUTH}

_READ_ATTEMPTS: Final = 3
"""A pair is two files. Between reading them the volume may be swapped, which shows in reading the first again."""


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The files of a certificate chain (leaf first) and its private key, both PEM."""

    certificate: Path
    key: Path

    @classmethod
    def in_directory(cls, directory: Path) -> "PairFiles":
        """The names of a Kubernetes TLS Secret."""
        return cls(directory / "tls.crt", directory / "tls.key")

    def read(self) -> tuple[bytes, bytes]:
        """Both files, of one generation as far as two reads can tell.

        Raises:
            OSError: One cannot be read.
        """
        certificate = self.certificate.read_bytes()
        key = self.key.read_bytes()
        for _ in range(_READ_ATTEMPTS):
            again = self.certificate.read_bytes()
            if again == certificate:
                break
            certificate, key = again, self.key.read_bytes()
        return certificate, key


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate chain with its private key.

    Attributes:
        certificate: PEM, leaf first.
        key: PEM, not encrypted.
        not_after: End of the leaf's validity, aware UTC.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    not_after: datetime

    @classmethod
    def parse(cls, certificate: bytes, key: bytes, *, use: Use | None = None) -> "Pair":
        """Check that the two belong together, and that peers will accept them for this use, if any is given.

        Raises:
            ValueError: They do not parse, do not match, are for another use, or the key is encrypted.
        """
        leaf = next(iter(_certificates(certificate)), None)
        if leaf is None:
            raise ValueError("no certificate in the certificate file")
        if not _PEM_KEY.search(key):
            raise ValueError("no PEM private key in the key file")
        if use is not None and not may_be_used(leaf, _USAGES[use]):
            raise ValueError(f"the certificate is not for {use}s: its extended key usage lacks {use}Auth")
        pair = cls(certificate, key, not_after(leaf))
        _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
        return pair


@dataclass(frozen=True, slots=True)
class TrustedCAs:
    """Trusted certificate authorities.

    Attributes:
        pem: The certificates alone, whatever text stood around them.
        members: The same, DER.
    """

    pem: str
    members: frozenset[bytes]

    @classmethod
    def parse(cls, bundle: bytes) -> "TrustedCAs":
        """Take the certificates out of a PEM bundle.

        Raises:
            ValueError: There is none, or one does not parse.
        """
        blocks = _PEM_CERTIFICATE.findall(bundle)
        if not blocks:
            raise ValueError("no certificate in the bundle")
        pem = b"\n".join(blocks).decode("ascii")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=pem)
        except ssl.SSLError as error:
            raise ValueError(reason_of(error)) from error
        return cls(pem, frozenset(_certificates(bundle)))

    @property
    def not_after(self) -> datetime | None:
        """When the first of them ends, aware UTC; None where none says so in a way that is understood here."""
        ends = []
        for member in self.members:
            with contextlib.suppress(ValueError):
                ends.append(not_after(member))
        return min(ends, default=None)


def server_context(pair: Pair, client_cas: TrustedCAs | None) -> ssl.SSLContext:
    """A fresh context for our side as a server: TLS 1.2 or newer, no tickets.

    Args:
        pair: What we show.
        client_cas: None asks for no client certificate. Otherwise one is asked for, not demanded; one that these
            CAs did not sign fails the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    _load_pair(context, pair)
    if client_cas is not None:
        context.load_verify_locations(cadata=client_cas.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(cas: TrustedCAs | None, pair: Pair | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """A fresh context for our side as a client: TLS 1.2 or newer, host names verified.

    Args:
        cas: Whose certificates a server may show; None takes the system's own.
        pair: What we show when asked; None shows nothing.
        verify: False accepts any certificate; only for an explicit setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif cas is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(cadata=cas.pem)
    if pair is not None:
        _load_pair(context, pair)
    return context


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Give a context exactly the bytes that were read; :mod:`ssl` takes paths only, so they pass through memory.

    Raises:
        ValueError: The pair cannot be used.
    """

    def refuse() -> str:
        # Without this OpenSSL asks on the terminal.
        raise ValueError("the private key is encrypted")

    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pair.certificate + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=refuse)
    except ssl.SSLError as error:
        raise ValueError(reason_of(error)) from error
    finally:
        os.close(descriptor)


def _certificates(pem: bytes) -> list[bytes]:
    """The DER of each certificate, in order.

    Raises:
        ValueError: A block does not hold base64.
    """
    return [ssl.PEM_cert_to_DER_cert(block.decode("ascii")) for block in _PEM_CERTIFICATE.findall(pem)]


def anchor_of(connection: ssl.SSLObject) -> bytes | None:
    """The trust anchor of the peer's verified chain, DER; None when unknown."""
    chain = _verified_chain(connection)
    return chain[-1] if chain else None


def chain_end(connection: ssl.SSLObject) -> datetime | None:
    """When the first certificate of the peer's verified chain ends, aware UTC; None without a certificate."""
    chain = _verified_chain(connection) or [connection.getpeercert(binary_form=True) or b""]
    return min(not_after(certificate) for certificate in chain) if chain[0] else None


def _verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """The DER of the peer's verified chain, leaf first; empty when unknown.

    The ssl module shows it from Python 3.13 on; before, only the C layer below does.
    """
    if sys.version_info >= (3, 13):
        return list(connection.get_verified_chain())
    ask = getattr(getattr(connection, "_sslobj", None), "get_verified_chain", None)
    chain = ask() if ask is not None else None
    return [bytes(one.public_bytes(_ENCODING_DER)) for one in chain or ()]


def reason_of(error: Exception) -> str:
    """One short line that says why a file or a handshake failed, without OpenSSL's source positions."""
    match error:
        case ssl.SSLError(reason=str(reason)) if reason:
            return reason.lower().replace("_", " ")
        case ssl.SSLError(strerror=str(text)):
            return "a PEM block in it is damaged" if "PEM lib" in text else excerpt(text)
        case OSError(strerror=str(text), filename=name) if name is not None:
            return f"{name}: {text}"
        case OSError(strerror=str(text)):
            return excerpt(text)
        case _:
            return excerpt(str(error))
