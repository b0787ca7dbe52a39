"""Bearer tokens: a table of digests, and the sources of the tokens."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from omnigraph.commit.commit_metadata import check_actor
from omnigraph.errors import InputError, cut
from omnigraph.settings import (
    SERVER_BEARER_TOKEN,
    SERVER_BEARER_TOKENS_AWS_SECRET,
    SERVER_BEARER_TOKENS_FILE,
    SERVER_BEARER_TOKENS_JSON,
)

DEFAULT_ACTOR = "default"
"""The actor of the single token."""


class TokenTable:
    """The digests of all tokens, with their actors. The tokens themselves are not kept.

    >>> table = TokenTable({"kim": "secret"})
    >>> table.actor_of("secret"), table.actor_of("other")
    ('kim', None)

    Args:
        tokens: the token of each actor. Blanks around a token do not count: files and secrets often end with a newline.

    Raises:
        InputError: an actor or a token is blank, no header can carry a token, or two actors have the same token.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        entries: dict[bytes, str] = {}
        for actor, given in tokens.items():
            token = given.strip()
            if not actor.strip():
                raise InputError("an actor of the bearer tokens is blank", hint="name every actor")
            check_actor(actor)
            if not token:
                raise InputError(f"the bearer token of '{cut(actor)}' is blank", hint="give it a long random value")
            if not (token.isascii() and token.isprintable()):
                raise InputError(
                    f"the bearer token of '{cut(actor)}' has characters that no header can carry",
                    hint="use printable ASCII characters only",
                )
            digest = _digest(token)
            if digest in entries:
                raise InputError(
                    f"'{cut(actor)}' and '{cut(entries[digest])}' have the same bearer token",
                    hint="give each actor its own token",
                )
            entries[digest] = actor
        self._entries = tuple(entries.items())

    def __len__(self) -> int:
        return len(self._entries)

    def actor_of(self, token: str) -> str | None:
        """The actor of a token; None if it is unknown. The time does not depend on the entry that matches."""
        given = _digest(token)
        found: str | None = None
        for digest, actor in self._entries:
            if hmac.compare_digest(digest, given):
                found = actor
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", errors="surrogateescape")).digest()


def read_tokens(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The bearer tokens of all configured sources, by actor.

    Raises:
        InputError: a source cannot be read, or two sources name the same actor.
    """
    secret = SERVER_BEARER_TOKENS_AWS_SECRET.get(environ)
    if secret is not None:
        return _parse(_aws_secret(secret), SERVER_BEARER_TOKENS_AWS_SECRET.name)
    tokens: dict[str, str] = {}
    file = token_file(environ)
    text = SERVER_BEARER_TOKENS_JSON.get(environ)
    if file is not None:
        tokens = _parse(_read(file), str(file))
    elif text is not None:
        tokens = _parse(text, SERVER_BEARER_TOKENS_JSON.name)
    single = SERVER_BEARER_TOKEN.get(environ)
    if single is not None:
        if DEFAULT_ACTOR in tokens:
            raise InputError(
                f"the actor '{DEFAULT_ACTOR}' has two bearer tokens",
                hint=f"remove it from the list of tokens, or unset {SERVER_BEARER_TOKEN.name}",
            )
        tokens[DEFAULT_ACTOR] = single
    return tokens


def token_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """The file with the bearer tokens, if one is configured."""
    name = SERVER_BEARER_TOKENS_FILE.get(environ)
    return None if name is None else Path(name)


def file_stamp(path: Path | None) -> tuple[int, int, int] | None:
    """A value that changes with the content of a file; None if there is no file."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the bearer tokens cannot be read from {path}: {type(error).__name__}") from None


def _parse(text: str, where: str) -> dict[str, str]:
    """Parse `{actor: token}`. Errors never show a part of the text.

    Raises:
        InputError: the text is not a JSON object of texts, or names an actor twice.
    """
    hint = 'write {"actor": "token"}'
    try:
        members = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: the bearer tokens are not valid JSON", hint=hint) from None
    pairs: list[Any] = members if text.lstrip().startswith("{") else [None]
    if not all(isinstance(pair, tuple) and isinstance(pair[1], str) for pair in pairs):
        raise InputError(f"{where}: the bearer tokens are not a JSON object of texts", hint=hint)
    tokens: dict[str, str] = dict(pairs)
    if len(tokens) < len(pairs):
        raise InputError(f"{where}: an actor has two bearer tokens", hint="name each actor once")
    return tokens


def _aws_secret(secret: str) -> str:
    """The text of a secret in AWS Secrets Manager.

    Raises:
        InputError: boto3 is not installed, or the secret cannot be read.
    """
    try:
        boto3: Any = import_module("boto3")
    except ModuleNotFoundError:
        raise InputError("boto3 is not installed", hint="pip install 'omnigraph[aws]'") from None
    try:
        return str(boto3.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"])
    except Exception as error:  # boto3 raises many classes; their texts name the request, not the secret
        raise InputError(f"the secret with the bearer tokens cannot be read: {type(error).__name__}") from None
