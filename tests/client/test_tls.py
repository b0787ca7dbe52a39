"""TLS: the certificate of a server is checked."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import omnigraph

ANSWER = b'{"status":"ok","version":"1","internal_schema_version":1}'


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for the loopback interface and graphs.example that it has signed itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("graphs.example")]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(encoding)
    )
    return path


@pytest.fixture
def address(certificate: Path) -> Iterator[str]:
    """A server with that certificate, which answers one request per connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(65_536)
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(ANSWER)}\r\nConnection: close\r\n\r\n"
                    connection.sendall(head.encode() + ANSWER)
            except OSError:
                continue  # the client does not trust the certificate

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"https://127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_an_unknown_certificate_is_refused(address: str) -> None:
    with omnigraph.connect(address, token="secret") as client, pytest.raises(omnigraph.NetworkError) as caught:
        client.health()
    assert "certificate" in str(caught.value)


def test_a_trusted_certificate(address: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with omnigraph.connect(address, token="secret") as client:
        assert client.health().status == "ok"


def test_a_tunnel_through_a_proxy(address: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy sees the name of the server, and neither the token nor the answer."""
    seen = []
    listening = socket.create_server(("127.0.0.1", 0))
    port = int(address.rpartition(":")[2])

    def forward(source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(65_536):
            seen.append(data)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def proxy() -> None:
        for _ in range(2):
            client, _ = listening.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                seen.append(client.recv(65_536))
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=forward, args=(server, client))
                back.start()
                forward(client, server)
                back.join()

    thread = threading.Thread(target=proxy)
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listening.getsockname()[1]}")
    with omnigraph.connect("https://graphs.example", token="secret") as client:
        for _ in range(2):  # the server closes each connection, so the second call has another tunnel
            assert client.health().status == "ok"
    thread.join()
    listening.close()
    assert seen[0].startswith(b"CONNECT graphs.example:443 HTTP/1.")
    assert not any(b"secret" in one or b"healthz" in one for one in seen)
