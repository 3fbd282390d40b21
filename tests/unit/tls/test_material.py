import ssl
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import serialization

from devicemanager.tls.certificates import PemPair, not_after
from devicemanager.tls.material import Pair, TrustedCAs, client_context, server_context
from tests.tls_peers import (
    SERVER_NAMES,
    authority,
    bundle,
    cas,
    leaf_of,
    parsed,
    shake,
)


class TestServerContext:
    def test_tls_1_1_is_too_old(self) -> None:
        context = server_context(parsed(authority().serving(SERVER_NAMES)), None)

        assert context.minimum_version is ssl.TLSVersion.TLSv1_2

    def test_there_are_no_tickets(self) -> None:
        context = server_context(parsed(authority().serving(SERVER_NAMES)), None)

        assert context.options & ssl.OP_NO_TICKET
        assert context.num_tickets == 0

    def test_a_client_certificate_is_not_asked_for_without_a_ca(self) -> None:
        context = server_context(parsed(authority().serving(SERVER_NAMES)), None)
        serving, _ = shake(context, client_context(cas(authority()), parsed(authority().client("worker"))))

        assert serving.getpeercert() is None

    def test_a_client_certificate_is_optional_with_a_ca(self) -> None:
        context = server_context(parsed(authority().serving(SERVER_NAMES)), cas(authority()))
        without, _ = shake(context, client_context(cas(authority())))
        with_one, _ = shake(context, client_context(cas(authority()), parsed(authority().client("worker"))))

        assert not without.getpeercert()
        shown = with_one.getpeercert()
        assert shown is not None
        assert shown["subject"] == ((("commonName", "worker"),),)

    @pytest.mark.parametrize(
        "pem",
        [
            pytest.param(authority("other").client("worker"), id="of-another-ca"),
            pytest.param(authority().serving(["worker"]), id="for-servers-only"),
            pytest.param(authority().client("worker", days=-1), id="ended"),
        ],
    )
    def test_an_untrusted_client_certificate_fails_the_handshake(self, pem: PemPair) -> None:
        context = server_context(parsed(authority().serving(SERVER_NAMES)), cas(authority()))

        with pytest.raises(ssl.SSLCertVerificationError):
            shake(context, client_context(cas(authority()), parsed(pem)))


class TestClientContext:
    @pytest.mark.parametrize(
        "pem",
        [
            pytest.param(authority("other").serving(SERVER_NAMES), id="of-another-ca"),
            pytest.param(authority().serving(["another-name.test"]), id="of-another-name"),
            pytest.param(authority().client(SERVER_NAMES[0]), id="for-clients-only"),
            pytest.param(authority().serving(SERVER_NAMES, days=-1), id="ended"),
        ],
    )
    def test_an_untrusted_server_certificate_fails_the_handshake(self, pem: PemPair) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(server_context(parsed(pem), None), client_context(cas(authority())))

    def test_verification_can_be_switched_off(self) -> None:
        _, asking = shake(
            server_context(parsed(authority("other").serving(["x"])), None), client_context(None, verify=False)
        )

        assert asking.version() == "TLSv1.3"


class TestMaterial:
    def test_the_end_is_the_leafs(self) -> None:
        pem = authority().serving(SERVER_NAMES, now=datetime(2026, 8, 1, tzinfo=UTC), days=9)
        chain = PemPair(pem.certificate + authority().pem.certificate, pem.key)

        assert parsed(chain).not_after == not_after(pem.certificate)

    def test_a_key_is_not_shown_by_accident(self) -> None:
        assert "PRIVATE" not in repr(parsed(authority().client("worker")))

    def test_an_encrypted_key_is_refused_without_asking_anyone(self) -> None:
        pem = authority().serving(SERVER_NAMES)
        key = serialization.load_pem_private_key(pem.key, None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )

        with pytest.raises(ValueError, match="encrypted"):
            Pair.parse(pem.certificate, key)

    def test_a_key_of_another_certificate_is_refused(self) -> None:
        with pytest.raises(ValueError, match="key values mismatch"):
            Pair.parse(authority().client("a").certificate, authority().client("b").key)

    @pytest.mark.parametrize(
        "content", [b"", b"garbage", authority().client("a").key], ids=["empty", "text", "key"]
    )
    def test_what_holds_no_certificate_is_refused(self, content: bytes) -> None:
        with pytest.raises(ValueError, match="no certificate"):
            Pair.parse(content, authority().client("a").key)
        with pytest.raises(ValueError, match="no certificate"):
            TrustedCAs.parse(content)

    def test_a_damaged_certificate_is_refused(self) -> None:
        damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

        with pytest.raises(ValueError, match=r"."):
            Pair.parse(damaged, authority().client("a").key)
        with pytest.raises(ValueError, match=r"."):
            TrustedCAs.parse(damaged)

    def test_text_around_the_certificates_of_a_bundle_is_left_out(self) -> None:
        text = "# Zertifizierungsstelle Köln\n".encode() + bundle(authority(), authority("other"))

        assert TrustedCAs.parse(text).members == {
            leaf_of(authority().pem),
            leaf_of(authority("other").pem),
        }
