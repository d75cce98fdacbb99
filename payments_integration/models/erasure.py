from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import ObjectRef


class Erasure(ObjectRef):
    """A request to erase the personal data of one object, or of one operation (kind ``operation``).

    Kept for ever; it holds no personal data itself. ``projection`` reads it before it inserts a row, so the object's
    later data is stored without personal data too.
    """

    #: The ``object_kind`` for an operation of the ledger.
    OPERATION = "operation"

    requested_at: datetime = fields.DateTimeField(_("requested at"), default=timezone.now)
    #: Who requested it.
    actor: str = fields.CharField(_("actor"), max_length=255, default="", blank=True)
    #: When everything was erased; null: an open object still needs the data, or a later pass must check again.
    done_at: datetime | None = fields.DateTimeField(_("done at"), null=True, blank=True)

    class Meta:
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_erasure_object")
        ]
        # the task that finishes erasures, and the health report
        indexes = [models.Index(fields=["done_at", "requested_at"], name="pi_erasure_open")]
