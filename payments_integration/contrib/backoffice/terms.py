"""Compute search terms: what a person may type to find an object, such as a name, an amount or a reference.

``terms_of`` returns the terms of a row; ``readings`` returns the terms that a typed text looks for. Both fold text in
the same way: lower case, without accents. A search matches the beginnings of terms.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from django.utils.formats import get_format

from payments_integration.contrib.backoffice.models import MAX_TERM
from payments_integration.models import Mirror
from payments_integration.money import DEFAULT_EXPONENT, EXPONENTS, to_major
from payments_integration.validation.text import typed as typed_text

#: The most terms of one object.
MAX_TERMS = 40
#: In characters. A longer text is cut, so that a payload with thousands of words does not fill the table.
_MAX_TEXT = 512
#: The longest search text, in characters. A QR code's payload has a few hundred.
MAX_SEARCH = 4096
#: The shortest text that is looked up as a QR code's payload, in characters.
_MIN_PAYLOAD = 20
#: The first characters of amounts and hashes. Every other term begins with a letter or a digit.
_AMOUNT, _HASH = "$", "#"
_RUN = re.compile(r"[^\W_]+")
#: A calling code of a country in the Americas, at the beginning of a number.
_COUNTRY_CODE = re.compile(r"^\+(?:1|50\d|59\d|5\d)")

#: Beginnings of terms. An object must have one of them.
Word = tuple[str, ...]
#: Words that must all match.
Reading = tuple[Word, ...]


def terms_of(row: Mirror) -> dict[str, bool]:
    """Return every term of a row. The value is True if the term comes only from personal fields."""
    found = dict.fromkeys(sorted(set(_amounts(row))), False)
    for name, make in _SEARCHED.items():
        is_personal = name in row.personal
        for term in islice(make(getattr(row, name, None)), MAX_TERMS):
            if term in found or len(found) < MAX_TERMS:
                found[term] = found.get(term, True) and is_personal
    return found


def readings(text: str) -> list[Reading]:
    """Return the possible meanings of a typed text; none if nothing can match.

    An object matches if all words of one reading match. Amounts are read in the active language's format, for every
    exponent.
    """
    text = typed_text(text).strip()[:MAX_SEARCH]
    typed = text[:_MAX_TEXT].split()
    found = [_plain(typed), _with_currency(typed)]
    if spaced := _SPACED.sub(lambda number: "".join(number[0].split()), text[:_MAX_TEXT]).split():
        found += [_plain(spaced), _with_currency(spaced)]
    if not any(map(str.isdigit, text)):
        found.append(_runs(typed))
    elif len(typed) > 1:
        # A number may be typed in groups of digits.
        found.append(_words([(_compact(text),)]))
    if len(text) >= _MIN_PAYLOAD:
        found.append(((_hash(text),),))
    return list(dict.fromkeys(reading for reading in found if reading))


def without_amounts(meant: Iterable[Reading]) -> list[Reading]:
    """Return the meanings in which no word is an amount."""
    texts = (tuple(tuple(term for term in word if not term.startswith(_AMOUNT)) for word in words) for words in meant)
    return [reading for reading in dict.fromkeys(texts) if all(reading)]


def matches(reading: Reading, terms: Iterable[str]) -> bool:
    """Return True if an object with these terms matches."""
    known = list(terms)
    return all(any(term.startswith(word) for term in known) for word in reading)


def _plain(typed: list[str]) -> Reading:
    words = []
    for chunk in typed:
        words.append((_stripped(_fold(chunk)), _compact(chunk), *_typed_amount(chunk, "")))
    return _words(words)


def _runs(typed: list[str]) -> Reading:
    """Return the words of a name as names are stored: ``O'Brien`` and ``Pérez-Gómez`` have two words each."""
    return _words([(run,) for chunk in typed for run in _RUN.findall(_fold(chunk))])


def _with_currency(typed: list[str]) -> Reading:
    """Return the text without a currency's code or sign, if there is also an amount: ``R$ 12,50``, ``USD 15``."""
    codes = [chunk.upper() for chunk in typed if chunk.upper() in EXPONENTS]
    others = [chunk for chunk in typed if chunk.upper() not in EXPONENTS and not _SIGN.fullmatch(chunk)]
    if others == typed or len(codes) > 1:
        return ()
    words: list[Word] = []
    is_amount = False
    for chunk in others:
        amounts = _typed_amount(chunk, "".join(codes))
        is_amount |= bool(amounts)
        words.append(amounts or (_stripped(_fold(chunk)), _compact(chunk)))
    return _words(words) if is_amount else ()


def _words(words: Iterable[Word]) -> Reading:
    """Return the words without empty alternatives and repetitions, cut to the length of a term."""
    cut = (tuple(dict.fromkeys(word[:MAX_TERM] for word in alternatives if word)) for alternatives in words)
    return tuple(dict.fromkeys(word for word in cut if word))


# Amounts

#: A number with spaces between its thousands.
_SPACED = re.compile(r"(?<![0-9])[0-9]{1,3}(?:\s[0-9]{3})+(?![0-9])")
_SIGN = re.compile(r"(?:[A-Za-z]{0,2}\$|S/\.?)", re.IGNORECASE)
#: A sign or a code in front of a number, as pages show it.
_ATTACHED = re.compile(rf"(?P<code>{'|'.join(EXPONENTS)})?(?:[A-Za-z]{{0,2}}\$|S/\.?)?(?=[0-9])", re.IGNORECASE)


def _amounts(row: Mirror) -> Iterator[str]:
    currency = str(getattr(row, "currency", ""))
    for name in ("amount", "amount_received"):
        if amount := getattr(row, name, None):
            yield f"{_AMOUNT}{to_major(amount, currency)} {_fold(currency)}"[:MAX_TERM]


