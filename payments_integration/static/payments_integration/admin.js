// Ids that a click copies, and the key of the search. Without this script both remain: text, and a field.
"use strict";
(() => {
    const copy = async button => {
        const text = button.textContent;
        try {
            await navigator.clipboard.writeText(text);
        } catch {
            // Without HTTPS there is no clipboard: the text is selected, for the reader's own copy command.
            getSelection().selectAllChildren(button);
            return;
        }
        status.textContent = "";
        status.textContent = `${button.dataset.copied}: ${text}`;
        button.classList.add("pi-was-copied");
        setTimeout(() => button.classList.remove("pi-was-copied"), 1500);
    };
    const status = document.createElement("span");
    status.className = "visually-hidden";
    status.setAttribute("role", "status");

    const start = () => {
        const ids = document.querySelectorAll(".pi-id");
        // Jazzmin has no #content.
        if (ids.length) (document.querySelector("#content") ?? document.body).append(status);
        for (const id of ids) {
            const button = document.createElement("button");
            button.type = "button";
            button.className = id.className;
            button.textContent = id.textContent;
            button.title = id.dataset.copy;
            button.dataset.copied = id.dataset.copied;
            button.addEventListener("click", () => copy(button));
            id.replaceWith(button);
        }
    };

    // As in many programs, "/" leads to the search. In a field it is a character.
    document.addEventListener("keydown", event => {
        const search = document.querySelector("#pi-search");
        const types = event.target.closest?.("input, textarea, select, [contenteditable]");
        if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !search || types) return;
        event.preventDefault();
        search.focus();
        search.select();
    });

    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
    else start();
})();
