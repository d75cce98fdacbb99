"""The signature: by the spec, and against an implementation that is not ours."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
import stripe
from hypothesis import given, strategies as st

from payments_integration.exceptions import SignatureError
from payments_integration.signatures import sign, verify

BODY = b'{"id": "evt_1", "amount": 10}'
NOW = 1_700_000_000


def v1(body: bytes = BODY, secret: str = "whsec", t: object = NOW) -> str:
    return hmac.new(secret.encode(), f"{t}.".encode() + body, hashlib.sha256).hexdigest()


def check(header: str, *, body: bytes = BODY, secrets: tuple[str, ...] = ("whsec",), now: float = NOW) -> None:
    verify(body, header, secrets=secrets, now=now)


def test_sign_makes_the_header_of_the_spec() -> None:
    assert sign(BODY, "whsec", now=NOW) == f"t={NOW},v1={v1()}"


def test_what_we_sign_another_implementation_verifies() -> None:
    assert stripe.WebhookSignature.verify_header(BODY.decode(), sign(BODY, "whsec"), "whsec", 300)


def test_what_another_implementation_signs_we_verify() -> None:
    payload = json.dumps({"id": "evt_1", "name": "José 漢"})
    signature = stripe.WebhookSignature._compute_signature(f"{NOW}.{payload}", "whsec")
    check(f"t={NOW},v1={signature}", body=payload.encode())


@given(body=st.binary(max_size=200), secret=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_a_signed_body_verifies(body: bytes, secret: str) -> None:
    verify(body, sign(body, secret, now=NOW), secrets=[secret], now=NOW)


@pytest.mark.case(2)
@pytest.mark.parametrize("sign_of", [1, -1])
def test_a_signature_is_valid_for_five_minutes_either_way(sign_of: int) -> None:
    check(sign(BODY, "whsec", now=NOW), now=NOW + sign_of * 299)
    with pytest.raises(SignatureError):
        check(sign(BODY, "whsec", now=NOW), now=NOW + sign_of * 301)


@pytest.mark.parametrize(
    ("header", "secrets", "why"),
    [
        (sign(BODY, "whsec", now=NOW - 400), ("whsec",), "signed 400 s behind our clock, and 300 s are allowed"),
        (sign(BODY, "whsec", now=NOW + 400), ("whsec",), "signed 400 s ahead of our clock"),
        (sign(BODY, "whsec", now=NOW), ("another", "old"), "none of the account's secrets signs this body"),
        (sign(BODY, "whsec", now=NOW), (), "no secret of the account is known"),
        ("", ("whsec",), "no header Service-Signature"),
    ],
)
def test_a_refusal_says_why_in_the_words_of_the_docs(header: str, secrets: tuple[str, ...], why: str) -> None:
    with pytest.raises(SignatureError, match=why) as raised:
        check(header, secrets=secrets)
    page = (Path(__file__).resolve().parents[2] / "docs" / "operate.md").read_text()
    assert f"`{raised.value}`".replace("ahead of", "behind") in page


def test_the_local_clock_is_the_default() -> None:
    verify(BODY, sign(BODY, "whsec", now=time.time()), secrets=["whsec"])
    with pytest.raises(SignatureError):
        verify(BODY, sign(BODY, "whsec", now=NOW), secrets=["whsec"])


@pytest.mark.case(6)
@pytest.mark.parametrize("header", [f"t={NOW},v1={'0' * 64},v1={v1()}", f"t={NOW},v1={v1()},v1={'0' * 64}"])
def test_either_of_two_signatures_is_accepted(header: str) -> None:
    check(header)


def test_a_signature_by_any_of_several_secrets_is_accepted() -> None:
    check(sign(BODY, "second", now=NOW), secrets=("first", "second"))


@pytest.mark.case(7)
def test_a_signature_by_an_unknown_secret_is_refused() -> None:
    with pytest.raises(SignatureError):
        check(sign(BODY, "other", now=NOW))
    with pytest.raises(SignatureError):
        check(sign(BODY, "whsec", now=NOW), secrets=())


@pytest.mark.case(7)
@pytest.mark.parametrize("secret", ["whsec", b"whsec"])
def test_one_text_is_no_list_of_secrets(secret: Any) -> None:
    """Otherwise each of its letters would be a secret."""
    with pytest.raises(TypeError, match=r"write secrets=\[secret\]"):
        check(sign(BODY, "w", now=NOW), secrets=secret)


@pytest.mark.case(7)
@pytest.mark.parametrize(
    ("known", "why"), [(("",), "no secret of the account"), (("", "whsec"), "none of the account")]
)
def test_an_empty_secret_signs_nothing(known: tuple[str, ...], why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        check(sign(BODY, "", now=NOW), secrets=known)


@pytest.mark.case(8)
@pytest.mark.parametrize("body", [BODY + b" ", BODY.replace(b"10", b"11"), b'{"id":"evt_1","amount":10}', b""])
def test_changed_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(SignatureError):
        check(sign(BODY, "whsec", now=NOW), body=body)


MALFORMED = {
    "empty": "",
    "no t": f"v1={v1()}",
    "no v1": f"t={NOW}",
    "two t": f"t={NOW},t={NOW},v1={v1()}",
    "t with underscore": f"t=1_700_000_000,v1={v1(t='1_700_000_000')}",
    "t with plus": f"t=+{NOW},v1={v1(t=f'+{NOW}')}",
    "t with spaces": f"t= {NOW},v1={v1()}",
    "t negative": f"t=-{NOW},v1={v1(t=-NOW)}",
    "t in Arabic digits": f"t=١٧٠٠٠٠٠٠٠٠,v1={v1()}",
    "t of 5,000 digits": f"t={'1' * 5000},v1={v1()}",
    "v1 not ASCII": f"t={NOW},v1=é{v1()}",
    "1,000 v1": f"t={NOW}," + ",".join(["v1=" + "0" * 64] * 1000),
    "nine v1, the last one right": f"t={NOW}," + "v1=0," * 8 + f"v1={v1()}",
    "upper case": f"t={NOW},v1={v1().upper()}",
    "v0": f"t={NOW},v0={v1()}",
    "garbage": "\x00,=,,;t",
    "lone surrogate": f"t={NOW},v1=\udc80",
}


@pytest.mark.case(1)
@pytest.mark.case(3)
@pytest.mark.case(4)
@pytest.mark.case(5)
@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED)
def test_malformed_headers_are_refused(header: str) -> None:
    with pytest.raises(SignatureError):
        check(header)


@given(st.text(max_size=300))
def test_no_header_raises_another_error(header: str) -> None:
    with pytest.raises(SignatureError):
        check(header)
