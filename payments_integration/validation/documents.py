"""Validate identity documents of payers and account holders (spec, "Shared shapes", document).

python-stdnum checks numbers that have a check digit or a known structure. For other types, only length and
characters are checked. The number is sent as the caller wrote it, because the spec shows no format.

If the library does not know a new rule yet, it refuses valid numbers, and nothing that a payer types would help. So
DOCUMENT_CHECKS can be set to log its refusals only.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from payments_integration.enums import DocumentType
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

MAX_LENGTH = 64

#: The values of DOCUMENT_CHECKS: what happens to a number that only the library refuses.
REFUSE, WARN = "refuse", "warn"

#: Types whose structure does not depend on the payer's country.
_BY_TYPE: dict[str, tuple[str, ...]] = {
    DocumentType.RUT: ("stdnum.cl.rut",),
    DocumentType.NIT: ("stdnum.co.nit",),
    DocumentType.CPF: ("stdnum.br.cpf",),
    DocumentType.CNPJ: ("stdnum.br.cnpj",),
    DocumentType.RFC: ("stdnum.mx.rfc",),
    DocumentType.CURP: ("stdnum.mx.curp",),
    # Ecuador and Peru both issue one. The country decides which is checked; without a country, either is accepted.
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
#: A NIT without its check digit. A person's NIT is the number of their cédula, so it may have ten digits. A company's
#: NIT with ten digits includes the check digit.
_NIT_ALONE = re.compile(r"[1-9][0-9]{5,8}|1[0-9]{9}")
#: The RUC of a company in Ecuador: province, 6 or 9, number, establishment. New ones have no check digit.
_COMPANY_RUC = re.compile(r"(?:0[1-9]|1[0-9]|2[0-4]|30|50)[69][0-9]{7}(?!000)[0-9]{3}")


def is_valid(document_type: str, number: str, country: str = "", *, checks: str = REFUSE) -> bool:
    """Return False for a number that cannot be a document of that type.

    ``number`` may have separators. ``country`` is the payment's, ISO 3166-1 alpha-2: it distinguishes types that
    several countries have. ``checks`` is the value of DOCUMENT_CHECKS.
    """
    if not number.isprintable():
        return False
    plain = number.translate(_SEPARATORS).upper()
    validators = _BY_COUNTRY.get((document_type, country)) or _BY_TYPE.get(document_type)
    if not plain or (document_type == DocumentType.CPF and len(set(plain)) == 1):
        # 111.111.111-11 has the right check digits, but was never issued. People type it to get past a field.
        return False
    if validators is None:
        return _BOUNDS[document_type].fullmatch(plain) is not None
    if document_type == DocumentType.NIT and "-" not in number and _NIT_ALONE.fullmatch(plain):
        return True
    if "stdnum.ec.ruc" in validators and _COMPANY_RUC.fullmatch(plain):
        return True
    if document_type == DocumentType.CURP and plain[10:11] == "X":
        accepted = _is_curp_of_sex_x(plain)
    else:
        accepted = any(_library(validator).is_valid(number) for validator in validators)
    if not accepted and checks == WARN:
        logger.warning("A %s number is sent that is not known to be valid", document_type)
        return True
    return accepted


def _is_curp_of_sex_x(number: str) -> bool:
    """Return True for a valid CURP with the sex X, which Mexico issues since 2022. The library knows only H and M."""
    curp = _library("stdnum.mx.curp")
    as_known = f"{number[:10]}H{number[11:]}"
    return bool(curp.is_valid(as_known, validate_check_digits=False)) and curp.calc_check_digit(number) == number[-1]


def _library(validator: str) -> Any:
    # Imported when first needed: most processes check the documents of few countries.
    return importlib.import_module(validator)
