/* Brings the checkout pieces to life: copy buttons, time left, and a status that follows the payment. Without this
   script the page says the same, and reloads. Texts come from the page, so that they are translated there. */
"use strict";
(() => {
    /* Milliseconds. */
    const FIRST_WAIT = 2000;
    const LONGEST_WAIT = 15000;
    const GROWTH = 1.4;
    const ANSWER_WITHIN = 10000;
    const COPIED_FOR = 4000;
    /* Seconds that are left when it is said aloud. */
    const SAID_AT = [600, 300, 60];
    /* The address is not good any more; everything else may pass. */
    const GONE = [401, 403, 404, 410];

    function say(place, text) {
        if (place && place.textContent !== text) {
            place.textContent = text;
        }
    }

    /* ---- Copy buttons ---- */

    function copying(button) {
        const place = button.nextElementSibling;
        let timer = 0;
        button.hidden = false;
        button.addEventListener("click", async () => {
            try {
                await navigator.clipboard.writeText(button.dataset.paymentsCopy);
            } catch {
                return; /* Not allowed: the text can still be marked by hand. */
            }
            say(place, button.dataset.paymentsCopied);
            clearTimeout(timer);
            timer = setTimeout(() => say(place, ""), COPIED_FOR);
        });
    }

    /* ---- Time left ---- */

    function spelled(seconds) {
        const two = (number) => String(number).padStart(2, "0");
        const days = Math.floor(seconds / 86400);
        const clock = [Math.floor((seconds % 86400) / 3600), Math.floor((seconds % 3600) / 60), seconds % 60];
        return (days ? `${days} d ` : "") + (seconds < 3600 ? clock.slice(1) : clock).map(two).join(":");
    }

    function counting(time) {
        const shown = time.parentElement.querySelector(".payments-left");
        const spoken = shown && shown.nextElementSibling;
        const until = Date.parse(time.getAttribute("datetime"));
        if (!shown || Number.isNaN(until)) {
            return;
        }
        let before = null;
        const tick = () => {
            const left = Math.max(0, Math.ceil((until - Date.now()) / 1000));
            const text = left ? time.dataset.paymentsLeft.replace("{time}", spelled(left)) : time.dataset.paymentsOver;
            say(shown, text);
            shown.hidden = false;
            if (before !== null && [...SAID_AT, 0].some((mark) => before > mark && left <= mark)) {
                say(spoken, text);
            }
            before = left;
            if (left) {
                setTimeout(tick, 1000);
            }
        };
        tick();
    }

    /* ---- The status ---- */

    function following(page) {
        const statusBox = page.querySelector("[data-payments-status-box]");
        let wait = FIRST_WAIT;
        let timer = 0;
        let asking = false;
        let ended = false;

        const later = () => {
            clearTimeout(timer);
            /* A hidden page sends no requests; it continues as soon as it is visible. */
            if (!ended && !document.hidden) {
                timer = setTimeout(ask, wait);
                wait = Math.min(wait * GROWTH, LONGEST_WAIT);
            }
        };

        const show = (now) => {
            const action = page.querySelector("[data-payments-action]");
            const wanted = String(now.action);
            if (wanted && (!action || action.dataset.paymentsAction !== wanted)) {
                /* Something else is to be done: only the server can draw it. */
                ended = true;
                window.location.reload();
                return;
            }
            if (action && !wanted) {
                action.remove();
            }
            statusBox.className = `payments-status-box payments-status-box-${now.tone}`;
            say(statusBox.querySelector("[data-payments-headline]"), now.headline);
            say(statusBox.querySelector("[data-payments-message]"), now.message);
            const receipt = page.querySelector("[data-payments-receipt]");
            if (receipt) {
                receipt.hidden = now.receipt !== true;
            }
            const again = page.querySelector("[data-payments-again]");
            if (again) {
                again.hidden = !again.dataset.paymentsAgain.split(" ").includes(now.status);
            }
            page.dataset.paymentsStatus = now.status;
            ended = now.final === true;
        };

        const ask = async () => {
            if (asking || ended) {
                return;
            }
            asking = true;
            clearTimeout(timer);
            const limit = new AbortController();
            const over = setTimeout(() => limit.abort(), ANSWER_WITHIN);
            try {
                const answer = await fetch(page.dataset.paymentsPoll, {
                    cache: "no-store",
                    headers: { Accept: "application/json" },
                    redirect: "error",
                    signal: limit.signal,
                });
                if (answer.ok) {
                    show(await answer.json());
                } else {
                    ended = GONE.includes(answer.status);
                }
            } catch {
                /* No network, no server, no JSON: asked again later. */
            } finally {
                clearTimeout(over);
                asking = false;
                later();
            }
        };

        const soon = () => {
            if (!document.hidden && !ended) {
                wait = FIRST_WAIT;
                ask();
            } else {
                clearTimeout(timer);
            }
        };

        document.addEventListener("visibilitychange", soon);
        window.addEventListener("online", soon);
        window.addEventListener("pageshow", (event) => event.persisted && soon());
        later();
    }

    function start() {
        /* Only where the page came over a secure way. */
        if (navigator.clipboard) {
            document.querySelectorAll("[data-payments-copy]").forEach(copying);
        }
        document.querySelectorAll("[data-payments-until]").forEach(counting);
        document.querySelectorAll("[data-payments-poll]").forEach(following);
    }

    if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", start);
    } else {
        start();
    }
})();
