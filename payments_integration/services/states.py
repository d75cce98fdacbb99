"""Guards that look at the mirrored status of the object a call is about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from payments_integration.services import reads
from payments_integration.services.intents import Doubt, Intent


@dataclass(slots=True)
class StatusGuard:
    """The object must be in one of these statuses, as far as the mirror knows."""

    when_deferred: ClassVar[bool] = True
    counts_operations: ClassVar[bool] = False

    #: The argument that an error names.
    argument: str
    #: As it was found by the call.
    row: Any
    statuses: Collection[str]

    def before(self) -> None:
        """The mirror's word is enough to go ahead: the provider decides."""

    def decide(self, intent: Intent) -> Intent:
        if self.row.status not in self.statuses:
            words = _("It is %(status)s and cannot be canceled.")
            raise Doubt({self.argument: [words % {"status": self.row.status}]})
        return intent

    def refresh(self) -> None:
        self.row = reads.read(self.row.kind, self.row.account, self.row.object_id)
