"""The sandbox's home page in a browser: its forms work, it fits narrow screens, and axe-core has no complaint."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Route, expect

from payments_integration.sandbox import Engine, SandboxServer
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from tests.browser.accessibility import grave


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1366, "light"), (1366, "dark")])
def test_a_person_triggers_fails_delays_and_resends(browser: Browser, width: int, scheme: str) -> None:
    engine = Engine(funds=DEFAULT_FUNDS, transport=lambda url, headers, body: 200)
    engine.add_endpoint("https://shop.example/with/a/long/path/to/the/webhook/of/the/default/account/")
    complaints: list[str] = []
    with (
        SandboxServer(engine) as server,
        browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as context,  # type: ignore[arg-type]
    ):
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        page.get_by_label("Event", exact=True).select_option("refund.succeeded")
        page.get_by_label("Fields of the new object").fill("amount=40\nreason=a reason " + "that is long " * 20)
        page.get_by_role("button", name="Trigger").click()
        expect(page.get_by_role("status")).to_contain_text("refund.succeeded of ref_")
        page.get_by_label("The next API request").select_option("slow")
        page.get_by_role("button", name="Apply to the next request").click()
        page.get_by_label("The next webhook").select_option("delay")
        page.get_by_role("button", name="Apply to the next webhook").click()
        expect(page.get_by_role("listitem")).to_have_text(["slow, 0 of 1 used", "delay, 0 of 1 used"])
        page.get_by_role("button", name="Send refund.created").first.click()
        expect(page.get_by_role("status")).to_contain_text("refund.created of ref_")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert grave(page) == []
        page.get_by_role("button", name="Advance the clock").click()
        expect(page.get_by_text("Its clock:")).to_contain_text("3,600 seconds ahead of real time")
        page.get_by_role("button", name="Clear all faults").click()
        expect(page.get_by_role("heading", name="Active faults")).to_have_count(0)
    assert complaints == []


@pytest.mark.parametrize("width", [390, 1366])
def test_the_page_refreshes_by_itself_and_keeps_what_a_person_has_opened(browser: Browser, width: int) -> None:
    engine = Engine(funds=DEFAULT_FUNDS, transport=lambda url, headers, body: 200)
    engine.add_endpoint("https://shop.example/webhook/")
    first = engine.trigger("payment.created", {"merchant_reference": "order-1"})["object"]
    complaints: list[str] = []
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        with SandboxServer(engine) as server:
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(server.url)
            page.get_by_label("Fields of the new object").fill("amount=5")
            event = page.locator("summary", has_text="payment.created")
            event.click()
            expect(page.locator("pre", has_text=first["id"])).to_be_visible()
            page.evaluate("document.querySelector('details[open]').isTheSame = true")
            page.get_by_text("Magic values:").click()
            engine.pay(first["id"])
            request = {"amount": 7, "currency": "CLP", "country": "CL", "method_code": "cl_khipu"}
            headers = {"Authorization": f"Bearer {engine.default_project.api_key}", "Idempotency-Key": "k"}
            context.request.post(f"{server.url}/v1/payments", data=request, headers=headers)
            expect(page.locator(f"#row-{first['id']}")).to_contain_text("succeeded")
            page.locator("summary", has_text="POST /v1/payments").click()
            expect(page.get_by_role("region", name="Requests").locator("pre").first).to_contain_text('"amount": 7')
            engine.clock.advance(86_400)
            expect(page.get_by_text("Its clock:")).to_contain_text("86,400 seconds ahead of real time")
            assert page.evaluate("[...document.querySelectorAll('details[open]')].some((one) => one.isTheSame)")
            expect(page.get_by_label("Fields of the new object")).to_have_value("amount=5")
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert grave(page) == []
            asked: list[Route] = []
            page.route(f"{server.url}/", lambda route: asked.append(route))  # noqa: PLW0108  (it takes no built-in)
            while not asked:
                page.wait_for_timeout(50)
            page.get_by_label("Refresh every 2 seconds").uncheck()
            other = engine.trigger("payment.created")["object"]
            asked[0].continue_()
            page.unroute(f"{server.url}/")
            page.wait_for_timeout(3_000)  # longer than a refresh takes
            expect(page.locator(f"#row-{other['id']}")).to_have_count(0)
            page.get_by_label("Refresh every 2 seconds").check()
            expect(page.locator(f"#row-{other['id']}")).to_be_visible()
            assert complaints == []
        expect(page.get_by_text("The sandbox does not answer.")).to_be_visible()
        assert page.locator(f"#row-{first['id']}").count() == 1
