"""Mistakes in ``PAYMENTS_NOTIFY`` are named, by the check and when it is used."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from payments_integration.contrib.notify.options import Options, check_setting, current


def test_every_option_has_a_default() -> None:
    assert current() == Options()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["finance@shop.example"], "PAYMENTS_NOTIFY must be a dictionary"),
        ({"MAILTO": ["a@b.example"]}, "PAYMENTS_NOTIFY has no option 'MAILTO'; did you mean 'MAIL_TO'?"),
        ({"MAIL_TO": "a@b.example"}, 'PAYMENTS_NOTIFY["MAIL_TO"] must be a list of e-mail addresses'),
        ({"MAIL_TO": ["finance"]}, 'PAYMENTS_NOTIFY["MAIL_TO"] must be a list of e-mail addresses'),
        ({"CHAT_URL": "http://chat.example/x"}, 'PAYMENTS_NOTIFY["CHAT_URL"] must be an https:// URL'),
        ({"CHAT_URL": 7}, 'PAYMENTS_NOTIFY["CHAT_URL"] must be an https:// URL'),
        ({"SITE_URL": "shop.example"}, 'PAYMENTS_NOTIFY["SITE_URL"] must be an https:// URL'),
    ],
)
def test_a_mistake_is_an_error(given: Any, text: str) -> None:
    with override_settings(PAYMENTS_NOTIFY=given):
        assert [(message.id, message.msg) for message in check_setting()] == [("payments_integration.E041", text)]
        with pytest.raises(ImproperlyConfigured) as raised:
            current()
    assert str(raised.value) == text


def test_a_setting_that_sends_nothing_is_a_warning() -> None:
    with override_settings(PAYMENTS_NOTIFY={"SITE_URL": "https://shop.example"}):
        assert [message.id for message in check_setting()] == ["payments_integration.W040"]


@pytest.mark.parametrize("given", [{"MAIL_TO": ["a@b.example"]}, {"CHAT_URL": "https://chat.example/hooks/T0/s?x=1"}])
def test_a_channel_is_enough(given: dict[str, Any]) -> None:
    with override_settings(PAYMENTS_NOTIFY=given):
        assert check_setting() == []


def test_the_repr_hides_the_chats_secret() -> None:
    with override_settings(PAYMENTS_NOTIFY={"CHAT_URL": "https://chat.example/hooks/T0/s"}):
        assert "hooks" not in repr(current())
