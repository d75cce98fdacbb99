/* Brings the checkout pieces to life: copy buttons, time left, times in the payer's own zone, a status that follows the
   payment, and pages that follow what happens to them. Without this script the page says the same, and reloads. Texts
   come from the page, so that they are translated there.

   A page that adds pieces later calls PaymentsCheckout.init(root) for them: a piece is brought to life once. */
"use strict";
window.PaymentsCheckout ||= (() => {
    /* Milliseconds: the first wait and the longest one. */
    const WAITS = { status: [2000, 15000], soon: [1500, 10000], later: [5000, 15000] };
    const GROWTH = 1.4;
    const ANSWER_WITHIN = 10000;
    const COPIED_FOR = 4000;
    /* What is settled rarely changes: after so long the page asks again only when it is looked at anew. */
    const SETTLED_FOR = 20 * 60 * 1000;
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

    /* ---- Times ---- */

    function localizing(time) {
        const at = new Date(time.getAttribute("datetime"));
        if (Number.isNaN(at.getTime())) {
            return;
        }
        try {
            const format = { dateStyle: "long", timeStyle: "short" };
            const text = new Intl.DateTimeFormat(document.documentElement.lang || undefined, format).format(at);
            /* The time with its zone stays for those who look for it. */
            time.title = time.textContent;
            say(time, text);
        } catch {
            return; /* The page's language is none that the browser knows. */
        }
    }

    /* ---- Asking again and again ---- */

    function asking(address, accept, waits, show) {
        let wait = waits()[0];
        let timer = 0;
        let busy = false;
        let resting = false;
        let ended = false;

        const later = () => {
            clearTimeout(timer);
            /* A hidden page sends no requests; it continues as soon as it is visible. */
            if (!ended && !resting && !document.hidden) {
                timer = setTimeout(ask, wait);
                wait = Math.min(wait * GROWTH, waits()[1]);
            }
        };

        const ask = async () => {
            if (busy || ended) {
                return;
            }
            busy = true;
            clearTimeout(timer);
            const limit = new AbortController();
            const over = setTimeout(() => limit.abort(), ANSWER_WITHIN);
            try {
                const answer = await fetch(address, {
                    cache: "no-store",
                    headers: { Accept: accept },
                    redirect: "error",
                    signal: limit.signal,
                });
                if (answer.ok) {
                    const found = show(accept === "text/html" ? await answer.text() : await answer.json());
                    ended = found === "ended";
                    resting = found === "resting";
                    if (found === "changed") {
                        [wait] = waits();
                    }
                } else {
                    ended = GONE.includes(answer.status);
                }
            } catch {
                /* No network, no server, no JSON: asked again later. */
            } finally {
                clearTimeout(over);
                busy = false;
                later();
            }
        };

        const soon = () => {
            if (!document.hidden && !ended) {
                resting = false;
                [wait] = waits();
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

    /* ---- The status ---- */

    function following(page) {
        const statusBox = page.querySelector("[data-payments-status-box]");

        const show = (now) => {
            const action = page.querySelector("[data-payments-action]");
            const wanted = String(now.action);
            if (wanted && (!action || action.dataset.paymentsAction !== wanted)) {
                /* Something else is to be done: only the server can draw it. */
                window.location.reload();
                return "ended";
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
            return now.final === true ? "ended" : "";
        };

        asking(page.dataset.paymentsPoll, "application/json", () => WAITS.status, show);
    }

    /* ---- Pages that follow what happens ---- */

    /* The server's HTML of a piece, without what is new each time: keys of forms, signed addresses. */
    function source(piece) {
        const copy = piece.cloneNode(true);
        copy.querySelectorAll("input[type=hidden]").forEach((input) => input.setAttribute("value", ""));
        copy.querySelectorAll("[data-payments-fresh]").forEach((link) => link.removeAttribute("href"));
        return copy.innerHTML.trim();
    }

    function reading(page) {
        const drawn = new Map();
        const pieces = (root) => root.querySelectorAll("[data-payments-live]");
        pieces(page).forEach((piece) => drawn.set(piece.dataset.paymentsLive, source(piece)));
        let changedAt = Date.now();

        const show = (text) => {
            const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("[data-payments-follow]");
            if (!fresh) {
                return "";
            }
            page.dataset.paymentsFollow = fresh.dataset.paymentsFollow;
            let hasChanged = false;
            pieces(fresh).forEach((piece) => {
                const name = piece.dataset.paymentsLive;
                const place = page.querySelector(`[data-payments-live="${name}"]`);
                if (!place || drawn.get(name) === source(piece)) {
                    return;
                }
                const hadFocus = place.contains(document.activeElement);
                drawn.set(name, source(piece));
                place.replaceChildren(...piece.childNodes);
                hasChanged = true;
                init(place);
                const heading = page.querySelector("h1");
                if (hadFocus && heading) {
                    heading.tabIndex = -1;
                    heading.focus();
                }
            });
            if (hasChanged) {
                changedAt = Date.now();
            }
            const isOld = page.dataset.paymentsFollow === "later" && Date.now() - changedAt > SETTLED_FOR;
            return isOld ? "resting" : hasChanged ? "changed" : "";
        };

        const waits = () => WAITS[page.dataset.paymentsFollow] || WAITS.later;
        asking(window.location.pathname + window.location.search, "text/html", waits, show);
    }

    /* ---- Start ---- */

    const KINDS = [
        /* First: it notes the pieces as they came. */
        ["[data-payments-follow]", reading],
        ["[data-payments-copy]", copying],
        ["[data-payments-until]", counting],
        ["[data-payments-local]", localizing],
        ["[data-payments-poll]", following],
    ];

    /* By kind: one element may be several. */
    const alive = new Map(KINDS.map(([selector]) => [selector, new WeakSet()]));

    function init(root = document) {
        KINDS.forEach(([selector, bring]) => {
            /* Copying works only where the page came over a secure way. */
            if (bring === copying && !navigator.clipboard) {
                return;
            }
            const found = [...root.querySelectorAll(selector)];
            if (root !== document && root.matches(selector)) {
                found.unshift(root);
            }
            found.filter((piece) => !alive.get(selector).has(piece)).forEach((piece) => {
                alive.get(selector).add(piece);
                bring(piece);
            });
        });
    }

    if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", () => init());
    } else {
        init();
    }
    return { init };
})();
