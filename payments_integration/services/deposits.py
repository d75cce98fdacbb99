"""Permanent references that payers transfer to (spec, "Deposit references")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import Country, Currency
from payments_integration.models import DepositReference
from payments_integration.services import shapes
from payments_integration.services.calls import sends
from payments_integration.services.checks import Checks, Json
from payments_integration.services.intents import Intent, check_size
from payments_integration.services.recipes import CREATE_DEPOSIT_REFERENCE


@sends(DepositReference)
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
    """Make a reference to which a payer can transfer again and again; transfers create payments by
    themselves.

    ``payer``: as in ``create_payment``. ``merchant_reference``: yours for the payer; nothing is filled in,
    because the payments that come of it may carry it. Raises what ``create_payment`` raises.
    """
    checks = Checks()
    body: Json = {
        "country": checks.choice("country", country, Country.values),
        "currency": checks.choice("currency", currency, Currency.values),
        "method_code": checks.text("method_code", method_code, required=True),
    }
    if payer is not None:
        body["payer"] = shapes.payer(checks, "payer", payer, body["country"])
    if merchant_reference is not None:
        body["merchant_reference"] = checks.text("merchant_reference", merchant_reference)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    check_size(checks, body)
    checks.finish()
    return Intent(
        operation=CREATE_DEPOSIT_REFERENCE,
        account=account,
        arguments=body,
        body=body,
        currency=body["currency"],
        idempotency_key=key,
        actor=who,
    )
