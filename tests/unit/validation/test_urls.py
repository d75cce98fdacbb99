"""Which addresses are safe for which use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import RequestFactory

from payments_integration.validation.urls import (
    LOOPBACK_HOSTS,
    MAX_LINK,
    is_base_url,
    is_encoded,
    is_payer_link,
    is_secure_url,
    is_site_path,
    is_staff_link,
)

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
    "https://bank.example/" + "a" * MAX_LINK,
    "",
]


@pytest.mark.parametrize("url", GOOD)
def test_a_payer_can_be_sent_to_an_http_address(url: str) -> None:
    assert is_payer_link(url)


@pytest.mark.case(84)
@pytest.mark.parametrize("url", BAD)
def test_a_payer_is_never_sent_to_another_scheme_or_a_disguised_host(url: str) -> None:
    assert not is_payer_link(url)


@pytest.mark.parametrize("url", ["https://bank.example/ñ", "https://bank.example/%G1", "https://bank.example/a b"])
def test_a_secure_url_is_percent_encoded(url: str) -> None:
    assert not is_encoded(url)
    assert not is_secure_url(url)


@pytest.mark.parametrize("rule", [is_base_url, is_secure_url])
@pytest.mark.parametrize("host", sorted(LOOPBACK_HOSTS))
def test_plain_http_is_allowed_to_this_machine_only(rule: Callable[[str], bool], host: str) -> None:
    host = f"[{host}]" if ":" in host else host
    assert rule(f"http://{host}:8400/x")
    assert not rule("http://bank.example/x")
    assert rule("https://bank.example/x")


def test_a_payer_may_return_to_the_site_of_djangos_test_client(rf: RequestFactory) -> None:
    assert is_secure_url(rf.get("/orders/7/").build_absolute_uri())
    assert not is_base_url(rf.get("/").build_absolute_uri())


def test_a_base_url_has_no_query_but_a_secure_url_may_have_one() -> None:
    assert not is_base_url("https://bank.example/x?y=1")
    assert is_secure_url("https://bank.example/x?y=1")


def test_staff_may_follow_an_address_with_letters_of_any_script_but_without_invisible_characters() -> None:
    assert is_staff_link("https://bank.example/ñ")
    assert not is_staff_link("https://bank.example/\x00")
    assert not is_staff_link("javascript:alert(1)")


@pytest.mark.parametrize("path", ["/", "/orders/7/?a=1&b=2#c", "/ñ/%20", "/a//b"])
def test_a_path_of_this_site_begins_with_one_slash(path: str) -> None:
    assert is_site_path(path)


@pytest.mark.parametrize(
    "path", ["", "orders/7", "//evil.example", "/\\evil.example", "/a b", "/a\n", "/\t/evil", '/"x']
)
def test_no_other_text_is_a_path_of_this_site(path: str) -> None:
    assert not is_site_path(path)


@pytest.mark.case(84)
@pytest.mark.parametrize("rule", [is_staff_link, is_payer_link])
@pytest.mark.parametrize("user", ["bank.example@", "bank.example:443@", "@", "%61@", "bank.example\uff20"])
def test_no_link_has_a_user_before_its_host(rule: Callable[[str], bool], user: str) -> None:
    assert rule("https://bank.example/@ana?to=a@b.example")
    assert not rule(f"https://{user}evil.example/")
