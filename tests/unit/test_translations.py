"""Every message is translated into Spanish and Brazilian Portuguese, with every placeholder."""

from __future__ import annotations

import re

import pytest
from babel.messages.catalog import Message
from babel.messages.mofile import read_mo
from django.utils.translation import gettext, override

from tests import translations
from tests.translations import Domain

#: Other words for things that have one word in CONTRIBUTING.md: a pattern and the word to use.
OTHER_WORDS = {
    "es": {
        r"\bimportes?\b": "monto",
        r"\bdevolución": "reembolso",
        r"\bcomerciante": "comercio",
        r"\bdestinatario": "beneficiario",
        r"\bvos\b|\btú\b": "usted",
    },
    "pt_BR": {
        r"\bcomerciante": "lojista",
        r"\brequer(em)? atenção": "precisa de atenção",
        r"\brepass": "pagamento a terceiro",
        r"\b(a|uma) transferência( de \{| foi| falhou|$)": "pagamento a terceiro",
    },
}
CATALOGUES = pytest.mark.parametrize(
    ("language", "domain"),
    [(language, domain) for domain in translations.DOMAINS for language in translations.LANGUAGES],
    ids=lambda value: value.name if isinstance(value, Domain) else value,
)
#: %(name)s, %s, %d, {}, {name}: what a value is put into. And the tags of HTML.
PLACES = re.compile(r"%\(\w+\)[\d.]*[a-z]|%[a-z]|\{\w*\}|</?\w+[^>]*>")


def forms(text: str | tuple[str, ...] | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


def key(message: Message) -> tuple[str, ...]:
    # Babel reads the context of a compiled message as bytes.
    context: str | bytes = message.context or ""
    return (context.decode() if isinstance(context, bytes) else context, *forms(message.id))


@CATALOGUES
def test_every_message_is_translated(language: str, domain: Domain) -> None:
    stored, extracted = translations.stored(language, domain), translations.extracted(domain)
    known = {key(message) for message in stored if message.id}
    needed = {key(message) for message in extracted if message.id}
    assert needed - known == set(), "run: python -m tests.translations"
    assert known - needed == set(), "run: python -m tests.translations"
    assert [message.id for message in translations.untranslated(stored)] == []
    assert not [message.id for message in stored if message.id and message.fuzzy]


@CATALOGUES
def test_translations_keep_their_placeholders(language: str, domain: Domain) -> None:
    for message in translations.stored(language, domain):
        if message.id:
            places = {place for form in forms(message.id) for place in PLACES.findall(form)}
            for form in forms(message.string):
                found = PLACES.findall(form)
                # A singular may say "one" instead of the number.
                assert set(found) <= places, message.id
                if isinstance(message.id, str):
                    assert sorted(found) == sorted(PLACES.findall(message.id)), message.id


@CATALOGUES
def test_no_sentence_is_left_in_english(language: str, domain: Domain) -> None:
    for message in translations.stored(language, domain):
        for form, written in zip(forms(message.id), forms(message.string), strict=False):
            assert form != written or len(PLACES.sub("", form).split()) < 3, form


@CATALOGUES
def test_each_thing_has_its_one_word(language: str, domain: Domain) -> None:
    for message in translations.stored(language, domain):
        for form in forms(message.string) if message.id else ():
            for other, word in OTHER_WORDS[language].items():
                assert not re.search(other, form, re.IGNORECASE), (form, word)


@CATALOGUES
def test_compiled_messages_equal_their_source(language: str, domain: Domain) -> None:
    with (translations.folder(language, domain) / "django.mo").open("rb") as file:
        compiled = {key(message): forms(message.string) for message in read_mo(file) if message.id}
    written = {key(message): forms(message.string) for message in translations.stored(language, domain) if message.id}
    assert compiled == written


@pytest.mark.parametrize(("language", "word"), [("es", "pago"), ("pt-br", "pagamento"), ("en", "payment")])
def test_django_finds_the_translations(language: str, word: str) -> None:
    with override(language):
        assert gettext("payment") == word


@pytest.mark.parametrize("language", translations.LANGUAGES)
def test_the_shop_uses_the_words_of_the_app(language: str) -> None:
    """Of two apps with the same message, Django takes the translation of the first."""
    ours = {key(message): forms(message.string) for message in translations.stored(language) if message.id}
    shop = {key(message): forms(message.string) for message in translations.stored(language, translations.SHOP)}
    shared = ours.keys() & shop.keys()
    assert shared
    assert {name: shop[name] for name in shared} == {name: ours[name] for name in shared}
