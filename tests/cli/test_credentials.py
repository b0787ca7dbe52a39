"""Tokens of servers: private, sent to their own server only, and never shown."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from omnigraph.cli.credentials import credentials_path, store_token, token_for
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.errors import InputError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("OMNIGRAPH_HOME", str(path))
    return path


def test_login_stores_a_private_token(shell: Shell, home: Path) -> None:
    found = shell.run("login", "harbour", "--token", "s3cret-of-harbour")
    path = home / "credentials"
    assert found.stdout == f"stored credential for 'harbour' in {path}\n"
    assert "there is no server 'harbour' in the configuration yet" in found.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    (home / "config.yaml").write_text("servers: {web-1: {url: http://a}}")
    answer = shell.run("login", "web-1", "--json", stdin="s3cret-of-web\n")
    assert answer.stderr == ""
    assert f'"credentials_path": "{path}"' in answer.stdout
    assert '"declared": true' in answer.stdout
    assert path.read_text() == "[harbour]\ntoken = s3cret-of-harbour\n\n[web-1]\ntoken = s3cret-of-web\n\n"
    assert "s3cret" not in found.output + answer.output
    assert [one.name for one in home.iterdir() if one.name.startswith(".")] == []


def test_logout_removes_one_token_and_can_be_repeated(shell: Shell, home: Path) -> None:
    shell.run("login", "a", "--token", "one")
    shell.run("login", "b", "--token", "two")
    for result in ("removed credential for 'a' from", "no credential for 'a' in"):
        assert shell.run("logout", "a").stdout == f"{result} {home / 'credentials'}\n"
    assert (home / "credentials").read_text() == "[b]\ntoken = two\n\n"
    assert shell.json("logout", "c") == {"server": "c", "credentials_path": str(home / "credentials")}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_file_that_others_may_access_is_refused(shell: Shell, home: Path, mode: int) -> None:
    shell.run("login", "a", "--token", "s3cret")
    credentials_path().chmod(mode)
    (home / "config.yaml").write_text("servers: {a: {url: http://127.0.0.1:1}}")
    for args in (["login", "b", "--token", "x"], ["logout", "a"], ["branch", "list", "--server", "a", "--graph", "g"]):
        said = shell.fails(*args)
        assert "other users may access" in said
        assert "chmod 600" in said
        assert "s3cret" not in said


@pytest.mark.parametrize("text", ["token = s3cret\n", "[a]\ntoken s3cret\n", "[a]\n[a]\ntoken = s3cret\n", "\xff"])
def test_a_file_that_is_not_valid_is_not_shown(shell: Shell, home: Path, text: str) -> None:
    home.mkdir()
    (home / "credentials").write_bytes(text.encode("latin-1"))
    (home / "credentials").chmod(0o600)
    said = shell.fails("login", "a", "--token", "x")
    assert "s3cret" not in said
    assert "credentials" in said


@pytest.mark.parametrize("token", ["", "two words", "żółw", "line\nbreak", "\x1b[2J"])
def test_what_is_no_token_is_refused(shell: Shell, home: Path, token: str) -> None:
    said = shell.fails("login", "a", "--token", token)
    assert "this is not a token" in said
    assert not token or token not in said
    assert not (home / "credentials").exists()


def test_login_needs_a_name_and_a_token(shell: Shell, home: Path) -> None:
    assert "there is no token on stdin" in shell.fails("login", "a")
    for name in ("a b", "[a]", "../a", "x" * 65, "\n"):
        assert "is not the name of a server" in shell.fails("login", name, "--token", "x")


SERVERS = {
    "root": "https://graphs.example",
    "tenant": "https://graphs.example/tenant",
    "other": "http://graphs.example:8080",
}


@pytest.mark.parametrize(
    ("address", "owner"),
    [
        ("https://graphs.example", "root"),
        ("https://graphs.example/", "root"),
        ("https://GRAPHS.example:443/graphs/people", "root"),
        ("HTTPS://graphs.example", "root"),
        ("https://graphs.example/tenant", "tenant"),
        ("https://graphs.example/tenant/graphs/people", "tenant"),
        ("https://graphs.example/tenants", "root"),
        ("http://graphs.example:8080/x", "other"),
        ("https://graphs.example.evil", None),
        ("https://graphs.example:444", None),
        ("http://graphs.example", None),
        ("https://evil/https://graphs.example", None),
        ("https://sub.graphs.example", None),
    ],
)
def test_a_token_goes_to_its_own_server_only(
    address: str, owner: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = OperatorConfig(home / "config.yaml", servers=SERVERS)
    for name in SERVERS:
        monkeypatch.setenv(f"OMNIGRAPH_TOKEN_{name.upper()}", f"token-of-{name}")
    assert token_for(address, config) == (None if owner is None else f"token-of-{owner}")
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "any")
    assert token_for(address, config) == ("any" if owner is None else f"token-of-{owner}")


@pytest.mark.parametrize(
    "address", ["https://graphs.example/tenant/../other", "https://graphs.example/./x", "https://graphs.example@evil"]
)
def test_dots_in_a_path_and_users_are_refused(address: str, home: Path) -> None:
    with pytest.raises(InputError, match="address of a server"):
        token_for(address, OperatorConfig(home / "config.yaml", servers=SERVERS))


def test_the_order_of_tokens(shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OperatorConfig(home / "config.yaml", servers={"web-1": "http://a"})
    assert token_for("http://a", config) is None
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "general")
    assert token_for("http://a", config) == "general"
    shell.run("login", "web-1", "--token", "stored")
    assert token_for("http://a", config) == "stored"
    monkeypatch.setenv("OMNIGRAPH_TOKEN_WEB_1", "variable")
    assert token_for("http://a", config) == "variable"
    assert token_for("http://b", config) == "general"
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "file\n")
    assert token_for("http://b", config) == "file"


def test_servers_with_the_same_address_have_their_own_tokens(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OperatorConfig(home / "config.yaml", servers={"admin": "http://a", "reader": "http://a"})
    monkeypatch.setenv("OMNIGRAPH_TOKEN_ADMIN", "all")
    monkeypatch.setenv("OMNIGRAPH_TOKEN_READER", "some")
    assert token_for("http://a", config, "reader") == "some"
    assert token_for("http://a", config, "admin") == "all"
    monkeypatch.delenv("OMNIGRAPH_TOKEN_READER")
    assert token_for("http://a", config, "reader") is None


def test_a_variable_is_the_token_of_one_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"web-1": "http://a", "web_1": "http://b", "WEB-2": "http://c"}
    config = OperatorConfig(home / "config.yaml", servers=servers)
    assert token_for("http://a", config) is None
    monkeypatch.setenv("OMNIGRAPH_TOKEN_WEB_1", "s3cret")
    for address in ("http://a", "http://b"):
        with pytest.raises(InputError, match="OMNIGRAPH_TOKEN_WEB_1 is the token of") as caught:
            token_for(address, config)
        assert "s3cret" not in str(caught.value)
    assert token_for("http://c", config) is None


def test_what_a_newer_release_has_stored_stays(shell: Shell, home: Path) -> None:
    home.mkdir()
    path = home / "credentials"
    path.write_text("[a]\ntoken = one\nexpires = 2030-01-01\n\n[b]\nrefresh = two%s\n")
    path.chmod(0o600)
    shell.run("login", "c", "--token", "three==")
    shell.run("login", "a", "--token", "four")
    assert path.read_text() == (
        "[a]\ntoken = four\nexpires = 2030-01-01\n\n[b]\nrefresh = two%s\n\n[c]\ntoken = three==\n\n"
    )
    shell.run("logout", "a")
    assert "[a]" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_logins_at_the_same_time_all_stay(shell: Shell, home: Path) -> None:
    threads = [threading.Thread(target=store_token, args=(f"s{number}", f"t{number}")) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    config = OperatorConfig(home / "config.yaml", servers={f"s{number}": f"http://h{number}" for number in range(16)})
    assert [token_for(f"http://h{number}", config) for number in range(16)] == [f"t{number}" for number in range(16)]


def test_a_linked_file_stays_a_link(shell: Shell, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "credentials").symlink_to(tmp_path / "kept")
    shell.run("login", "a", "--token", "s3cret")
    assert (home / "credentials").is_symlink()
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600


def test_passwords_in_addresses_are_not_shown(shell: Shell, home: Path) -> None:
    for args in (
        ["branch", "list", "--server", "http://kim:s3cret@127.0.0.1:1", "--graph", "g"],
        ["branch", "create", "x", "--server", "http://kim:s3cret@127.0.0.1:1", "--graph", "g"],
        ["branch", "list", "--server", "http://kim:s3cret@127.0.0.1:port", "--graph", "g"],
        ["branch", "list", "--store", "http://kim:s3cret@127.0.0.1:1"],
        ["branch", "list", "http://kim:s3cret@127.0.0.1:1"],
        ["branch", "list", "--server", "http://127.0.0.1:1/?token=s3cret", "--graph", "g"],
    ):
        found = shell.run(*args)
        assert found.exit_code in (1, 2)
        assert "s3cret" not in found.output


class Recorder(BaseHTTPRequestHandler):
    """Records the tokens that it gets, and redirects every request."""

    tokens: list[str | None]
    to: str = ""

    def do_GET(self) -> None:
        type(self).tokens.append(self.headers.get("Authorization"))
        self.send_response(307)
        self.send_header("Location", self.to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def recorders() -> Iterator[list[tuple[str, type[Recorder]]]]:
    """Two servers; the first one redirects to the second one."""
    found: list[tuple[str, type[Recorder]]] = []
    running = []
    for name in ("second", "first"):
        handler = type(name, (Recorder,), {"tokens": [], "to": found[0][0] if found else ""})
        server = HTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        running.append((server, thread))
        found.append((f"http://127.0.0.1:{server.server_address[1]}", handler))
    yield found[::-1]
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_redirect_gets_no_token(
    shell: Shell, home: Path, recorders: list[tuple[str, type[Recorder]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("urllib3")
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    (first, asked), (second, other) = recorders
    home.mkdir()
    (home / "config.yaml").write_text(f"servers: {{a: {{url: '{first}'}}, b: {{url: '{second}'}}}}")
    shell.run("login", "a", "--token", "s3cret")
    said = shell.fails("branch", "list", "--server", "a", "--graph", "g")
    assert asked.tokens == ["Bearer s3cret"]
    assert other.tokens == []
    assert "s3cret" not in said  # not even in the traceback
    shell.fails("branch", "list", "--server", second, "--graph", "g")
    assert other.tokens == [None]
