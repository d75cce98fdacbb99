"""Identity documents of payers and account holders (spec, "Shared shapes", document).

python-stdnum checks numbers that have a check digit or a known structure; for other types only length and characters
are checked. The number is sent as the caller wrote it: the spec shows no format.
"""

from __future__ import annotations

import importlib
import re

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from payments_integration.enums import DocumentType

MAX_LENGTH = 64

#: Types whose structure does not depend on the payer's country.
_BY_TYPE: dict[str, tuple[str, ...]] = {
    DocumentType.RUT: ("stdnum.cl.rut",),
    DocumentType.NIT: ("stdnum.co.nit",),
    DocumentType.CPF: ("stdnum.br.cpf",),
    DocumentType.CNPJ: ("stdnum.br.cnpj",),
    DocumentType.RFC: ("stdnum.mx.rfc",),
    DocumentType.CURP: ("stdnum.mx.curp",),
    # Ecuador and Peru both issue one: the country decides; without a country either is accepted.
    DocumentType.RUC: ("stdnum.ec.ruc", "stdnum.pe.ruc"),
}
#: Types that are different documents in different countries.
_BY_COUNTRY: dict[tuple[str, str], tuple[str, ...]] = {
    (DocumentType.RUC, "EC"): ("stdnum.ec.ruc",),
    (DocumentType.RUC, "PE"): ("stdnum.pe.ruc",),
    (DocumentType.CC, "EC"): ("stdnum.ec.ci",),
    (DocumentType.DNI, "PE"): ("stdnum.pe.cui",),
}
#: Types without a check digit. Separators are removed first.
_BOUNDS: dict[str, re.Pattern[str]] = {
    DocumentType.CC: re.compile(r"[0-9]{3,10}"),  # Colombia: cédula de ciudadanía
    DocumentType.CE: re.compile(r"[A-Z0-9]{3,20}"),  # foreigners' cards of Colombia and Peru
    DocumentType.PASS: re.compile(r"[A-Z0-9]{4,20}"),
    DocumentType.PPT: re.compile(r"[A-Z0-9]{3,20}"),
    DocumentType.DL: re.compile(r"[A-Z0-9]{3,20}"),
    DocumentType.DNI: re.compile(r"[A-Z0-9]{6,12}"),
    DocumentType.CPP: re.compile(r"[A-Z0-9]{3,20}"),
}
_SEPARATORS = str.maketrans("", "", " .-/")


def validate(document_type: str, number: str, country: str = "") -> None:
    """Raise a Django ValidationError unless the number can be a document of that type.

    ``country``: the payment's country, ISO 3166-1 alpha-2; it distinguishes types that several countries have. The
    error's code is ``invalid_document_type`` or ``invalid_document``; its message never repeats the number.
    """
    if document_type not in DocumentType.values:
        raise ValidationError(
            _("This is not a document type; use one of %(types)s."),
            code="invalid_document_type",
            params={"types": ", ".join(DocumentType.values)},
        )
    validators = _BY_COUNTRY.get((document_type, country)) or _BY_TYPE.get(document_type)
    if not isinstance(number, str) or not 0 < len(number) <= MAX_LENGTH or not number.isprintable():
        valid = False
    elif validators is not None:
        valid = any(_accepts(validator, number) for validator in validators)
    else:
        valid = _BOUNDS[document_type].fullmatch(number.translate(_SEPARATORS).upper()) is not None
    if not valid:
        raise ValidationError(
            _("This is not a valid %(type)s number; write it with its check digit if it has one."),
            code="invalid_document",
            params={"type": str(document_type)},
        )


def _accepts(validator: str, number: str) -> bool:
    # Imported when first needed: most processes check the documents of few countries.
    return bool(importlib.import_module(validator).is_valid(number))