def _typed_amount(chunk: str, code: str) -> Word:
    """Return the beginnings of the terms of an amount, for each exponent; none if the text is no amount."""
    attached = _ATTACHED.match(chunk)
    if attached is None:
        return ()
    code = (attached["code"] or code).lower()
    whole, fraction = _number(chunk[attached.end() :])
    if not whole:
        return ()
    exponents = {EXPONENTS[code.upper()]} if code else {DEFAULT_EXPONENT, *EXPONENTS.values()}
    return tuple(
        f"{_AMOUNT}{whole}{'.' if exponent else ''}{fraction.ljust(exponent, '0')} {code}"
        for exponent in sorted(exponents)
        if len(fraction) <= exponent
    )


def separators() -> tuple[str, str]:
    """Return the separators of decimals and of thousands in the active language."""
    return (".", ",") if get_format("DECIMAL_SEPARATOR") == "." else (",", ".")


def _number(text: str) -> tuple[str, str]:
    """Return the digits before and after the decimal separator, or ("", "") if the text is no number.

    The digits after it have no zeros at the end.
    """
    usual = separators()
    # Try the other format if the text has no meaning in the user's own.
    for point, group in (usual, usual[::-1]):
        pattern = (
            rf"([0-9]{{1,3}}(?:{re.escape(group)}[0-9]{{3}})+|[0-9]{{1,19}})(?:{re.escape(point)}([0-9]{{1,2}}))?"
        )
        if found := re.fullmatch(pattern, text):
            return found[1].replace(group, "").lstrip("0") or "0", (found[2] or "").rstrip("0")
    return "", ""


# Text


def _fold(text: str) -> str:
    """Return the text in lower case, without accents."""
    parts = unicodedata.normalize("NFKD", text[:_MAX_TEXT].casefold())
    return "".join(char for char in parts if not unicodedata.combining(char))[:_MAX_TEXT]


def _stripped(folded: str) -> str:
    """Return the text from its first to its last letter or digit."""
    runs = list(_RUN.finditer(folded))
    return folded[runs[0].start() : runs[-1].end()] if runs else ""


def _compact(text: str) -> str:
    """Return only letters and digits, so that a document, an account or a voucher may be punctuated in any way."""
    return "".join(_RUN.findall(_fold(text)))


def _hash(payload: str) -> str:
    return _HASH + hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _name(text: str) -> Iterator[str]:
    for found in _RUN.finditer(_fold(text)):
        yield found[0][:MAX_TERM]


def _number_terms(text: str) -> Iterator[str]:
    if term := _compact(text)[:MAX_TERM]:
        yield term


def _personal_number(text: str) -> Iterator[str]:
    """Yield the number and its last four digits, which a statement shows and a customer says on the phone."""
    for term in _number_terms(text):
        yield from dict.fromkeys((term, term[-4:]))


def _phone(text: str) -> Iterator[str]:
    """Yield the number also without its country code, as people say it in their own country."""
    yield from _personal_number(text)
    yield from _number_terms(_COUNTRY_CODE.sub("", text))


def _reference(text: Any) -> Iterator[str]:
    """Yield the text from each of its words on: ``order-2024-7`` is found by ``order``, ``2024`` and ``2024-7``."""
    for chunk in _fold(text).split() if isinstance(text, str) else ():
        chunk = _stripped(chunk)  # noqa: PLW2901
        for run in _RUN.finditer(chunk):
            yield chunk[run.start() : run.start() + MAX_TERM]


def _bank_reference(text: str) -> Iterator[str]:
    yield from _number_terms(text)
    yield from _reference(text)


def _email(text: str) -> Iterator[str]:
    """Yield the address from each of its words on, up to the domain's name: a term such as ``com`` has no use."""
    address = _stripped(_fold(text))
    domain = address.rfind("@") + 1
    for run in _RUN.finditer(address):
        yield address[run.start() : run.start() + MAX_TERM]
        if run.start() >= domain:
            return


def _payload(text: str) -> Iterator[str]:
    if payload := text.strip():
        yield _hash(payload[:MAX_SEARCH])


#: Functions that turn the text of a key into terms, at any depth.
_PERSON: dict[str, Callable[[str], Iterable[str]]] = {
    "name": _name,
    "holder_name": _name,
    "email": _email,
    "phone": _phone,
    "number": _personal_number,
    "account_number": _personal_number,
}
_ACTION: dict[str, Callable[[str], Iterable[str]]] = {
    "reference": _bank_reference,
    "voucher_code": _number_terms,
    "voucher_barcode": _number_terms,
    "account_number": _number_terms,
    "qr_payload": _payload,
}


def _inside(value: Any, makers: dict[str, Callable[[str], Iterable[str]]]) -> Iterator[str]:
    level = [("", value)]
    while level:
        name, item = level.pop()
        if isinstance(item, dict):
            level += [(str(key).lower(), inner) for key, inner in reversed(item.items())]
        elif isinstance(item, list):
            level += [(name, inner) for inner in reversed(item)]
        elif (make := makers.get(name)) and isinstance(item, str | int) and not isinstance(item, bool):
            yield from make(str(item))


def _person(value: Any) -> Iterator[str]:
    return _inside(value, _PERSON)


def _action(value: Any) -> Iterator[str]:
    return _inside(value, _ACTION)


#: The fields that are searched. If there are too many terms, the first ones count.
_SEARCHED: dict[str, Callable[[Any], Iterator[str]]] = {
    "merchant_reference": _reference,
    "next_action": _action,
    "details": _action,
    "payer": _person,
    "destination": _person,
}
