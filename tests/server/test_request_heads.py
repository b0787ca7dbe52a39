"""Clients that offer another protocol get their answer in HTTP/1.1, however the network cuts their requests."""

from __future__ import annotations

import json
import socket
from time import sleep

from tests.server.conftest import SELECT, Client
from tests.server.test_attacks import connected

from omnigraph.server.request_heads import RequestHead


def with_offer(offer: str) -> bytes:
    """A query whose client offers another protocol."""
    body = json.dumps({"query": SELECT}).encode()
    head = (
        f"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\n{offer}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n"
    )
    return head.encode() + body


def answered(connection: socket.socket) -> bytes:
    """The answer to a query. The connection stays open."""
    found = b""
    while not found.endswith(b"]}"):
        part = connection.recv(65_536)
        assert part, found
        found += part
    assert found.startswith(b"HTTP/1.1 200 "), found
    return found


def test_an_offer_is_ignored_wherever_the_network_cuts_the_request(client: Client) -> None:
    """Clients with long credentials send a head in several packets."""
    whole = with_offer("UPGRADE: h2c\r\nHTTP2-Settings: AAMAAABk")
    end = whole.index(b"\r\n\r\n") + 5
    with connected(client) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, end):
            connection.sendall(whole[:cut])
            sleep(0.002)
            connection.sendall(whole[cut:])
            answered(connection)


def test_only_the_header_upgrade_gets_another_name() -> None:
    """In every division of two requests into parts, and byte by byte."""
    head = b"POST / HTTP/1.1\r\nUpgrade-Insecure-Requests: 1\r\nupgrade : x\r\nX: upgrade: y\r\nuPGRADE: h2c\r\n\r\n"
    renamed = head.replace(b"uPGRADE", b"x-offered-uPGRADE")
    body = b"\r\nUpgrade: 1\r\n\r\nupgrade: 2"
    for cut in range(len(head)):
        found = RequestHead()
        first, rest = found.split(head[:cut])
        assert rest == b""
        second, rest = found.split(head[cut:] + body)
        assert (first + second, rest) == (renamed, body), cut
        assert found.split(head + body) == (renamed, body), cut
    found = RequestHead()
    assert b"".join(found.split(head[at : at + 1])[0] for at in range(len(head))) == renamed
