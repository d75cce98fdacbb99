"""Select a payer, and find out if JSON or bytes hold that payer's data. Pure: no queries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from payments_integration import schemas

_NOT_IN_DOCUMENTS = re.compile(r"[^0-9a-z]")
_NOT_IN_PHONES = re.compile(r"[^0-9]")
_MIN_PHONE = 7
_MIN_DOCUMENT = 5
_STRINGS = re.compile(rb'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The data that identifies a payer. The repr shows no value.

    E-mail addresses are compared without regard to case, phones by their digits, documents without punctuation.
    """

    emails: frozenset[str] = field(default=frozenset(), repr=False)
    phones: frozenset[str] = field(default=frozenset(), repr=False)
    documents: frozenset[str] = field(default=frozenset(), repr=False)
    #: Merchant references, compared exactly.
    references: frozenset[str] = field(default=frozenset(), repr=False)
    #: Ids of payments, payouts, refunds, deposit references or operations.
    ids: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        *,
        emails: Iterable[str] = (),
        phones: Iterable[str] = (),
        documents: Iterable[str] = (),
        references: Iterable[str] = (),
        ids: Iterable[str] = (),
    ) -> Selection:
        """Make a selection of typed values. Raises ValueError if one is too short to identify one payer."""
        found = cls(
            emails=frozenset(map(_email, emails)),
            phones=frozenset(map(_phone, phones)),
            documents=frozenset(map(_document, documents)),
            references=frozenset(references),
            ids=frozenset(map(str.strip, ids)),
        )
        if not all("@" in email for email in found.emails):
            raise ValueError("an e-mail address must contain an @")
        if any(len(phone) < _MIN_PHONE for phone in found.phones):
            raise ValueError(f"a phone number must have at least {_MIN_PHONE} digits, with its country code")
        if any(len(document) < _MIN_DOCUMENT for document in found.documents):
            raise ValueError(f"a document must have at least {_MIN_DOCUMENT} letters or digits")
        if "" in found.references | found.ids:
            raise ValueError("a reference or id is empty")
        return found

    @property
    def is_empty(self) -> bool:
        return not (self.has_personal_data or self.references or self.ids)

    @property
    def has_personal_data(self) -> bool:
        """Return True if the contents of rows must be searched."""
        return bool(self.emails or self.phones or self.documents)

    def is_in(self, value: Any) -> bool:
        """Return True if a JSON value holds one of the selected values, at any depth."""
        return any(self._is(name.lower(), text) for name, text in schemas.texts_in(value))

    def is_in_body(self, body: bytes) -> bool:
        """Return True if the bytes of an event hold one of them. Bytes that are not JSON are searched as text."""
        try:
            return self.is_in(schemas.decode_object(body))
        except schemas.WireError:
            text = body.decode("utf-8", "replace").lower()
        return (
            any(email in text for email in self.emails)
            or any(phone in _phone(text) for phone in self.phones)
            or any(document in _document(text) for document in self.documents)
        )

    def _is(self, name: str, text: str) -> bool:
        """Return True if the text is selected. ``name`` is its key: it tells a document's number from an account's."""
        if self.emails and "@" in text and _email(text) in self.emails:
            return True
        if self.phones and ("phone" in name or text.startswith("+")) and _phone(text) in self.phones:
            return True
        return bool(self.documents) and (name == "number" or "document" in name) and _document(text) in self.documents


def strings_of(body: bytes) -> set[str]:
    """Return every quoted string of the bytes, which need not be JSON. Used to find ids of objects."""
    return {found.decode("ascii", "replace") for found in _STRINGS.findall(body)}


def _email(text: str) -> str:
    return text.strip().lower()


def _phone(text: str) -> str:
    return _NOT_IN_PHONES.sub("", text)


def _document(text: str) -> str:
    return _NOT_IN_DOCUMENTS.sub("", text.lower())
