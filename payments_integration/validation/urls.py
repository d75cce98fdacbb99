"""Decide if an address is safe, with one function per use."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

#: Plain HTTP is safe only to these hosts, for development.
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
#: The site's host in requests of Django's test client, which makes them without TLS.
TEST_HOST = "testserver"
#: A longer address may not fit into the request line that a server accepts.
MAX_LINK = 4000

#: The characters of a URI (RFC 3986): ASCII, and nothing that a browser drops or rewrites (tabs, ``\``).
_CHARACTERS = r"A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;="
_ENCODED = rf"(?:[{_CHARACTERS}]|%[0-9A-Fa-f]{{2}})*"
_WEB = rf"(?i)https?://[{_CHARACTERS}%]+"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"
#: These may contain letters of any script, but no characters that a browser drops while it reads an address.
_FOR_STAFF = r"(?i)https?://[^\s\x00-\x1f\x7f<>\"\\]+"
#: Only one slash at the start, because browsers read two as the beginning of a host.
_ON_THIS_SITE = r"/(?!/)[^\s\x00-\x1f\x7f<>\"\\]*"


def is_base_url(url: str) -> bool:
    """Return True for a BASE_URL of a provider: HTTPS, or HTTP to this machine; a host; no user, query or fragment."""
    parts = _split(url)
    if parts is None or parts.username or parts.query or parts.fragment or not url.isprintable() or " " in url:
        return False
    return _is_secure(parts)


def is_proxy_url(url: str) -> bool:
    """Return True for an HTTP proxy with its port. A user and a password are allowed."""
    parts = _split(url)
    if parts is None or parts.scheme != "http" or not parts.port or not is_encoded(url):
        return False
    return parts.path in ("", "/") and not parts.query and not parts.fragment


def is_encoded(url: str) -> bool:
    """Return True if the text has only the characters of a URI. All others must be percent-encoded."""
    return re.fullmatch(_ENCODED, url) is not None


def is_secure_url(url: str) -> bool:
    """Return True for an absolute address to send a browser or the provider to: HTTPS, or HTTP to this machine.

    HTTP to the site of Django's test client is as good. A user or a password in the address is refused.
    """
    parts = _split(url) if is_encoded(url) else None
    if parts is None or parts.username is not None or parts.password is not None:
        return False
    return _is_secure(parts) or (parts.scheme == "http" and parts.hostname == TEST_HOST)


def is_payer_link(url: str) -> bool:
    """Return True for an absolute HTTP or HTTPS address from the provider that a payer can be sent to.

    Other schemes (``javascript:``, the scheme of an app) and relative addresses are refused.
    """
    parts = _split(url) if len(url) <= MAX_LINK and re.fullmatch(_WEB, url) else None
    if parts is None or "@" in parts.netloc or parts.port == 0:
        return False
    return re.fullmatch(_HOST, parts.hostname or "") is not None


def is_staff_link(url: str) -> bool:
    """Return True for an HTTP or HTTPS address, in any script, that the admin may show as a link next to its text.

    A user before the host is refused: in ``https://bank.example@evil.example``, the host is the second name.
    """
    parts = _split(url) if re.fullmatch(_FOR_STAFF, url) else None
    return parts is not None and "@" not in parts.netloc


def is_site_path(url: str) -> bool:
    """Return True for a path on this site, with or without a query: it begins with one slash."""
    return re.fullmatch(_ON_THIS_SITE, url) is not None


def _split(url: str) -> SplitResult | None:
    """Return the parts of an address that has a host; None if it has no host, or a port that is not a number."""
    try:
        parts = urlsplit(url)
        _port = parts.port  # raises ValueError if it is not a port
    except ValueError:
        return None
    return parts if parts.hostname else None


def _is_secure(parts: SplitResult) -> bool:
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS)
