"""Name payment methods, and reasons why something failed, in everyday words. ``NAMES`` adds to these tables.

The spec defines codes for neither. The code of a method that no table has is split into words. An unknown reason is
shown as the provider sent it.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.enums import MethodFamily
from payments_integration.payer.texts import visible
from payments_integration.validation.text import StrOrPromise

#: How brands and acronyms are written.
_BRANDS = {
    name.lower(): name
    for name in (
        "BBVA", "BCP", "CoDi", "DeUna", "MACH", "OXXO", "PagoEfectivo", "PayPhone", "PSE", "SPEI", "TED", "USD",
    )
}  # fmt: skip
#: Methods that have no name of their own.
_METHODS: dict[str, StrOrPromise] = {
    **{family.value.replace("_", " "): family.label for family in MethodFamily},
    "bank transfer": _("Bank transfer"),
    "bre b": "Bre-B",
    "card": _("Card"),
    "card direct": _("Saved card"),
    "card on file": _("Saved card"),
    "cash": _("Cash"),
    "debit card": _("Debit card"),
    "credit card": _("Credit card"),
    "deposit": _("Deposit account"),
    "deposit account": _("Deposit account"),
    "deposit clabe": _("Deposit CLABE"),
    "deposit reference": _("Deposit account"),
    "transfer in dollars": _("Transfer in dollars"),
    "bank transfer usd": _("Transfer in dollars"),
    "wallet": _("Wallet"),
    "webpay card": _("Webpay card"),
}
#: Words that follow a brand's name, as in ``BCP online``.
_ENDINGS: dict[str, StrOrPromise] = {
    # Translators: a brand's name and how it pays, such as "BCP online"
    "online": _("{brand} online"),
    # Translators: a brand's name and how it pays, such as "Servipag cash"
    "cash": _("{brand} cash"),
    # Translators: a brand's name and how it pays, such as "TED transfer"
    "transfer": _("{brand} transfer"),
}
_REASONS: dict[str, StrOrPromise] = {
    "account_closed": _("the account is closed"),
    "declined": _("declined by the bank"),
    "expired_card": _("the card has expired"),
    "insufficient_funds": _("not enough money in the account"),
    "invalid_account": _("the account does not exist"),
    "rejected_by_bank": _("rejected by the bank"),
    "returned_by_bank": _("returned by the bank"),
}


def method_name(code: str, listed: str = "") -> str:
    """Return a method's name, with its common words in the active language.

    ``listed`` is the provider's name for it. Without one, ``cl_webpay_card`` becomes "Webpay card" and ``co_pse``
    becomes "PSE".
    """
    own = conf.current().NAMES.get(code)
    return visible(str(own)) if own else _translated(listed) or _from_code(code)


def reason_text(reason: str) -> str:
    """Return why something failed: the words for a known code, or any other text as the provider sent it."""
    words = conf.current().NAMES.get(reason) or _REASONS.get(reason.strip().lower().replace(" ", "_"))
    return str(words or reason)


def _translated(name: str) -> str:
    brand, _space, ending = name.rpartition(" ")
    if (words := _METHODS.get(name.lower())) is not None:
        return str(words)
    if brand and (words := _ENDINGS.get(ending.lower())) is not None:
        return str(words).replace("{brand}", visible(brand))
    return visible(name)


def _from_code(code: str) -> str:
    country, _sign, rest = code.partition("_")
    words = (rest if len(country) == 2 and rest else code).replace("_", " ").split()
    name = " ".join(_BRANDS.get(word.lower(), word) for word in words) or code
    return _translated(name[:1].upper() + name[1:])
