"""What a payer can be sent to."""

from __future__ import annotations

import pytest

from payments_integration.checkout.links import MAX_ADDRESS, web_address

GOOD = [
    "https://bank.example/pay?a=1&b=%20#c",
    "http://127.0.0.1:8400/checkout/pay_1",
    "HTTPS://Bank.Example",
    "https://[::1]:8443/x",
    "https://bank.example./@user:x",
    "https://xn--bnk-sna.example/",
]
#: None of them may ever become a link, a redirect or a source.
BAD = [
    "javascript:alert(1)",
    " JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    "\x01javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "intent://pay#Intent;scheme=x;end",
    "bankapp://pay",
    "//evil.example/",
    "/relative",
    "pay",
    "https:evil.example",
    "https:/evil.example",
    "https:///evil.example",
    "https://",
    "https://?x",
    "https://user@evil.example/",
    "https://bank.example:443@evil.example/",
    "https://bank.example%40evil.example/",
    "https://bank.example\\@evil.example/",
    "https:\\\\evil.example",
    "https://bank.example\n.evil.example/",
    "https://bank.example/\tx",
    "https://bank.example/ x",
    " https://bank.example/",
    "https://bank.example/\u202e",
    "https://b\u200bank.example/",
    "https://b\u0430nk.example/",  # a Cyrillic letter: an address is ASCII
    "https://bank\u3002example/",
    'https://bank.example/"onclick="alert(1)',
    "https://bank.example/<b>",
    "https://bank.example:99999/",
    "https://bank.example:0/",
    "https://bank.example:x/",
    "https://[::1/",
    "https://[evil]/",
    "https://.evil.example/",
    "https://bank.example/" + "a" * MAX_ADDRESS,
    "",
]


@pytest.mark.parametrize("url", GOOD)
def test_a_web_address_is_one(url: str) -> None:
    assert web_address(url) == url


@pytest.mark.case(84)
@pytest.mark.parametrize("url", BAD)
def test_nothing_else_is(url: str) -> None:
    assert web_address(url) == ""
