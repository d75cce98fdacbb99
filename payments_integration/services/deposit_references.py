"""Make permanent references that payers transfer to (spec, "Deposit references")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import COUNTRIES, CURRENCIES
from payments_integration.models import DepositReference
from payments_integration.outbox import Intent
from payments_integration.services.service import creation, service
from payments_integration.validation import objects
from payments_integration.validation.validator import Json, Validator


@service(DepositReference)
def create_deposit_reference(
    *,
    country: str,
    currency: str,
    method_code: str,
    payer: Mapping[str, Any] | None = None,
    merchant_reference: str | None = None,
    account: str = conf.DEFAULT_ACCOUNT,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Make a reference to which a payer can transfer again and again (spec, "Deposit references").

    Each transfer becomes a payment by itself. ``account``, ``idempotency_key``, ``actor`` and the errors are the same
    as in ``create_payment``.

    Args:
        country: The ISO code of the payer's country.
        currency: Its ISO code.
        method_code: A ``code`` of ``list_payment_methods``.
        payer: As in ``create_payment``.
        merchant_reference: Yours for the payer. Nothing is filled in, because the payments that come of it may
            carry it.

    Returns:
        The mirrored reference. ``details`` says what the payer transfers to.
    """
    validator = Validator(conf.current().DOCUMENT_CHECKS)
    body: Json = {
        "country": validator.choice("country", country, COUNTRIES),
        "currency": validator.choice("currency", currency, CURRENCIES),
        "method_code": validator.text("method_code", method_code, required=True),
    }
    if payer is not None:
        body["payer"] = objects.payer(validator, "payer", payer, body["country"])
    if merchant_reference is not None:
        body["merchant_reference"] = validator.reference("merchant_reference", merchant_reference)
    return creation(validator, body, account=account, idempotency_key=idempotency_key, actor=actor)
