"""Whether our buttons and fields can be read in the theme that ADMIN_THEME names; ``test_themes`` runs it."""

from __future__ import annotations

from django.apps import apps
from django.conf import settings
from django.contrib import admin

from payments_integration.models import Operation, OperationState
from payments_integration.testing import ProviderSandbox
from tests.browser import sample_data
from tests.browser.conftest import Person, Visit, address
from tests.browser.test_pages import PAGES

#: The pages, and how many buttons and fields of ours they show at least.
EXPECTED = {
    "technical": (3, 0),
    "payments": (2, 0),
    "payment": (2, 0),
    "refund": (2, 8),
    "refund-confirmation": (2, 0),
    "refund-selected": (2, 1),
    "payout-new": (1, 11),
    "payout-confirmation": (2, 0),
    "approval": (2, 2),
    "operation": (3, 2),
    "endpoint": (3, 0),
    "endpoint-new": (1, 1),
}

#: The faults of the page's buttons and fields, and how many there are. Small amounts allow for rounding.
MEASURE = """() => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    // Computed colours may have any notation; a canvas turns them into numbers.
    const numbers = colour => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return [red, green, blue, alpha / 255];
    };
    const over = (upper, lower) => [0, 1, 2].map(at => upper[at] * upper[3] + lower[at] * (1 - upper[3]));
    const behind = element => {
        if (!element) return [255, 255, 255];
        const own = numbers(getComputedStyle(element).backgroundColor);
        return own[3] === 1 ? own.slice(0, 3) : over(own, behind(element.parentElement));
    };
    const luminance = colour => colour
        .map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const contrast = (colour, ground) => {
        const both = [luminance(over(numbers(colour), ground)), luminance(ground)].sort((a, b) => b - a);
        return (both[0] + 0.05) / (both[1] + 0.05);
    };
    const found = {buttons: 0, fields: 0, faults: []};
    const complain = (element, what) => found.faults.push(
        `${(element.textContent || "").trim().slice(0, 30) || element.name || element.tagName}: ${what}`
    );
    const hidden = element => {
        element.scrollIntoView({block: "center"});
        const box = element.getBoundingClientRect();
        return [0.05, 0.5, 0.95].some(part => {
            const hit = document.elementFromPoint(box.left + box.width * part, box.top + box.height / 2);
            return hit !== element && !element.contains(hit);
        });
    };
    const measure = scope => {
        for (const button of scope.querySelectorAll(".pi-button")) {
            if (!button.checkVisibility()) continue;
            found.buttons += 1;
            const style = getComputedStyle(button);
            if (button.scrollWidth > button.clientWidth + 1 || button.scrollHeight > button.clientHeight + 1)
                complain(button, "its text does not fit");
            if (hidden(button)) complain(button, "something covers or clips it");
            if (contrast(style.color, behind(button)) < 4.5) complain(button, `${style.color} cannot be read`);
            if (style.borderTopStyle === "none" || parseFloat(style.borderTopWidth) < 1)
                complain(button, "it has no border");
        }
        for (const field of scope.querySelectorAll(".pi-form :is(input, select, textarea)")) {
            if (["hidden", "checkbox", "radio"].includes(field.type) || !field.checkVisibility()) continue;
            found.fields += 1;
            const style = getComputedStyle(field);
            if (hidden(field)) complain(field, "something covers or clips it");
            if (style.borderBottomStyle === "none" || parseFloat(style.borderBottomWidth) < 1)
                complain(field, "it has no border");
            if (contrast(style.borderBottomColor, behind(field.parentElement)) < 3)
                complain(field, `its border ${style.borderBottomColor} cannot be seen`);
            if (contrast(style.color, behind(field)) < 4.5) complain(field, `${style.color} cannot be read`);
        }
    };
    measure(document);
    for (const details of document.querySelectorAll("details:is(.pi-tool, .pi-others)")) {
        details.open = true;
        measure(details);
        details.open = false;
    }
    return found;
}"""


def test_the_pages_in_this_theme(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    scene = sample_data.month(provider)
    visitor = visit(person("finance"))
    faults = []
    # A theme's own mistakes are not ours.
    with visitor.unheard():
        for name, (buttons, fields) in EXPECTED.items():
            PAGES[name](visitor, scene)
            found = visitor.page.evaluate(MEASURE)
            visitor.shoot(f"{settings.ADMIN_THEME}-{name}")
            faults += [f"{name}: {fault}" for fault in found["faults"]]
            if found["buttons"] < buttons or found["fields"] < fields:
                faults.append(f"{name}: only {found['buttons']} buttons and {found['fields']} fields are visible")
        for model in apps.get_app_config("payments_integration").get_models():
            if admin.site.is_registered(model):
                visitor.open(address(str(model._meta.model_name), "changelist"))
        visitor.open(address("payment", "changelist"))
        ids, copied = visitor.find("span.pi-id").count(), visitor.find("button.pi-id").count()
        if ids or not copied:
            faults.append(f"payments: {copied} ids can be copied, and {ids} cannot")
        if settings.ADMIN_THEME != "grappelli":  # which runs an action as soon as it is chosen
            for row in (0, 1):
                visitor.find("input.action-select").nth(row).check()
            visitor.page.select_option("select[name=action]", "refund_selected", force=True)
            visitor.press("#changelist-form button[name=index]")
            if "/refund" not in visitor.page.url:
                faults.append(f"payments: the action leads to {visitor.page.url}")
        # A form of ours inside a form of the theme would send that one.
        waiting = scene["waiting"]
        visitor.open(address("operation", "change", waiting))
        form = visitor.find(f"form[action='{address('operation', 'reject', waiting)}']")
        form.locator("[name=comment]").fill("not our supplier")
        visitor.press(form.locator("button"))
    assert not faults, "\n".join(faults)
    assert Operation.objects.get(pk=waiting.pk).state == OperationState.CLOSED
