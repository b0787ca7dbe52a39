"""The proxy between a client and a server, from the variables that other programs use, too."""

# See docs/decisions/0320-the-client-uses-urllib3.md

from __future__ import annotations

import os
from base64 import b64encode
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from omnigraph.dataclass import dataclass
from omnigraph.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes:
        headers: for the proxy alone: its user and password.
    """

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(scheme: str, host: str, port: int | None) -> Proxy | None:
    """The proxy for a server: that of `HTTP_PROXY` or `HTTPS_PROXY`, else `ALL_PROXY`, unless `NO_PROXY` has the host.

    The own machine is reached without a proxy. An `ALL_PROXY` of another kind, such as SOCKS, is for other programs.

    Raises:
        ConfigurationError: the variable is not the address of an HTTP proxy.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ) or _is_own_machine(host):
        return None
    from urllib.request import getproxies_environment, proxy_bypass

    proxies = getproxies_environment()
    name = scheme if proxies.get(scheme) else "all"
    given = proxies.get(name)
    if not given or proxy_bypass(host if port is None else f"{host}:{port}"):
        return None
    kind, colon, _ = given.partition("://")
    is_http = not colon or kind.lower() == "http"
    if name == "all" and not is_http:
        return None
    wrong = ConfigurationError(
        f"{name.upper()}_PROXY is not the address of an HTTP proxy; SOCKS and HTTPS proxies are not supported",
        hint="write http://HOST:PORT, or name the server in NO_PROXY to reach it without a proxy",
    )
    try:
        parts = urlsplit(given if colon else f"http://{given}")
        found = parts.port or 80
    except ValueError:
        raise wrong from None
    if not is_http or not parts.hostname:
        raise wrong
    headers = {}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    return Proxy(parts.hostname, found, headers)


def _is_own_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
