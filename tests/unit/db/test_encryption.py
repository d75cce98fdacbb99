"""Stored secrets are encrypted, readable after a key rotation, and a missing key is reported."""

from __future__ import annotations

from typing import Any

import pytest

from payments_integration.db.encryption import DecryptionError, decrypt, encrypt


def configure(settings: Any, **options: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, **options}


@pytest.mark.promise(7)
def test_a_token_does_not_show_the_secret() -> None:
    token = encrypt("whsec_1")
    assert "whsec_1" not in token
    assert decrypt(token) == "whsec_1"
    assert encrypt("whsec_1") != token


@pytest.mark.case(86)
def test_the_first_key_encrypts_and_old_keys_still_decrypt(settings: Any) -> None:
    configure(settings, ENCRYPTION_KEYS=["old"])
    token = encrypt("whsec_1")
    configure(settings, ENCRYPTION_KEYS=["new", "old"])
    assert decrypt(token) == "whsec_1"
    newer = encrypt("whsec_2")
    configure(settings, ENCRYPTION_KEYS=["old"])
    with pytest.raises(DecryptionError, match="ENCRYPTION_KEYS"):
        decrypt(newer)


@pytest.mark.case(86)
def test_keys_come_from_secret_key_and_its_fallbacks_by_default(settings: Any) -> None:
    token = encrypt("whsec_1")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"
    assert decrypt(token) == "whsec_1"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(DecryptionError):
        decrypt(token)
