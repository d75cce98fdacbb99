"""Which addresses of the provider may become links."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

#: A server's request line takes about as much.
MAX_ADDRESS = 4000

#: A URI as RFC 3986 writes it: ASCII, and nothing that a browser drops or reads as something else (tabs, ``\``).
_URI = re.compile(r"https?://[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def web_address(url: str) -> str:
    """``url`` if it is an absolute http or https address that a payer can be sent to, else "".

    No other scheme (``javascript:``, an app's own), nothing relative, no user before the host: what stands there looks
    like the host.
    """
    if len(url) > MAX_ADDRESS or not _URI.fullmatch(url):
        return ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host or "@" in parts.netloc or port == 0 or not _HOST.fullmatch(host):
        return ""
    return url
