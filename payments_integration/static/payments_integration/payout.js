"use strict";
/* The form of a payout shows only what belongs to the chosen country. Without this script it shows everything. */
document.addEventListener("DOMContentLoaded", () => {
    const form = document.getElementById("payout_form");
    const country = form && form.elements.namedItem("country");
    if (!country) return;
    const narrow = () => {
        for (const option of form.querySelectorAll("option[data-countries]")) {
            const countries = option.dataset.countries.split(" ");
            const fits = !country.value || !option.value || countries.includes(country.value);
            // What is chosen stays visible, so that nobody sends what they cannot see.
            option.hidden = option.disabled = !fits && !option.selected;
        }
    };
    country.addEventListener("change", narrow);
    narrow();
});
