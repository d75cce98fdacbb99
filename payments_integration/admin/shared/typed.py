"""Read what a person typed or pasted into a form."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from payments_integration.validation.text import typed


class TypedForm(forms.Form):
    """A form that removes invisible marks from its input. Numbers and names are often pasted with some.

    A browser counts a line break as one character and sends two, so a text of the maximum length would be refused.
    """

    def __init__(self, data: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(_typed(data), *args, **kwargs)


def _typed(data: Any) -> Any:
    if isinstance(data, QueryDict):
        cleaned = data.copy()
        for name, values in data.lists():
            cleaned.setlist(name, [_text(value) for value in values])
        return cleaned
    return {name: _text(value) for name, value in data.items()} if data is not None else None


def _text(value: Any) -> Any:
    return typed(value).replace("\r\n", "\n") if isinstance(value, str) else value
