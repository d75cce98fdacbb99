"""Amounts: integers in minor units, and the text that people read and type (spec, "What the service does").

The minor unit of a currency without decimals (CLP) is the whole unit; with two decimals, it is a hundredth. There are
no floats: they cannot hold an amount exactly.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from django.utils.translation import get_language, to_locale

#: Decimals of each currency of the spec.
EXPONENTS: dict[str, int] = {"CLP": 0, "COP": 2, "PEN": 2, "MXN": 2, "BRL": 2, "USD": 2}
#: For a currency that is not listed: the spec says that every currency with decimals has two.
DEFAULT_EXPONENT = 2

#: The largest amount.
INT64_MAX = 2**63 - 1


def exponent(currency: str) -> int:
    """How many decimals the currency has: 0 for CLP, 2 for every other one, known or not."""
    return EXPONENTS.get(currency, DEFAULT_EXPONENT)


def to_minor(amount: Decimal | str | int, currency: str) -> int:
    """Minor units of an amount in whole units: ``to_minor("12.50", "USD") == 1250``, ``to_minor(990, "CLP")
    == 990``.

    Raises TypeError for floats and other types. Raises ValueError for text that is not a plain number, for more
    decimals than the currency has, and for an amount beyond int64. Nothing is rounded.
    """
    if isinstance(amount, bool) or not isinstance(amount, Decimal | str | int):
        raise TypeError(f"an amount is a Decimal, a text or an int, not {type(amount).__name__}")
    try:
        value = Decimal(amount)
    except InvalidOperation:
        raise ValueError("this is not a number") from None
    if not value.is_finite() or (isinstance(amount, str) and not _is_plain(amount)):
        raise ValueError("this is not a plain number")
    # Shift the digits: Decimal arithmetic would round to the context's precision.
    sign, digits, power = value.as_tuple()
    power = int(power) + exponent(currency)
    if len(digits) + max(power, 0) > 30:
        raise ValueError("the amount is out of range")
    if power < 0 and any(digits[power:] if -power <= len(digits) else digits):
        raise ValueError(f"{currency} has {exponent(currency)} decimals")
    kept = digits[:power] if power < 0 else digits + (0,) * power
    minor = int("".join(map(str, kept)) or "0")
    if minor > INT64_MAX:
        raise ValueError("the amount is out of range")
    return -minor if sign else minor


def to_major(amount: int, currency: str) -> Decimal:
    """Whole units of an amount in minor units: ``to_major(1250, "USD") == Decimal("12.50")``.

    Raises TypeError if the amount is not an int.
    """
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise TypeError(f"minor units are an int, not {type(amount).__name__}")
    return Decimal(f"{amount}E-{exponent(currency)}")


def format_money(amount: int, currency: str, locale: str | None = None) -> str:
    """Minor units as text for people, in ``locale`` ("es-CL" or "es_CL") or the active language.

    Shows as many decimals as the provider's interface, even if the country usually shows others.
    """
    # Babel's data is large; it is loaded when money is first shown.
    from babel.core import Locale, UnknownLocaleError  # noqa: PLC0415
    from babel.numbers import parse_pattern  # noqa: PLC0415

    try:
        known = Locale.parse(to_locale((locale or get_language() or "en").lower().replace("_", "-")))
    except (UnknownLocaleError, ValueError):
        known = Locale.parse("en")
    # A copy, because the locale's own pattern is shared and has the country's decimals.
    pattern = parse_pattern(known.currency_formats["standard"].pattern)
    pattern.frac_prec = (exponent(currency),) * 2
    text: str = pattern.apply(to_major(amount, currency), known, currency=currency, currency_digits=False)
    return text


def _is_plain(text: str) -> bool:
    """Only digits, a sign and a decimal point. Decimal also accepts exponents, underscores and other scripts."""
    return text.isascii() and set(text) <= set("0123456789.+-") and text == text.strip()
