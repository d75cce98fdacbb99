"""Guards that look at the mirrored status of the object a call is about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from payments_integration.models import MIRRORS
from payments_integration.services import reads
from payments_integration.services.intents import Doubt, Intent


@dataclass(frozen=True, slots=True)
class StatusGuard:
    """The object must be in one of these statuses, as far as the mirror knows."""

    when_deferred: ClassVar[bool] = True

    kind: str
    #: The argument that an error names.
    argument: str
    account: str
    object_id: str
    statuses: Collection[str]

    def before(self) -> None:
        """The mirror's word is enough to go ahead: the provider decides."""

    def decide(self, intent: Intent) -> Intent:
        row = MIRRORS[self.kind]._default_manager.filter(pk=self.object_id).first()
        if row is not None and row.status not in self.statuses:
            raise Doubt({self.argument: [_("It is %(status)s and cannot be canceled.") % {"status": row.status}]})
        return intent

    def refresh(self) -> None:
        reads.read(self.kind, self.account, self.object_id)
