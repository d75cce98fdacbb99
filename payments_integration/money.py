"""Convert amounts between minor units and text that people read and type (spec, "What the service does").

The minor unit of a currency without decimals (CLP) is the whole unit; with two decimals, it is a hundredth. There are
no floats: they cannot hold an amount exactly.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils.translation import get_language, to_locale

if TYPE_CHECKING:
    from babel.core import Locale

#: Decimals of each currency of the spec.
EXPONENTS: dict[str, int] = {"CLP": 0, "COP": 2, "PEN": 2, "MXN": 2, "BRL": 2, "USD": 2}
#: For a currency that is not listed: the spec says that every currency with decimals has two.
DEFAULT_EXPONENT = 2

#: The largest amount.
INT64_MAX = 2**63 - 1
#: Enough digits for every amount.
_CONTEXT = Context(prec=28)
#: What to write instead of an amount in whole units, for messages.
TO_MINOR = 'money.to_minor(Decimal("119.90"), "USD")'

#: How each country of the spec writes money.
_LOCALES = {"CL": "es_CL", "CO": "es_CO", "EC": "es_EC", "PE": "es_PE", "MX": "es_MX", "BR": "pt_BR"}
#: A typed amount without thousands separators.
_UNGROUPED = r"([0-9]{1,20})(?:[.,]([0-9]{1,2}))?"
#: Thousands with the same separator twice or more, and decimals after the other one.
_GROUPED_TWICE = r"([1-9][0-9]{0,2}(?:(?:\.[0-9]{3}){2,5}(?=,|$)|(?:,[0-9]{3}){2,5}(?=\.|$)))(?:[.,]([0-9]{1,2}))?"
#: Some languages separate thousands with a space that few keyboards have.
_SPACES = r"\s"


def exponent(currency: str) -> int:
    """Return how many decimals the currency has: 0 for CLP, 2 for every other one, known or not."""
    return EXPONENTS.get(currency, DEFAULT_EXPONENT)


def to_minor(amount: Decimal | str | int, currency: str) -> int:
    """Return minor units: ``to_minor(Decimal("12.50"), "USD") == 1250``, ``to_minor(990, "CLP") == 990``.

    Raises TypeError for floats and other types. Raises ValueError for text that is not a plain number, for more
    decimals than the currency has, for an amount beyond int64, and for a currency that is not in the spec, such as
    ``"usd"``. Nothing is rounded.
    """
    return _shifted(amount, checked_currency(currency))


class Example(NamedTuple):
    """What to pass instead of an amount that is not an int, for messages."""

    #: Minor units.
    minor: int = 11_990
    #: The same for people.
    shown: str = "USD 119.90"
    call: str = TO_MINOR

    def __str__(self) -> str:
        return f"{self.minor} for {self.shown}: {self.call}"


def example_for(amount: object, currency: object = None) -> Example:
    """Return an example with the caller's own number if that is in whole units, otherwise with another number.

    A text of digits only may have been meant as minor units.
    """
    is_number = isinstance(amount, Decimal | float) or (isinstance(amount, str) and "." in amount)
    if not is_number or not isinstance(currency, str):
        return Example()
    try:
        minor = to_minor(str(amount), currency)
    except ValueError:
        return Example()
    if minor <= 0:
        return Example()
    whole = to_major(minor, currency)
    call = f'money.to_minor(Decimal("{whole}"), "{currency}")'
    if isinstance(amount, Decimal | float) and minor != amount == int(amount):
        # Perhaps a Decimal that was multiplied by 100.
        call += f", or {int(amount)} if it is in minor units"
    return Example(minor, f"{currency} {whole}", call)


def checked_minor(amount: object, currency: object = None) -> int:
    """Return the amount if it is an int. Raises TypeError for a Decimal (whole units) or a float (not exact).

    ``currency`` is the amount's, for the message.
    """
    if isinstance(amount, bool) or not isinstance(amount, int):
        example = example_for(amount, currency)
        raise TypeError(f"an amount is an int in minor units, not {type(amount).__name__}: pass {example}")
    return amount


def checked_currency(currency: str) -> str:
    """Return the currency if the spec has it. Raises ValueError otherwise, even for ``"usd"``."""
    if currency not in EXPONENTS:
        raise ValueError(f"a currency is one of {', '.join(EXPONENTS)}, not {currency!r}")
    return currency


def _shifted(amount: Decimal | str | int, currency: str) -> int:
    """Do ``to_minor`` for any currency: the provider may have one that is not listed."""
    if isinstance(amount, bool) or not isinstance(amount, Decimal | str | int):
        instead = f', such as Decimal("{amount}")' if isinstance(amount, float) else ""
        raise TypeError(f"an amount is a Decimal, a text or an int, not {type(amount).__name__}{instead}")
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
        raise ValueError(f"{currency} has {exponent(currency)} decimals, and {amount} has more: round it first")
    kept = digits[:power] if power < 0 else digits + (0,) * power
    minor = int("".join(map(str, kept)) or "0")
    if minor > INT64_MAX:
        raise ValueError("the amount is out of range")
    return -minor if sign else minor


def to_major(amount: int, currency: str) -> Decimal:
    """Return whole units of an amount in minor units: ``to_major(1250, "USD") == Decimal("12.50")``.

    Raises TypeError if the amount is not an int.
    """
    return Decimal(f"{checked_minor(amount, currency)}E-{exponent(currency)}")


def format_money(amount: int, currency: str, locale: str | None = None) -> str:
    """Write minor units for staff: ISO code, no-break space and amount, ``CLP 15,990``. ``$`` would be ambiguous.

    ``locale`` gives the separators, such as "es-CL" or "es_CL"; None: the active language.
    """
    return f"{currency}\xa0{format_amount(amount, currency, locale)}"


def format_amount(amount: int, currency: str, locale: str | None = None) -> str:
    """Write the amount without the code, as a form's field shows it: ``15,990``."""
    return _with_separators(to_major(amount, currency), _decimals(amount, currency), locale)


