from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.http import HttpRequest
from django.template import Context, Template
from django.test import RequestFactory

from payments_integration.sync import reading
from tests import fake_provider as fakes


@pytest.fixture
def provider(woken: list[str], monkeypatch: pytest.MonkeyPatch) -> fakes.Fake:
    """The provider of every account; ``reads`` says what it was asked."""
    provider = fakes.Fake()
    monkeypatch.setattr(reading, "get_client", lambda account="default": provider)
    return provider


@pytest.fixture
def request_of() -> Callable[..., HttpRequest]:
    """The shop's own request, in which an address is made."""
    return lambda **extra: RequestFactory().get("/buy/", **extra)


def shown(obj: Any, tag: str = "next_action") -> str:
    """What a template tag makes of an object."""
    return Template(f"{{% load payments_integration %}}{{% {tag} obj %}}").render(Context({"obj": obj}))


class Page(HTMLParser):
    """The elements of a page, in their order, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def check_is_harmless(html: str) -> Page:
    """Nothing in it runs, nothing has a style of its own, and every link goes to the web or to this site."""
    page = Page(html)
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "form", "img", "style", "base"}, tag
        assert not any(name.startswith("on") or name in {"style", "srcdoc"} for name in attributes), attributes
        for name in ("href", "src", "xlink:href", "action"):
            if name in attributes:
                assert attributes[name].startswith(("https://", "http://", "/static/")) or not attributes[name]
        assert tag != "script" or attributes.get("src", "").startswith("/static/")
    return page
