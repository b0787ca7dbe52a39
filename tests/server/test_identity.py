"""The actor comes from the credential alone, and tokens are never kept, logged or compared early."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from tests.patience import until
from tests.server.conftest import INSERT, SELECT, Client, Serve

from omnigraph.engine.access import Action, Decision
from omnigraph.errors import InputError, UnauthorizedError
from omnigraph.server import app
from omnigraph.server.identity import Identity
from omnigraph.server.json_web_tokens import JwtSettings, JwtVerifier
from omnigraph.server.tokens import TokenTable, read_tokens

TOKENS = {"kim": "secret-of-kim", "lee": "secret-of-lee"}


class Allow:
    """Allows some actions."""

    def __init__(self, *actions: Action) -> None:
        self._actions = actions

    def decide(
        self, actor: str | None, action: Action, branch: str | None = None, target_branch: str | None = None
    ) -> Decision:
        return Decision(action in self._actions, "rule", f"{action} is not allowed")


EVERYTHING = Allow(*Action)


# ---- tokens


def test_missing_and_wrong_tokens(serve: Serve) -> None:
    client = serve(tokens=TOKENS)
    for header, text in [
        ({}, "missing bearer token"),
        ({"Authorization": "Basic eDp5"}, "missing bearer token"),
        ({"Authorization": "Bearer "}, "missing bearer token"),
        ({"Authorization": "Bearer wrong"}, "invalid bearer token"),
        ({"Authorization": "Bearer secret-of-kim x"}, "invalid bearer token"),
    ]:
        found = client.get("/branches", headers=header)
        assert (found.status, found.json["error"], found.json["code"]) == (401, text, "unauthorized")
        assert found.headers["www-authenticate"] == "Bearer"
    assert client.with_token("secret-of-kim").get("/branches").status == 200
    assert client.get("//healthz").status == 200


def test_no_credential_comes_before_anything_about_graphs(serve: Serve) -> None:
    client = serve(tokens=TOKENS)
    assert [client.get(path).status for path in ("/branches?x=1", "/commits/x", "//graphs/none/schema")] == [401] * 3


def test_the_actor_is_that_of_the_token(serve: Serve) -> None:
    client = serve(tokens=TOKENS, policies={"g": EVERYTHING})
    body = {"query": INSERT, "params": {"n": "eve"}, "actor": "lee", "actor_id": "lee"}
    found = client.with_token("secret-of-kim").post("/mutate?", body, headers={"X-Actor": "lee"})
    assert (found.json["actor_id"], found.json["commit"]["actor_id"]) == ("kim", "kim")
    made = client.with_token("secret-of-lee").post("/branches", {"name": "b"})
    assert made.json["actor_id"] == "lee"


def test_every_entry_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    real = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    table = TokenTable({f"actor{number}": f"token{number}" for number in range(50)})
    for token, actor in [("token0", "actor0"), ("token49", "actor49"), ("none", None)]:
        compared.clear()
        assert table.actor_of(token) == actor
        assert len(compared) == 50


def test_tokens_are_not_kept() -> None:
    table = TokenTable(TOKENS)
    assert b"secret-of-kim" not in repr(vars(table)).encode()


@pytest.mark.parametrize("tokens", [{"": "x"}, {" ": "x"}, {"kim": ""}, {"kim": " "}, {"kim": "same", "lee": "same"}])
def test_blank_and_duplicate_entries_are_errors(tokens: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        TokenTable(tokens)
    assert "same'" not in str(caught.value)


def test_blanks_around_a_token_do_not_count(serve: Serve) -> None:
    client = serve(tokens={"kim": "secret-of-kim\n", "lee": " secret-of-lee"})
    for actor in ("kim", "lee"):
        assert client.with_token(f"secret-of-{actor}").get("/branches").status == 200
    with pytest.raises(InputError, match="have the same bearer token"):
        TokenTable({"kim": "same", "lee": "same\n"})


@pytest.mark.parametrize("token", ["gehëim", "a\nb", "a\0", "\ud800"])
def test_a_token_that_no_header_can_carry_is_an_error(token: str) -> None:
    with pytest.raises(InputError, match="characters that no header can carry") as caught:
        TokenTable({"kim": token})
    assert token not in caught.value.render()


def test_sources(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text('{"kim": "a"}', encoding="utf-8")
    one = {"OMNIGRAPH_SERVER_BEARER_TOKEN": "single"}
    many = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"lee": "b"}'}
    in_file = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(file)}
    assert read_tokens({}) == {}
    assert read_tokens(one) == {"default": "single"}
    assert read_tokens(many | one) == {"lee": "b", "default": "single"}
    assert read_tokens(in_file | many) == {"kim": "a"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": "x", "a": "y"}', '"secret"', '[["a", "secret"]]'])
def test_errors_of_sources_show_no_token(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_tokens({"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": text})
    assert "secret" not in caught.value.render()


def test_a_secret_in_aws_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(InputError, match="boto3 is not installed"):
        read_tokens({"OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET": "name"})


def test_tokens_are_reloaded_when_the_file_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens.json"
    file.write_text('{"kim": "first"}', encoding="utf-8")
    identity = Identity.of_settings({"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(file)})
    identity.reload_if_changed()
    assert identity.actor_of("Bearer first") == "kim"
    file.write_text('{"kim": "second", "lee": "third"}', encoding="utf-8")
    with caplog.at_level(logging.INFO):
        identity.reload_if_changed()
    assert (identity.actor_of("Bearer second"), identity.actor_of("Bearer third")) == ("kim", "lee")
    with pytest.raises(UnauthorizedError):
        identity.actor_of("Bearer first")
    for broken in ("{", "{}"):
        file.write_text(broken, encoding="utf-8")
        identity.reload_if_changed()
        assert identity.actor_of("Bearer second") == "kim"
    file.unlink()
    identity.reload()
    assert identity.actor_of("Bearer second") == "kim"
    assert "second" not in caplog.text


# ---- states


def test_open_allows_everything_but_the_list_of_graphs(client: Client) -> None:
    assert client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}}).status == 200
    assert client.get("//graphs").status == 403


def test_default_deny_allows_only_reads_and_says_so(serve: Serve) -> None:
    client = serve(tokens=TOKENS).with_token("secret-of-kim")
    assert client.post("/query", {"query": SELECT}).status == 200
    assert client.get("/commits").status == 200
    for path, body in [
        ("/mutate", {"query": INSERT, "params": {"n": "eve"}}),
        ("/load", {"data": ""}),
        ("/branches", {"name": "b"}),
        ("/branches/merge", {"source": "b"}),
        ("/schema/apply", {"schema_source": ""}),
        ("/export", {}),
        ("/changes/baseline", {}),
    ]:
        found = client.post(path, body)
        assert (found.status, found.json["code"]) == (403, "forbidden"), path
    assert client.delete("/branches/b").status == 403
    assert client.get("//graphs").status == 403
    assert client.get("//readyz").json["warnings"] == ["every write is denied: there are tokens, but no policy"]


def test_a_policy_decides(serve: Serve) -> None:
    policies = {"g": Allow(Action.READ, Action.CHANGE)}
    client = serve(tokens=TOKENS, policies=policies, server_policy=EVERYTHING).with_token("secret-of-kim")
    assert client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}}).status == 200
    assert client.post("/branches", {"name": "b"}).status == 403
    (graph,) = client.get("//graphs").json["graphs"]
    assert (graph["graph_id"], set(graph)) == ("g", {"graph_id", "uri"})
    assert client.get("//readyz").json["state"] == "policy_enabled"


def test_a_load_that_creates_a_branch_needs_both_permissions(serve: Serve) -> None:
    client = serve(tokens=TOKENS, policies={"g": Allow(Action.READ, Action.CHANGE)}).with_token("secret-of-kim")
    body = {"data": '{"type":"Person","data":{"name":"eve"}}', "branch": "new", "from": "main"}
    assert client.post("/load", body).status == 403
    assert client.get("/branches").json == {"branches": ["main"]}


def test_a_merge_without_the_permission_to_delete_merges(serve: Serve) -> None:
    allowed = Allow(Action.READ, Action.CHANGE, Action.BRANCH_CREATE, Action.BRANCH_MERGE)
    client = serve(tokens=TOKENS, policies={"g": allowed}).with_token("secret-of-kim")
    client.post("/branches", {"name": "draft"})
    found = client.post("/branches/merge", {"source": "draft", "delete_branch": True})
    assert (found.status, found.json["branch_deleted"]) == (200, False)
    assert "draft" in client.get("/branches").json["branches"]


def test_denied_changes_of_a_commit_look_like_an_unknown_commit(serve: Serve) -> None:
    client = serve(tokens=TOKENS, policies={"g": Allow(Action.CHANGE)}).with_token("secret-of-kim")
    commit = client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}}).json["commit"]["graph_commit_id"]
    unknown = "01" + "A" * 24
    denied, missing = (client.get(f"/commits/{one}/changes").json for one in (commit, unknown))
    for one in (denied, missing):
        del one["request_id"]
    assert denied["error"].replace(commit, unknown) == missing["error"]
    assert denied | {"error": ""} == missing | {"error": ""}


def test_a_load_is_authorised_before_its_body_is_read(serve: Serve) -> None:
    client = serve(tokens=TOKENS).with_token("secret-of-kim")
    found = client.post("/load/ndjson", b"x" * (33 << 20), media_type="text/plain")
    assert found.status == 403


@pytest.mark.parametrize("options", [{"tokens": {}}, {"tokens": {}, "policies": {"g": EVERYTHING}}])
def test_the_server_does_not_start_without_credentials(serve: Serve, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no bearer tokens"):
        serve(**options)


# ---- JSON Web Tokens

ISSUER, AUDIENCE = "https://issuer.example", "graphs"


def _keys() -> dict[str, Any]:
    return {
        "RS256": rsa.generate_private_key(65537, 2048),
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    return _keys()


@pytest.fixture
def settings(tmp_path: Path, keys: dict[str, Any]) -> JwtSettings:
    entries = []
    for name, key in keys.items():
        public = get_default_algorithms()[name].to_jwk(key.public_key(), as_dict=True)
        entries.append(dict(public) | {"kid": f"key-{name}", "alg": name})
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": entries}), encoding="utf-8")
    return JwtSettings(file, ISSUER, AUDIENCE)


def claims(**changed: object) -> dict[str, object]:
    made = {"sub": "kim", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600} | changed
    return {name: value for name, value in made.items() if value is not None}


def signed(keys: dict[str, Any], algorithm: str = "ES256", kid: str | None = None, **changed: object) -> str:
    key = f"key-{algorithm}" if kid is None else kid
    return jwt.encode(claims(**changed), keys[algorithm], algorithm, headers={"kid": key})


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_tokens_of_all_algorithms_are_verified(settings: JwtSettings, keys: dict[str, Any], algorithm: str) -> None:
    assert JwtVerifier(settings).actor_of(signed(keys, algorithm)) == "kim"


def unsigned(keys: dict[str, Any]) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none', 'kid': 'key-ES256'})}.{part(claims())}."


def confused(keys: dict[str, Any]) -> str:
    """Signed with HMAC, and the public key as the secret."""
    return jwt.encode(claims(), "x" * 64, "HS256", headers={"kid": "key-RS256"})


BAD: dict[str, Callable[[dict[str, Any]], str]] = {
    "expired": lambda keys: signed(keys, exp=int(time.time()) - 3600),
    "not yet": lambda keys: signed(keys, nbf=int(time.time()) + 3600),
    "other issuer": lambda keys: signed(keys, iss="https://other.example"),
    "other audience": lambda keys: signed(keys, aud="others"),
    "without exp": lambda keys: signed(keys, exp=None),
    "without sub": lambda keys: signed(keys, sub=None),
    "without aud": lambda keys: signed(keys, aud=None),
    "without iss": lambda keys: signed(keys, iss=None),
    "blank sub": lambda keys: signed(keys, sub=" "),
    "number as sub": lambda keys: signed(keys, sub=7),
    "unknown kid": lambda keys: signed(keys, kid="none"),
    "kid of another key": lambda keys: signed(keys, kid="key-RS256"),
    "no kid": lambda keys: jwt.encode(claims(), keys["ES256"], "ES256"),
    "other key": lambda keys: signed(_keys(), "ES256"),
    "unsigned": unsigned,
    "hmac": confused,
    "changed": lambda keys: signed(keys)[:-4] + "AAAA",
    "no token": lambda keys: "a.b.c",
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tokens_are_refused(settings: JwtSettings, keys: dict[str, Any], case: str) -> None:
    with pytest.raises(UnauthorizedError):
        JwtVerifier(settings).actor_of(BAD[case](keys))


def test_json_web_tokens_over_http(serve: Serve, settings: JwtSettings, keys: dict[str, Any]) -> None:
    client = serve(identity=Identity(lambda: TOKENS, settings), policies={"g": EVERYTHING})
    body = {"query": INSERT, "params": {"n": "eve"}}
    assert client.with_token(signed(keys, sub="sam")).post("/mutate", body).json["actor_id"] == "sam"
    assert client.with_token("secret-of-lee").get("/branches").status == 200
    found = client.with_token(BAD["unknown kid"](keys)).get("/branches")
    assert (found.status, found.json["error"]) == (401, "invalid bearer token")


def test_keys_are_reloaded_when_their_file_changes(settings: JwtSettings, keys: dict[str, Any]) -> None:
    environ = {
        "OMNIGRAPH_SERVER_JWKS_FILE": str(settings.keys),
        "OMNIGRAPH_SERVER_JWT_ISSUER": ISSUER,
        "OMNIGRAPH_SERVER_JWT_AUDIENCE": AUDIENCE,
    }
    identity = Identity.of_settings(environ)
    entries = json.loads(settings.keys.read_text(encoding="utf-8"))["keys"]
    for text in ("[" * 100_000, json.dumps({"keys": [entry | {"kid": [1]} for entry in entries]})):
        settings.keys.write_text(text, encoding="utf-8")
        identity.reload_if_changed()  # it is not valid, so the old keys stay
        assert identity.actor_of(f"Bearer {signed(keys)}") == "kim"
    entries = [entry for entry in entries if entry["kid"] == "key-EdDSA"]
    settings.keys.write_text(json.dumps({"keys": entries}), encoding="utf-8")
    identity.reload_if_changed()
    assert identity.actor_of(f"Bearer {signed(keys, 'EdDSA')}") == "kim"
    with pytest.raises(UnauthorizedError):
        identity.actor_of(f"Bearer {signed(keys)}")


def test_files_are_watched_after_an_unexpected_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = {"kim": "first"}
    stamps: list[int] = [0]

    def stamp() -> int:
        if stamps[0] == 1:
            stamps[0] = 2
            raise RuntimeError("the disk is gone")
        return stamps[0]

    monkeypatch.setattr(app, "WATCH_SECONDS", 0.01)
    client = serve(identity=Identity(lambda: tokens, stamp=stamp))
    assert client.with_token("first").get("/branches").status == 200
    tokens["kim"] = "second"
    stamps[0] = 1
    until(lambda: client.with_token("second").get("/branches").status == 200)
    assert "the credentials could not be read" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"keys": []}',
        '{"keys": [{"kty": "oct", "k": "eA", "kid": "x"}]}',
        '{"keys": ' + "[" * 100_000,
        '{"keys": [{"kty": "RSA", "n": "AQ", "e": "AQ", "kid": ["x"]}]}',
    ],
    ids=["empty", "no member", "no keys", "symmetric", "deep", "kid"],
)
def test_a_key_file_without_usable_keys_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        JwtVerifier(JwtSettings(file, ISSUER, AUDIENCE))


def test_json_web_tokens_need_an_issuer_and_an_audience() -> None:
    with pytest.raises(InputError, match="issuer"):
        JwtSettings.of_settings({"OMNIGRAPH_SERVER_JWKS_FILE": "keys.json"})
