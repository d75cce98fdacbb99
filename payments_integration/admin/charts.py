"""Charts as data: what a script draws, and the same numbers as a table for everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration.admin import display

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class Series:
    name: StrOrPromise
    #: Heights, in minor units where they are amounts: whole numbers, drawn and never added up.
    values: tuple[int | None, ...]
    #: The same in words, as a tooltip and the table show them.
    texts: tuple[str, ...]
    #: Which colour and pattern; the same thing looks the same in every chart.
    look: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """``bars``: upright, stacked or side by side; ``rows``: lying, each with its number; ``steps``: over time."""

    id: str
    title: StrOrPromise
    kind: Literal["bars", "rows", "steps"]
    #: What the labels are, as the table's first column says it.
    heading: StrOrPromise
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    stacked: bool = False
    #: Digits of the values that stand after the point.
    decimals: int = 0
    #: What the values are: a currency, or "%".
    unit: str = ""
    #: Of ``steps``: when, in milliseconds since 1970.
    moments: tuple[int, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What the script reads."""
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "series": [
                {
                    "name": str(series.name),
                    "values": list(series.values),
                    "texts": list(series.texts),
                    "look": series.look,
                }
                for series in self.series
            ],
            "stacked": self.stacked,
            "decimals": self.decimals,
            "unit": self.unit,
            "moments": list(self.moments),
            "zone": timezone.get_current_timezone_name(),
        }

    @property
    def data_id(self) -> str:
        return f"{self.id}-data"

    @property
    def description(self) -> str:
        """For those who do not see it."""
        names = ", ".join(str(series.name) for series in self.series)
        return _("Chart: %(title)s. It shows: %(names)s. The table after it has the same numbers.") % {
            "title": self.title,
            "names": names,
        }

    @property
    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """The table: a label and a cell per series."""
        for number, label in enumerate(self.labels):
            yield label, [series.texts[number] or display.EMPTY for series in self.series]
