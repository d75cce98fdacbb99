"""Erase personal data that other apps keep about mirrored objects. They register; nothing here knows them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from django.db.models import QuerySet


class Eraser(ABC):
    """One model of another app whose rows hold personal data. ``register`` it in ``AppConfig.ready``.

    Its rows have ``account``, ``object_kind`` and ``object_id``, as in ``models.base.ObjectRef``.
    """

    #: The rows in words, singular and plural: what ``payments_erase`` counts.
    name: tuple[str, str]
    #: The text field to search for a payer's data, even about objects that are not erased.
    text: str

    @abstractmethod
    def rows(self) -> QuerySet[Any]:
        """Return the rows that hold personal data."""

    @abstractmethod
    def erase(self, rows: QuerySet[Any]) -> int:
        """Erase the data of some of ``rows()``. Returns how many rows held some.

        For an object's rows it is called within the transaction that erases the object, whose mirror row is locked.
        """


_erasers: list[Eraser] = []


def register(eraser: Eraser) -> None:
    """Make every erasure reach these rows too. Registering an eraser of the same class again changes nothing."""
    if not any(type(known) is type(eraser) for known in _erasers):
        _erasers.append(eraser)


def erasers() -> tuple[Eraser, ...]:
    return tuple(_erasers)
