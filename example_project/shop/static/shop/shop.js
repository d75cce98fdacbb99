/* The shop's pages: a choice that sends its form, and pages that follow what happens. Without this script there is a
   button for the one, and the page loads itself anew for the other. */
"use strict";
(() => {
    /* Milliseconds. */
    const WAITS = { soon: [1500, 10000], later: [5000, 15000] };
    const GROWTH = 1.3;
    const ANSWER_WITHIN = 12000;
    /* Nobody waits so long for something to change that is settled. */
    const SETTLED_FOR = 20 * 60 * 1000;
    const GONE = [401, 403, 404, 410];

    document.querySelectorAll("[data-sends-form]").forEach((field) => {
        field.addEventListener("change", () => field.form.submit());
    });

    /* What the server drew, but for what is new each time: keys of forms. */
    function source(piece) {
        const copy = piece.cloneNode(true);
        copy.querySelectorAll("input[type=hidden]").forEach((input) => input.setAttribute("value", ""));
        return copy.innerHTML.trim();
    }

    /* Copy buttons and the time left belong to the payment app's script: it is run again for pieces that are new. */
    function bringToLife() {
        const known = document.querySelector("script[src*='payments_integration/checkout']");
        if (known) {
            const again = document.createElement("script");
            again.src = known.src;
            document.head.append(again);
        }
    }

    function following(page) {
        const drawn = new Map();
        page.querySelectorAll("[data-live]").forEach((piece) => drawn.set(piece.dataset.live, source(piece)));
        let [wait] = WAITS[page.dataset.follow];
        let timer = 0;
        let asking = false;
        let ended = false;
        let changedAt = Date.now();

        const later = () => {
            clearTimeout(timer);
            const isOld = page.dataset.follow === "later" && Date.now() - changedAt > SETTLED_FOR;
            /* A page that nobody sees asks nobody; it goes on as soon as it is seen. */
            if (!ended && !isOld && !document.hidden) {
                timer = setTimeout(ask, wait);
                wait = Math.min(wait * GROWTH, WAITS[page.dataset.follow][1]);
            }
        };

        const show = (fresh) => {
            let isLifeless = false;
            page.dataset.follow = fresh.dataset.follow;
            fresh.querySelectorAll("[data-live]").forEach((piece) => {
                const name = piece.dataset.live;
                const text = source(piece);
                const place = page.querySelector(`[data-live="${name}"]`);
                if (!place || drawn.get(name) === text) {
                    return;
                }
                const hadFocus = place.contains(document.activeElement);
                drawn.set(name, text);
                place.replaceChildren(...piece.childNodes);
                isLifeless = isLifeless || place.querySelector("[data-payments-copy], [data-payments-until]") !== null;
                [wait] = WAITS.soon;
                changedAt = Date.now();
                if (hadFocus) {
                    document.getElementById("order").focus();
                }
            });
            if (isLifeless) {
                bringToLife();
            }
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
                const answer = await fetch(window.location.pathname, {
                    cache: "no-store",
                    headers: { Accept: "text/html" },
                    redirect: "error",
                    signal: limit.signal,
                });
                if (answer.ok) {
                    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
                    const its = fresh.querySelector("[data-follow]");
                    if (its) {
                        show(its);
                    }
                } else {
                    ended = GONE.includes(answer.status);
                }
            } catch {
                /* No network, no server: asked again later. */
            } finally {
                clearTimeout(over);
                asking = false;
                later();
            }
        };

        const soon = () => {
            if (!document.hidden && !ended) {
                [wait] = WAITS.soon;
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

    document.querySelectorAll("[data-follow]").forEach(following);
})();
