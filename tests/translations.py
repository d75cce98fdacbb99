"""The catalogues of messages: ``python -m tests.translations [es]`` makes them follow the code, and compiles them.

The package has one for each language, and so has the example shop.

Babel reads the code and the templates, so that nothing else need be installed. What is not translated yet is listed,
and then the exit code is 1; so it is in ``tests/unit/test_translations.py``, which changes no file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import IO, Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir, extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).parent.parent
LANGUAGES = ("es", "pt_BR")


@dataclass(frozen=True)
class Domain:
    """What one catalogue per language translates."""

    name: str
    #: Every message in it is extracted.
    code: Path
    #: The folder of its catalogues.
    locale: Path


PACKAGE = Domain("payments_integration", ROOT / "payments_integration", ROOT / "payments_integration" / "locale")
SHOP = Domain("example_project", ROOT / "example_project", ROOT / "example_project" / "shop" / "locale")
DOMAINS = (PACKAGE, SHOP)

#: As Django names them.
KEYWORDS: dict[str, Any] = {
    **DEFAULT_KEYWORDS,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext_lazy": (1, 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext_lazy": ((1, "c"), 2, 3),
}
METHODS = [
    ("**/migrations/**", "ignore"),
    ("**.py", "python"),
    ("**/templates/**.html", "tests.translations.read_template"),
    ("**/templates/**.txt", "tests.translations.read_template"),
]
#: What is written once, so that a catalogue changes only where its messages do.
WRITTEN_AT = datetime(2026, 1, 1, tzinfo=UTC)


def read_template(file: IO[bytes], keywords: Any, comment_tags: Any, options: Any) -> Iterator[Any]:
    """The messages of a Django template, which Django itself turns into calls of gettext."""
    source = templatize(file.read().decode())
    return extract_python(BytesIO(source.encode()), keywords, comment_tags, {"encoding": "utf-8"})


def extracted(domain: Domain = PACKAGE) -> Catalog:
    """Every message of the code, in the order of its files."""
    catalog = Catalog(charset="utf-8")
    found = extract_from_dir(domain.code, METHODS, keywords=KEYWORDS, comment_tags=("Translators:",))
    for file, _line, message, comments, context in sorted(found, key=lambda entry: (entry[0], entry[1])):
        catalog.add(message, locations=[(file, 0)], auto_comments=comments, context=context)
    return catalog


def folder(language: str, domain: Domain = PACKAGE) -> Path:
    return domain.locale / language / "LC_MESSAGES"


def stored(language: str, domain: Domain = PACKAGE) -> Catalog:
    """The catalogue as it is in the repository; empty where there is none yet."""
    path = folder(language, domain) / "django.po"
    if not path.exists():
        return Catalog(locale=language, charset="utf-8")
    with path.open("rb") as file:
        return read_po(file, locale=language)


def updated(language: str, domain: Domain = PACKAGE) -> Catalog:
    """The stored catalogue with exactly the messages that the code has now."""
    catalog = stored(language, domain)
    catalog.update(extracted(domain), no_fuzzy_matching=True)
    catalog.obsolete.clear()
    catalog.fuzzy = False
    catalog.project, catalog.version = domain.name, "1"
    catalog.creation_date = catalog.revision_date = WRITTEN_AT
    catalog.last_translator = catalog.language_team = catalog.msgid_bugs_address = "payments_integration"
    catalog.header_comment = f"# {catalog.locale.english_name if catalog.locale else language}"
    return catalog


def written(catalog: Catalog) -> bytes:
    file = BytesIO()
    write_po(file, catalog, width=120, include_lineno=False, sort_by_file=False)
    return file.getvalue()


def compiled(catalog: Catalog) -> bytes:
    file = BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def untranslated(catalog: Catalog) -> list[Message]:
    """Messages without a translation, in any of their forms."""
    messages = [message for message in catalog if message.id]
    return [
        message
        for message in messages
        if not (all(message.string) if isinstance(message.string, tuple | list) else message.string)
    ]


def main(languages: list[str]) -> int:
    missing = 0
    for domain, language in product(DOMAINS, languages or LANGUAGES):
        catalog = updated(language, domain)
        place = folder(language, domain)
        place.mkdir(parents=True, exist_ok=True)
        (place / "django.po").write_bytes(written(catalog))
        (place / "django.mo").write_bytes(compiled(catalog))
        left = untranslated(catalog)
        missing += len(left)
        sys.stdout.write(f"{domain.name} {language}: {len(catalog)} messages, {len(left)} not translated\n")
        for message in left:
            sys.stdout.write(f"  {message.id!r}\n")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
