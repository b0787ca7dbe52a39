"""Identity: the actor of a request, from its credential alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from omnigraph.errors import InputError, OmnigraphError, UnauthorizedError
from omnigraph.server.json_web_tokens import JwtSettings, JwtVerifier
from omnigraph.server.tokens import TokenTable, file_stamp, read_tokens, token_file

_log = logging.getLogger("omnigraph.server")


class Identity:
    """The credentials of a server: bearer tokens and the keys of JSON Web Tokens.

    Args:
        read: returns the tokens by actor. Called at start and for each reload.
        jwt: the settings of JSON Web Tokens.
        stamp: returns a value that changes when a file of credentials changes.

    Raises:
        InputError: the credentials are invalid.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, str]] | None = None,
        jwt: JwtSettings | None = None,
        stamp: Callable[[], object] = lambda: None,
    ) -> None:
        self._read = read or dict
        self._jwt_settings = jwt
        self._stamp = stamp
        self._lock = threading.Lock()
        self._seen = stamp()
        self._tokens, self._jwt = self._load()

    @classmethod
    def of_settings(cls, environ: Mapping[str, str] | None = None) -> Identity:
        """The credentials that the environment configures.

        Raises:
            InputError: the credentials are invalid.
        """
        given = JwtSettings.of_settings(environ)
        files = (token_file(environ), None if given is None else given.keys)
        return cls(lambda: read_tokens(environ), given, lambda: [file_stamp(file) for file in files])

    @classmethod
    def of_tokens(cls, tokens: Mapping[str, str]) -> Identity:
        """Fixed tokens, for tests and programs that embed the server."""
        fixed = dict(tokens)
        return cls(lambda: fixed)

    def _load(self) -> tuple[TokenTable, JwtVerifier | None]:
        return TokenTable(self._read()), None if self._jwt_settings is None else JwtVerifier(self._jwt_settings)

    @property
    def is_configured(self) -> bool:
        """Whether requests need a credential. A reload never turns this off."""
        return bool(len(self._tokens)) or self._jwt is not None

    def reload(self) -> None:
        """Read the credentials again. If they are invalid, or none are left, the old ones stay."""
        with self._lock:
            seen = self._stamp()
            try:
                tokens, verifier = self._load()
                if self.is_configured and not len(tokens) and verifier is None:
                    raise InputError("there are no bearer tokens left")
            except OmnigraphError as error:
                _log.error("credentials were not reloaded", extra={"fields": {"reason": error.message}})
                self._seen = seen
                return
            self._tokens, self._jwt, self._seen = tokens, verifier, seen
            _log.info("credentials were reloaded", extra={"fields": {"tokens": len(tokens)}})

    def reload_if_changed(self) -> None:
        """Read the credentials again if one of their files has changed."""
        if self._stamp() != self._seen:
            self.reload()

    def actor_of(self, *authorization: str) -> str | None:
        """The actor of a request; None if the server has no credentials.

        Args:
            *authorization: the headers `Authorization`. A request has to have exactly one.

        Raises:
            UnauthorizedError: the token is missing or not valid, or there are several.
        """
        if not self.is_configured:
            return None
        if len(authorization) > 1:
            raise UnauthorizedError("there are several bearer tokens", hint="send one header Authorization")
        scheme, _, token = "".join(authorization).partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise UnauthorizedError("missing bearer token", hint="send the header 'Authorization: Bearer TOKEN'")
        actor = self._tokens.actor_of(token)
        if actor is not None:
            return actor
        if self._jwt is not None and token.count(".") == 2:
            return self._jwt.actor_of(token)
        raise UnauthorizedError("invalid bearer token")
