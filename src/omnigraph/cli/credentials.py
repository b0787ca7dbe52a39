"""Bearer tokens of servers: where they are stored, and which token a server gets. Tokens are never printed."""

# See docs/decisions/0332-a-token-belongs-to-an-address.md

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as IniError
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from omnigraph.cli.operator_config import OperatorConfig, home, without_password
from omnigraph.errors import InputError, cut
from omnigraph.settings import BEARER_TOKEN, TOKEN_OF_SERVER

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PORTS = {"http": 80, "https": 443}
_NO_DEFAULTS = "\n"
"""The section of defaults of the parser: a name that no section of a file has."""


def credentials_path() -> Path:
    """The file of the stored tokens."""
    return home() / "credentials"


def token_for(address: str, config: OperatorConfig, name: str | None = None) -> str | None:
    """The token for the server at an address; None if there is none.

    The address belongs to the configured server whose address is its longest prefix. The token of a server goes to
    this server only. Other addresses get `OMNIGRAPH_BEARER_TOKEN`.

    Args:
        address: the address.
        config: the configuration, with the names of servers.
        name: the name by which the server was chosen. Several servers may have the same address.

    Raises:
        InputError: the file with the tokens is not private, or not valid; or two servers have the same variable.
    """
    name = name or _owner(address, config)
    if name is not None:
        keyed = _from_environment(name, config) or _stored().get(name)
        if keyed:
            return keyed
    return (BEARER_TOKEN.get() or "").strip() or None


def _from_environment(name: str, config: OperatorConfig) -> str | None:
    """The token of a server that a variable has.

    Raises:
        InputError: the variable is that of another server, too.
    """
    variable = TOKEN_OF_SERVER.named(_variable(name))
    found = (variable.get() or "").strip()
    other = next((one for one in config.servers if one != name and _variable(one) == _variable(name)), None)
    if found and other is not None:
        raise InputError(
            f"{variable.name} is the token of '{cut(name)}' and of '{cut(other)}'", hint="rename one of these servers"
        )
    return found or None


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _owner(address: str, config: OperatorConfig) -> str | None:
    """The name of the configured server to which an address belongs."""
    place = _place(address)
    matching = [
        (len(base[1]), name)
        for name, url in config.servers.items()
        if (base := _place(url))[0] == place[0] and place[1][: len(base[1])] == base[1]
    ]
    return max(matching, key=lambda one: one[0])[1] if matching else None


def _place(address: str) -> tuple[tuple[str, str, int | None], tuple[str, ...]]:
    """The scheme, the host and the port of an address, and the segments of its path."""
    try:
        parts: SplitResult = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        shown = cut(without_password(address))
        raise InputError(f"'{shown}' is not the address of a server", hint="give http://HOST:PORT") from None
    if "@" in parts.netloc:
        raise InputError(
            "the address of a server has no user and password", hint="store a token with 'omnigraph login'"
        )
    segments = tuple(part for part in parts.path.split("/") if part)
    if ".." in segments or "." in segments:
        raise InputError(f"'{cut(address)}' is not the address of a server", hint="leave out . and .. from its path")
    return (parts.scheme, (parts.hostname or "").rstrip("."), port), segments


def check_server_name(name: str) -> str:
    """Check the name of a server for which a token is stored.

    Raises:
        InputError: it is not a name.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"'{cut(name)}' is not the name of a server", hint="use letters, digits, '-', '_' and '.'")
    return name


def store_token(name: str, token: str) -> None:
    """Store the token of a server. Other tokens stay.

    Raises:
        InputError: the token has characters that no token has, or the file cannot be written.
    """
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError("this is not a token", hint="give the token alone, on one line")
    with _changing() as stored:
        if not stored.has_section(name):
            stored.add_section(name)
        stored[name]["token"] = token


def remove_token(name: str) -> bool:
    """Remove the token of a server. Return whether there was one."""
    if name not in _stored():
        return False
    with _changing() as stored:
        return stored.remove_section(name)


def _parser() -> ConfigParser:
    return ConfigParser(delimiters=("=",), interpolation=None, default_section=_NO_DEFAULTS, strict=True)


def _stored() -> dict[str, str]:
    """The stored tokens by the name of their server. Raises the errors of `_read`."""
    found = _read()
    return {name: found[name]["token"] for name in found.sections() if found[name].get("token")}


def _read() -> ConfigParser:
    """The file with the tokens.

    Raises:
        InputError: others can read the file, or it is not valid.
    """
    parser = _parser()
    path = credentials_path()
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputError(
                    f"other users may access {path}, which has tokens", hint=f"run: chmod 600 {path}; then replace them"
                )
            text = file.read()
    except FileNotFoundError:
        return parser
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', 'it is not UTF-8')}") from None
    try:
        parser.read_string(text)
    except IniError:
        # The message of the parser shows lines of the file.
        raise InputError(f"{path} is not valid", hint="write [NAME] and token = VALUE, or log in again") from None
    return parser


@contextmanager
def _changing() -> Iterator[ConfigParser]:
    """Change the file: other commands wait. What this release does not know stays, except comments.

    Raises:
        InputError: the file cannot be read or written.
    """
    path = credentials_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            found = _read()
            yield found
            _replace(path.resolve(), found)
        finally:
            os.close(directory)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def _replace(path: Path, content: ConfigParser) -> None:
    """Replace the file atomically. It is private from the start."""
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            content.write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
