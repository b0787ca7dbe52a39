"""JSON Web Tokens: verification with the public keys of a local file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt

from omnigraph.commit.commit_metadata import check_actor
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, UnauthorizedError
from omnigraph.settings import SERVER_JWKS_FILE, SERVER_JWT_AUDIENCE, SERVER_JWT_ISSUER

ALGORITHMS = ("RS256", "ES256", "EdDSA")
_REQUIRED = ["exp", "sub", "aud", "iss"]
_LEEWAY = 30
"""Seconds by which the clocks of the issuer and of the server may differ."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """The file with the public keys, and the claims that every token must have."""

    keys: Path
    issuer: str
    audience: str

    @classmethod
    def of_settings(cls, environ: Mapping[str, str] | None = None) -> JwtSettings | None:
        """The settings of the environment; None if it names no file.

        Raises:
            InputError: the issuer or the audience is missing.
        """
        keys = SERVER_JWKS_FILE.get(environ)
        if keys is None:
            return None
        issuer, audience = SERVER_JWT_ISSUER.get(environ), SERVER_JWT_AUDIENCE.get(environ)
        if not issuer or not audience:
            raise InputError(
                "JSON Web Tokens need an issuer and an audience",
                hint=f"set {SERVER_JWT_ISSUER.name} and {SERVER_JWT_AUDIENCE.name}",
            )
        return cls(Path(keys), issuer, audience)


class JwtVerifier:
    """Verifies tokens. The actor is the subject of a token.

    Raises:
        InputError: the file of the keys cannot be read, or has no usable key.
    """

    def __init__(self, given: JwtSettings) -> None:
        self._settings = given
        try:
            document = json.loads(given.keys.read_text(encoding="utf-8"))
            keys = jwt.PyJWKSet.from_dict(document)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError, jwt.PyJWTError) as error:
            raise InputError(
                f"{given.keys} has no usable keys: {type(error).__name__}", hint="give a JSON Web Key Set"
            ) from None
        self._keys: dict[str, Any] = {
            key.key_id: key
            for key in keys.keys
            if isinstance(key.key_id, str) and key.key_id and key.algorithm_name in ALGORITHMS
        }
        if not self._keys:
            raise InputError(
                f"{given.keys} has no key with a 'kid' for {', '.join(ALGORITHMS)}", hint="add 'kid' and 'alg' to a key"
            )

    def __len__(self) -> int:
        return len(self._keys)

    def actor_of(self, token: str) -> str:
        """The subject of a token.

        Raises:
            UnauthorizedError: the token is not valid, expired, or signed by an unknown key.
        """
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys[header["kid"]]
            if header.get("alg") != key.algorithm_name:
                raise jwt.InvalidAlgorithmError("another algorithm than that of the key")
            claims = jwt.decode(
                token,
                key=key,
                algorithms=[key.algorithm_name],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=_LEEWAY,
                options={"require": _REQUIRED},
            )
            subject = claims["sub"]
            check_actor(subject)
        except (jwt.PyJWTError, KeyError, TypeError, ValueError, InputError):
            raise UnauthorizedError("invalid bearer token") from None
        if not isinstance(subject, str) or not subject.strip():
            raise UnauthorizedError("invalid bearer token")
        return subject
