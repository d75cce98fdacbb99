"""Select a payer, and find out if JSON or bytes hold that payer's data. Pure: no queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from payments_integration import schemas
from payments_integration.enums import DocumentType

_NOT_IN_DOCUMENTS = re.compile(r"[^0-9a-z]")
_NOT_IN_PHONES = re.compile(r"[^0-9]")
_MIN_PHONE = 7
_MIN_DOCUMENT = 5
#: Keys of phones and documents, also as merchants name them in their metadata: ``customer_cpf``, ``telefono``.
_PHONE_KEY = re.compile(r"phone|fone|fono|celular|movil|whatsapp")
_DOCUMENT_KEY = re.compile(
    rf"^number$|document|cedula|tax_?id|(?<![a-z])(?:{'|'.join(DocumentType.values).lower()})(?![a-z])"
)
#: Between the words of ``customerCpf`` and ``CPFCliente``.
_IN_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN_WORDS = re.compile(r"[\s<>()\[\]{},;:\"'|/]+")
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
        return any(self._is(_key(name), text) for name, text in schemas.texts_in(value))

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
        if self.emails and "@" in text and not self.emails.isdisjoint(_words(text)):
            return True
        if self.phones and (_PHONE_KEY.search(name) or text.startswith("+")) and _phone(text) in self.phones:
            return True
        return bool(self.documents and _DOCUMENT_KEY.search(name)) and _document(text) in self.documents


def strings_of(body: bytes) -> set[str]:
    """Return every quoted string of the bytes, which need not be JSON. Used to find ids of objects."""
    return {found.decode("ascii", "replace") for found in _STRINGS.findall(body)}


@lru_cache(maxsize=1024)
def _key(name: str) -> str:
    return _IN_CAMEL_CASE.sub("_", name).lower()


def _email(text: str) -> str:
    return text.strip().lower()


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text, which may be a sentence or ``Ana <ana@example.com>``."""
    yield _email(text)
    for word in _BETWEEN_WORDS.split(_email(text)):
        yield word.rstrip(".!?")


def _phone(text: str) -> str:
    return _NOT_IN_PHONES.sub("", text)


def _document(text: str) -> str:
    return _NOT_IN_DOCUMENTS.sub("", text.lower())
