/* The shop's forms: a choice that sends its form, and a button that says what is paid. Without this script there is a
   button for the one, and the server shows the price once more for the other. */
"use strict";
(() => {
    document.querySelectorAll("[data-sends-form]").forEach((field) => {
        field.addEventListener("change", () => field.form.submit());
    });

    document.querySelectorAll("[data-totals]").forEach((field) => {
        const show = () => {
            field.form.querySelector("[data-total]").textContent = field.dataset.totals.split("|")[field.selectedIndex];
            field.form.elements.price.value = Number(field.dataset.unit) * Number(field.value);
        };
        field.addEventListener("change", show);
        /* A browser that comes back to the page keeps the choice. */
        window.addEventListener("pageshow", show);
    });
})();
