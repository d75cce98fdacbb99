"""What people keep for themselves in the admin."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import Row


class SavedFilter(Row):
    """The filters of one of the admin's lists, under a name. Only the user who saved them sees them.

    They hold no search text, which may be personal.
    """

    #: ``permissions.user_id``. No foreign key: users may be in another database.
    owner: str = fields.ExactCharField(_("owner"), max_length=64)
    #: The model of the list, as ``app_label.model_name``.
    listed: str = fields.ExactCharField(_("list"), max_length=100)
    name: str = fields.ExactCharField(_("name"), max_length=60)
    #: The query string: parameters of the list's filters only. A period such as "yesterday" stays one.
    query: str = fields.TextField(_("filters"))

    class Meta:
        verbose_name = _("saved filter")
        verbose_name_plural = _("saved filters")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["owner", "listed", "name"], name="pi_saved_filter")]

    def __str__(self) -> str:
        return str(self.name)
