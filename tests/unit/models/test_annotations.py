"""The annotation of a model's field, which is all that type checkers know, says what the field holds."""

from __future__ import annotations

import inspect
from datetime import date, datetime
from typing import Any, get_args, get_type_hints

import pytest
from django.apps import apps
from django.db.models import Field, ForeignKey, Model

from payments_integration import schemas
from payments_integration.models import MIRRORS

MODELS = [model for model in apps.get_models() if model.__module__.startswith("payments_integration.")]
#: By Django's name of the type of field. The content of JSON is not checked here.
TYPES: dict[str, type[Any]] = {
    "BigAutoField": int,
    "BigIntegerField": int,
    "BinaryField": bytes,
    "BooleanField": bool,
    "CharField": str,
    "DateField": date,
    "DateTimeField": datetime,
    "FloatField": float,
    "PositiveBigIntegerField": int,
    "PositiveIntegerField": int,
    "TextField": str,
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_each_field_is_annotated_with_what_it_holds(model: type[Model]) -> None:
    hints = get_type_hints(model)
    mirrored = getattr(model, "mirrored", ())
    for field in model._meta.concrete_fields:
        if field.attname in mirrored or (field.auto_created and field.attname not in hints):
            continue
        expected = value_type(field)
        if expected is not None:
            assert hints[field.attname] == (expected | None if field.null else expected), field
        else:
            assert (type(None) in get_args(hints[field.attname])) == field.null, field


@pytest.mark.parametrize("kind", schemas.RESOURCES)
def test_a_mirrored_field_holds_what_the_provider_sends(kind: str) -> None:
    hints, sent = get_type_hints(MIRRORS[kind]), get_type_hints(schemas.RESOURCES[kind])
    # A column that refers to another object can always be empty.
    sent |= {field.attname: str | None for field in MIRRORS[kind]._meta.concrete_fields if field.is_relation}
    assert {name: hints[name] for name in MIRRORS[kind].mirrored} == {
        name: sent[name] for name in MIRRORS[kind].mirrored
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_name_that_django_adds_exists(model: type[Model]) -> None:
    """An annotation without a value makes no attribute: it names a key, a reverse relation or a label of Django's."""
    for owner in model.__mro__:
        for name in inspect.get_annotations(owner):
            if owner.__module__.startswith("payments_integration."):
                assert hasattr(model, name), name


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_foreign_key_is_annotated_with_the_row_that_it_leads_to(model: type[Model]) -> None:
    hints = get_type_hints(model)
    for field in model._meta.concrete_fields:
        if isinstance(field, ForeignKey):
            row: Any = field.related_model
            assert hints[field.name] == (row | None if field.null else row), field


def value_type(field: Field[Any, Any]) -> type[Any] | None:
    """The type of the attribute ``field.attname``; None if the field says nothing about it."""
    target: Any = field.target_field if isinstance(field, ForeignKey) else field
    return TYPES.get(target.get_internal_type())
