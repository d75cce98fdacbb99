from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from payments_integration.enums import DocumentType
from payments_integration.validation import documents, objects
from payments_integration.validation.validator import Validator

VALID = [
    ("RUT", "12.345.678-5", "CL"),
    ("RUT", "12345678-5", ""),
    ("RUT", "76086428-5", "CL"),
    ("CC", "1018234567", "CO"),
    ("CC", "1714307103", "EC"),
    ("NIT", "213.123.432-1", "CO"),
    ("CE", "E-345678", "CO"),
    ("PASS", "AB123456", "CL"),
    ("PPT", "5123456", "CO"),
    ("RUC", "1792060346001", "EC"),
    ("RUC", "1793213150001", "EC"),
    ("RUC", "0993370026-001", ""),
    ("RUC", "0961214434001", "EC"),
    ("RUC", "20512333797", "PE"),
    ("RUC", "20512333797", ""),
    ("DL", "D123-4567", "MX"),
    ("DNI", "70025425", "PE"),
    ("CPP", "001234567", "PE"),
    ("CPF", "390.533.447-05", "BR"),
    ("CNPJ", "16.727.230/0001-97", "BR"),
    ("RFC", "GODE561231GR8", "MX"),
    ("CURP", "BOXW310820HNERXN09", "MX"),
    ("CURP", "BOXW310820XNERXN03", "MX"),
    ("CURP", "boxw-310820-xnerxn-03", "MX"),
    ("NIT", "213123432", "CO"),
    ("NIT", "213.123.432", "CO"),
    ("NIT", "1018234567", "CO"),
]
INVALID = [
    ("RUT", "12.345.678-4", "CL"),
    ("RUT", "1", "CL"),
    ("CC", "12", "CO"),
    ("CC", "1018234567A", "CO"),
    ("CC", "1714307104", "EC"),
    ("NIT", "213.123.432-2", "CO"),
    ("NIT", "2131234322", "CO"),
    ("NIT", "21312", "CO"),
    ("CURP", "BOXW310820XNERXN04", "MX"),
    ("CURP", "BOXW310820YNERXN09", "MX"),
    ("CURP", "BOXW311320XNERXN03", "MX"),
    ("CPF", "111.111.111-11", "BR"),
    ("RUT", "-", "CL"),
    ("RUC", "1792060346002", "PE"),
    ("RUC", "20512333797", "EC"),
    ("RUC", "20512333798", ""),
    ("RUC", "1793213150001", "PE"),
    ("RUC", "1793213150000", "EC"),
    ("RUC", "2593213150001", "EC"),
    ("RUC", "1714307104001", "EC"),
    ("DNI", "7002542", "PE"),
    ("CPF", "390.533.447-06", "BR"),
    ("CNPJ", "16.727.230/0001-98", "BR"),
    ("RFC", "GODE561331GR8", "MX"),
    ("CURP", "BOXW310820HNERXN08", "MX"),
    ("PASS", "AB 12;DROP", "CL"),
    ("PASS", "", "CL"),
    ("PASS", "A" * 65, "CL"),
    ("PASS", "AB\x001234", "CL"),
    ("RUT", "12.345.678-5\n", "CL"),
]


@pytest.mark.parametrize(("kind", "number", "country"), VALID)
def test_a_valid_number_is_accepted(kind: str, number: str, country: str) -> None:
    assert documents.is_valid(kind, number, country)


def test_every_document_type_of_the_spec_is_tested() -> None:
    assert {kind for kind, _, _ in VALID} == set(DocumentType.values)


@pytest.mark.case(85)
@pytest.mark.parametrize(("kind", "number", "country"), INVALID)
def test_an_invalid_number_is_refused_and_not_repeated(kind: str, number: str, country: str) -> None:
    assert not documents.is_valid(kind, number, country)
    validator = Validator()
    objects.document(validator, "document", {"type": kind, "number": number}, country)
    with pytest.raises(ValidationError) as caught:
        validator.finish()
    assert len(number) < 3 or number not in str(caught.value)


def test_a_number_that_is_too_long_is_refused_even_if_the_library_only_warns() -> None:
    validator = Validator("warn")
    objects.document(validator, "document", {"type": "RUT", "number": "1" * 65}, "CL")
    with pytest.raises(ValidationError):
        validator.finish()


@pytest.mark.parametrize(("kind", "number", "country"), [INVALID[0], ("CURP", "BOXW310820XNERXN04", "MX")])
def test_a_number_that_only_the_library_refuses_may_be_sent_with_a_warning(
    kind: str, number: str, country: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert documents.is_valid(kind, number, country, checks="warn")
    assert f"A {kind} number is sent that is not known to be valid" in caplog.text
    assert number not in caplog.text


@pytest.mark.parametrize(
    ("kind", "number", "country"),
    [
        ("CPF", "111.111.111-11", "BR"),
        ("CC", "12", "CO"),
        ("PASS", "AB 12;DROP", "CL"),
        ("RUT", "12.345.678-5\n", "CL"),
        ("RUT", " -", "CL"),
    ],
)
def test_what_the_app_itself_refuses_is_never_sent(kind: str, number: str, country: str) -> None:
    assert not documents.is_valid(kind, number, country, checks="warn")
