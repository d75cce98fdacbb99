"""Objects made at the provider and mirrored here before a page is opened."""

from __future__ import annotations

from typing import Any

from payments_integration import services
from payments_integration.models import Payment, Payout
from payments_integration.testing import ProviderSandbox

CARD = "cl_webpay_card"
TRANSFER = "cl_bank_transfer"
ACCOUNT_NUMBER = "000123456"
HOLDER = {"name": "Ana Soto", "document": {"type": "RUT", "number": "12345678-5"}}
DESTINATION = {
    "type": "bank_account", "bank_code": "012", "account_number": ACCOUNT_NUMBER, "account_type": "checking",
    "holder_name": HOLDER["name"], "holder_document": HOLDER["document"],
}  # fmt: skip


def paid(provider: ProviderSandbox, method_code: str = CARD, amount: int = 10_000, **fields: Any) -> Payment:
    """A paid payment, in Chile by default, as it is in the mirror."""
    where = {"currency": "CLP", "country": "CL"}
    made = services.create_payment(amount=amount, method_code=method_code, **{**where, **fields})
    provider.engine.pay(made.pk)
    provider.settle()
    made.refresh_from_db()
    assert made.status == "succeeded"
    return made


def funded(provider: ProviderSandbox, amount: int, currency: str = "CLP") -> None:
    """An available balance, and a bank account that is on the provider's list."""
    provider.engine.fund(currency, amount)
    provider.engine.whitelist(ACCOUNT_NUMBER)
    provider.settle()
    services.sync_balances()


def paid_out(provider: ProviderSandbox, amount: int = 50_000) -> Payout:
    funded(provider, amount * 2)
    made = services.create_payout(
        amount=amount, currency="CLP", country="CL", method_code=TRANSFER, destination=DESTINATION, actor="nightly"
    )
    provider.settle()
    return made
