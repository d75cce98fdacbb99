"""Who may see a page: whoever has a token that we signed, for as long as it lasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core import signing
from django.test import override_settings
from django.utils import timezone

from payments_integration.checkout import tokens
from payments_integration.checkout.tokens import InvalidToken, Subject

SUBJECTS = [
    Subject("default", payment_id="pay_1"),
    Subject("second", merchant_reference="order 1 \\ Ñ <b> / ?#"),
    Subject("default", merchant_reference="漢" * 255),
]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_token_says_what_it_was_made_for(subject: Subject) -> None:
    assert tokens.read_status_token(tokens.status_token(subject), max_age=60) == subject
    assert tokens.read_return_token(tokens.return_token(subject)) == subject


def read(token: str) -> list[Subject]:
    found = []
    for reader in (lambda: tokens.read_status_token(token, max_age=60), lambda: tokens.read_return_token(token)):
        try:
            found.append(reader())
        except InvalidToken:
            continue
    return found


@pytest.mark.parametrize("make", [tokens.status_token, tokens.return_token])
def test_every_change_of_a_token_spoils_it(make: Any) -> None:
    token = make(SUBJECTS[0])
    assert len(read(token)) == 1  # neither kind is taken for the other
    for place, char in enumerate(token):
        assert read(f"{token[:place]}{'A' if char != 'A' else 'B'}{token[place + 1 :]}") == [], place
    for changed in (
        "",
        ":",
        "::",
        "x",
        token[:-1],
        f"{token}x",
        f"{token}:",
        token.rpartition(":")[0],
        "\ud800",
        "\x00",
    ):
        assert read(changed) == [], changed


def test_what_was_signed_for_something_else_is_no_token() -> None:
    content = ["default", "pay_1", ""]
    for token in (
        signing.dumps(content),
        signing.dumps(content, salt="payments_integration.checkout"),
        signing.dumps(content, key="another key of another site", salt="payments_integration.checkout.status"),
        signing.dumps("pay_1", salt="payments_integration.checkout.status"),
        signing.dumps(None, salt="payments_integration.checkout.status"),
    ):
        assert read(token) == []


def test_a_status_token_ends() -> None:
    # A token holds the whole second of its making, and ages from there.
    with time_machine.travel(timezone.now().replace(microsecond=0), tick=False) as clock:
        token = tokens.status_token(SUBJECTS[0])
        clock.shift(60)
        assert tokens.read_status_token(token, max_age=60) == SUBJECTS[0]
        clock.shift(1)
        with pytest.raises(InvalidToken):
            tokens.read_status_token(token, max_age=60)


def test_a_return_token_is_the_same_each_time() -> None:
    token = tokens.return_token(SUBJECTS[1])
    with time_machine.travel(timezone.now() + timedelta(days=3)):
        assert tokens.return_token(SUBJECTS[1]) == token


def test_a_key_can_be_rotated() -> None:
    made = tokens.status_token(SUBJECTS[0]), tokens.return_token(SUBJECTS[0])
    old = "test-secret-key-that-is-long-enough-for-the-checks-0123456789"
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=[old]):
        assert [read(token) for token in made] == [[SUBJECTS[0]], [SUBJECTS[0]]]
    with override_settings(SECRET_KEY="new" * 20):
        assert [read(token) for token in made] == [[], []]