def format_count(number: int) -> str:
    """Write a number that is no amount with the same separators, as it often stands beside one: ``1,234``."""
    return _with_separators(Decimal(number), 0, None)


def format_for_payer(amount: int, currency: str, country: str) -> str:
    """Write minor units for payers, as their country does in every language: ``$14.990`` (CL), ``S/ 58.90`` (PE).

    For a country that is not in the spec, the same as ``format_money``.
    """
    from babel.numbers import get_currency_symbol, parse_pattern  # noqa: PLC0415

    if country not in _LOCALES:
        return format_money(amount, currency)
    known = _known(_LOCALES[country])
    # A copy, because the locale's own pattern is shared and has the country's decimals.
    pattern = parse_pattern(known.currency_formats["standard"].pattern)
    pattern.frac_prec = (_decimals(amount, currency),) * 2
    text = _applied(pattern, to_major(amount, currency), known, currency=currency, currency_digits=False)
    symbol = get_currency_symbol(currency, known)
    # CLDR's rule, which Babel leaves out: a symbol that ends with a letter does not touch the digits.
    return re.sub(rf"(?<={re.escape(symbol)})(?=[0-9])", "\xa0", text) if symbol[-1:].isalpha() else text


def parse_amount(typed: str, currency: str, locale: str | None = None) -> int:
    """Read minor units from an amount as a person types it, with or without the currency's code in front.

    Thousands separators must be ``locale``'s, at the places where ``format_amount`` writes them: 1.000 is a
    thousand in Chile and one in the United States. Without thousands separators, one or two digits after a point or a
    comma are decimals. The same separator twice, as in 1.200.000, separates thousands in every language. So no text
    has two meanings, in whichever language it is read. Raises ValueError.
    """
    text = re.sub(_SPACES, " ", typed).strip().removeprefix(currency).lstrip()
    if found := re.fullmatch(_UNGROUPED, text) or re.fullmatch(_GROUPED_TWICE, text):
        digits, decimals = re.sub(r"[.,]", "", found[1]), found[2] or ""
    else:
        symbols = _known(locale).number_symbols["latn"]
        whole, _point, decimals = text.partition(symbols["decimal"])
        digits = whole.replace(re.sub(_SPACES, " ", symbols["group"]), "")
        is_number = re.fullmatch(r"[0-9]{1,20}", digits) and re.fullmatch(r"[0-9]*", decimals)
        if not is_number or whole != re.sub(_SPACES, " ", _with_separators(Decimal(digits), 0, locale)):
            raise ValueError("this is not an amount as it is written here")
    if len(decimals) > exponent(currency):
        raise ValueError(f"{currency} has {exponent(currency)} decimals")
    return _shifted(f"{digits}.{decimals or 0}", currency)


def decimal_separator() -> str:
    """Return the point or comma before decimals in the active language."""
    return str(_known(None).number_symbols["latn"]["decimal"])


def _decimals(amount: int, currency: str) -> int:
    """Return how many decimals people write: none for a whole number of Colombian pesos."""
    digits = exponent(currency)
    return 0 if currency == "COP" and amount % 10**digits == 0 else digits


def _with_separators(value: Decimal, decimals: int, locale: str | None) -> str:
    from babel.numbers import parse_pattern  # noqa: PLC0415

    known = _known(locale)
    pattern = parse_pattern(known.decimal_formats[None].pattern)
    pattern.frac_prec = (decimals, decimals)
    # The sign that calculations and percentages have beside it. Files for programs are not written here.
    return _applied(pattern, value, known).replace("-", "\N{MINUS SIGN}")


def _applied(pattern: Any, value: Decimal, locale: Locale, **options: Any) -> str:
    # The project may have set the precision of this thread, often in the belief that it counts decimals.
    with localcontext(_CONTEXT):
        return str(pattern.apply(value, locale, **options))


def _known(locale: str | None) -> Locale:
    """Return Babel's locale; English if Babel does not know it."""
    # Babel's data is large. It is loaded when money is first shown.
    from babel.core import Locale, UnknownLocaleError  # noqa: PLC0415

    try:
        return Locale.parse(to_locale((locale or get_language() or "en").lower().replace("_", "-")))
    except (UnknownLocaleError, ValueError):
        return Locale.parse("en")


def _is_plain(text: str) -> bool:
    """Accept only digits, a sign and a decimal point. Decimal also accepts exponents and other scripts."""
    return text.isascii() and set(text) <= set("0123456789.+-") and text == text.strip()
