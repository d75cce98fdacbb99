"""What stands on a row's page besides its fields."""

from __future__ import annotations

from typing import ClassVar


class Section:
    """Something under the fields. Its template is given it as ``section``."""

    __slots__ = ()

    template: ClassVar[str]
