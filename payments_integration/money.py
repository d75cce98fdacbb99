"""Amounts: integers in minor units, and the text that people read and type (spec, "What the service does").

The minor unit of a currency without decimals (CLP) is the whole unit; with two decimals, it is a hundredth. There are
no floats: they cannot hold an amount exactly.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from django.utils.translation import get_language, to_locale

if TYPE_CHECKING:
    from babel.core import Locale

#: Decimals of each currency of the spec.
EXPONENTS: dict[str, int] = {"CLP": 0, "COP": 2, "PEN": 2, "MXN": 2, "BRL": 2, "USD": 2}
#: For a currency that is not listed: the spec says that every currency with decimals has two.
DEFAULT_EXPONENT = 2

#: The largest amount.
INT64_MAX = 2**63 - 1

#: How each country of the spec writes money.
_LOCALES = {"CL": "es_CL", "CO": "es_CO", "EC": "es_EC", "PE": "es_PE", "MX": "es_MX", "BR": "pt_BR"}
#: A typed amount without thousands separators.
_UNGROUPED = re.compile(r"([0-9]{1,20})(?:[.,]([0-9]{1,2}))?")
#: Some languages separate thousands with a space that few keyboards have.
_SPACES = re.compile(r"\s")


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
    """Minor units for staff: the ISO code, a no-break space and the amount, ``CLP 15,990``. ``$`` would be ambiguous.

    ``locale``: whose separators, such as "es-CL" or "es_CL"; the active language if None.
    """
    return f"{currency}\xa0{format_amount(amount, currency, locale)}"


def format_amount(amount: int, currency: str, locale: str | None = None) -> str:
    """The same without the code, as a form's field shows it: ``15,990``."""
    return _with_separators(to_major(amount, currency), exponent(currency), locale)


def format_for_payer(amount: int, currency: str, country: str) -> str:
    """Minor units for payers, as their country writes them in every language: ``$14.990`` (CL), ``S/ 58.90`` (PE).

    For a country that is not of the spec, the same as ``format_money``.
    """
    from babel.numbers import get_currency_symbol, parse_pattern  # noqa: PLC0415

    if country not in _LOCALES:
        return format_money(amount, currency)
    known = _known(_LOCALES[country])
    # A copy, because the locale's own pattern is shared and has the country's decimals.
    pattern = parse_pattern(known.currency_formats["standard"].pattern)
    pattern.frac_prec = (exponent(currency),) * 2
    text: str = pattern.apply(to_major(amount, currency), known, currency=currency, currency_digits=False)
    symbol = get_currency_symbol(currency, known)
    # CLDR's rule, which Babel leaves out: a symbol that ends with a letter does not touch the digits.
    return re.sub(rf"(?<={re.escape(symbol)})(?=[0-9])", "\xa0", text) if symbol[-1:].isalpha() else text


def parse_amount(typed: str, currency: str, locale: str | None = None) -> int:
    """Minor units of an amount as a person types it, with or without the currency's code in front.

    Thousands separators must be those of ``locale``, at the places where ``format_amount`` writes them: 1.000 is a
    thousand in Chile and one in the United States. Without them, one or two digits after a point or a comma are
    decimals. So no text has two meanings, in whichever language it is read. Raises ValueError.
    """
    text = _SPACES.sub(" ", typed).strip().removeprefix(currency).lstrip()
    if found := _UNGROUPED.fullmatch(text):
        digits, decimals = found[1], found[2] or ""
    else:
        symbols = _known(locale).number_symbols["latn"]
        whole, _point, decimals = text.partition(symbols["decimal"])
        digits = whole.replace(_SPACES.sub(" ", symbols["group"]), "")
        is_number = re.fullmatch(r"[0-9]{1,20}", digits) and re.fullmatch(r"[0-9]*", decimals)
        if not is_number or whole != _SPACES.sub(" ", _with_separators(Decimal(digits), 0, locale)):
            raise ValueError("this is not an amount as it is written here")
    if len(decimals) > exponent(currency):
        raise ValueError(f"{currency} has {exponent(currency)} decimals")
    return to_minor(f"{digits}.{decimals or 0}", currency)


def decimal_separator(locale: str | None = None) -> str:
    """The point or comma before decimals, in ``locale`` or the active language."""
    return str(_known(locale).number_symbols["latn"]["decimal"])


def _with_separators(value: Decimal, decimals: int, locale: str | None) -> str:
    from babel.numbers import parse_pattern  # noqa: PLC0415

    known = _known(locale)
    pattern = parse_pattern(known.decimal_formats[None].pattern)
    pattern.frac_prec = (decimals, decimals)
    text: str = pattern.apply(value, known)
    return text


def _known(locale: str | None) -> Locale:
    """Babel's locale; English if it does not know it."""
    # Babel's data is large; it is loaded when money is first shown.
    from babel.core import Locale, UnknownLocaleError  # noqa: PLC0415

    try:
        return Locale.parse(to_locale((locale or get_language() or "en").lower().replace("_", "-")))
    except (UnknownLocaleError, ValueError):
        return Locale.parse("en")


def _is_plain(text: str) -> bool:
    """Only digits, a sign and a decimal point. Decimal also accepts exponents, underscores and other scripts."""
    return text.isascii() and set(text) <= set("0123456789.+-") and text == text.strip()
