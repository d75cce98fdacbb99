/* Draws the charts of the admin with Chart.js. The numbers are in the page as JSON, and in the table after each
   canvas: without this script the tables are open, and nothing is missing. */
"use strict";
(() => {
    /* At least 4.5:1 against the page. */
    const LIGHT = {
        green: "#1f6f43", red: "#b3261e", blue: "#1d5fa8", amber: "#8a5a00", purple: "#6b3fa0", grey: "#4d4d4d",
    };
    const DARK = {
        green: "#7fd8a4", red: "#ff9a90", blue: "#8cc0ff", amber: "#f2c14e", purple: "#cdb0ff", grey: "#d0d0d0",
    };
    /* Each look is a colour and a pattern, so that the colours are not needed. */
    const LOOKS = [
        ["green", "plain"], ["red", "up"], ["blue", "dots"], ["amber", "down"], ["purple", "cross"],
        ["grey", "lines"], ["red", "cross"], ["grey", "down"], ["blue", "lines"], ["amber", "cross"],
        ["amber", "up"], ["amber", "bars"],
    ];
    const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
    const POINTS = ["circle", "rect", "triangle", "rectRot", "crossRot"];
    const SIZE = 10;

    const language = document.documentElement.lang || "en";
    const drawn = new Map();
    let printing = false;

    /* The first background that is not transparent, around an element. */
    function isDark(element) {
        if (printing) {
            return false;
        }
        for (let place = element; place; place = place.parentElement) {
            const parts = (getComputedStyle(place).backgroundColor.match(/[\d.]+/g) || []).map(Number);
            if (parts.length >= 3 && parts[3] !== 0) {
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] < 128;
            }
        }
        return false;
    }

    function theme(canvas) {
        const dark = isDark(canvas);
        return {
            dark,
            colours: dark ? DARK : LIGHT,
            paper: dark ? "#121212" : "#ffffff",
            ink: dark ? "#eeeeee" : "#333333",
            grid: dark ? "#4a4a4a" : "#dddddd",
        };
    }

    function pattern(look, colours, paper) {
        const [named, name] = LOOKS[look];
        const colour = colours[named];
        if (name === "plain") {
            return colour;
        }
        const tile = document.createElement("canvas");
        tile.width = tile.height = SIZE;
        const pen = tile.getContext("2d");
        pen.fillStyle = paper;
        pen.fillRect(0, 0, SIZE, SIZE);
        pen.strokeStyle = pen.fillStyle = colour;
        pen.lineWidth = 2.5;
        const line = (...points) => {
            pen.beginPath();
            pen.moveTo(points[0], points[1]);
            pen.lineTo(points[2], points[3]);
            pen.stroke();
        };
        const half = SIZE / 2;
        if (name === "up" || name === "cross") {
            for (const shift of [-SIZE, 0, SIZE]) {
                line(shift - 1, SIZE + 1, shift + SIZE + 1, -1);
            }
        }
        if (name === "down" || name === "cross") {
            for (const shift of [-SIZE, 0, SIZE]) {
                line(shift - 1, -1, shift + SIZE + 1, SIZE + 1);
            }
        }
        if (name === "dots") {
            pen.beginPath();
            pen.arc(half, half, 2.8, 0, 2 * Math.PI);
            pen.fill();
        }
        if (name === "lines") {
            line(0, half, SIZE, half);
        }
        if (name === "bars") {
            line(half, 0, half, SIZE);
        }
        return pen.createPattern(tile, "repeat");
    }

    /* Short numbers for an axis; tooltips and tables have the exact ones. */
    function axisNumber(data) {
        const format = new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 });
        return (value) => format.format(value / 10 ** data.decimals) + (data.unit === "%" ? " %" : "");
    }

    /* 2026-03-04 05:06 in the page's time zone, as all times of the admin. A browser that does not know the zone shows
       none: the tooltips and the table have them. */
    function axisTime(data) {
        const options = {
            year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
            timeZone: data.zone,
        };
        try {
            // Swedish writes times so.
            const format = new Intl.DateTimeFormat("sv-SE", options);
            return (value) => format.format(new Date(value));
        } catch {
            return () => "";
        }
    }

    /* The number of each horizontal bar, beside it or, without room, inside it. */
    const labels = {
        id: "paymentsLabels",
        afterDatasetsDraw(chart) {
            const data = chart.$payments;
            if (data.kind !== "rows") {
                return;
            }
            const pen = chart.ctx;
            pen.save();
            pen.font = "12px sans-serif";
            pen.textBaseline = "middle";
            chart.getDatasetMeta(0).data.forEach((bar, index) => {
                const text = data.series[0].texts[index];
                const width = pen.measureText(text).width;
                const fits = bar.x + 6 + width <= chart.width;
                const left = fits ? bar.x + 6 : Math.max(chart.chartArea.left + 4, bar.x - 6 - width);
                pen.fillStyle = data.theme.paper;
                pen.fillRect(left - 2, bar.y - 8, width + 4, 16);
                pen.fillStyle = data.theme.ink;
                pen.fillText(text, left, bar.y);
            });
            pen.restore();
        },
    };

    function datasets(data) {
        const { colours, paper } = data.theme;
        return data.series.map((series) => {
            const colour = colours[LOOKS[series.look][0]];
            if (data.kind === "steps") {
                return {
                    label: series.name,
                    data: data.moments.map((moment, index) => ({ x: moment, y: series.values[index] })),
                    stepped: true,
                    borderColor: colour,
                    backgroundColor: colour,
                    borderWidth: 2,
                    borderDash: DASHES[series.look % DASHES.length],
                    pointStyle: POINTS[series.look % POINTS.length],
                    pointRadius: data.moments.length > 60 ? 2 : 3,
                };
            }
            return {
                label: series.name,
                data: series.values,
                backgroundColor: pattern(series.look, colours, paper),
                borderColor: colour,
                borderWidth: 1,
                maxBarThickness: 40,
            };
        });
    }

    function options(data) {
        const { ink, grid, paper } = data.theme;
        const lying = data.kind === "rows";
        const number = {
            stacked: data.stacked,
            beginAtZero: true,
            ticks: { color: ink, callback: axisNumber(data) },
            grid: { color: grid },
            title: { display: data.unit !== "%", text: data.unit, color: ink },
        };
        if (data.unit === "%") {
            number.max = 100 * 10 ** data.decimals;
        }
        /* Days lie flat, and some are left out: slanted ones would take the height of the bars. */
        const ticks = lying ? { color: ink } : { color: ink, maxRotation: 0, autoSkipPadding: 16 };
        let other = { stacked: data.stacked, ticks, grid: { display: false } };
        if (data.kind === "steps") {
            other = {
                type: "linear",
                min: data.moments[0],
                max: data.moments[data.moments.length - 1],
                ticks: { color: ink, callback: axisTime(data), maxTicksLimit: 6 },
                grid: { color: grid },
            };
        }
        return {
            // No animations.
            animation: false,
            responsive: true,
            maintainAspectRatio: false,
            indexAxis: lying ? "y" : "x",
            // Room for the numbers beside lying bars, where there is any.
            layout: { padding: { right: lying && data.width > 500 ? 160 : 8 } },
            scales: lying ? { x: number, y: other } : { x: other, y: number },
            plugins: {
                legend: {
                    display: !lying,
                    position: "bottom",
                    labels: data.kind === "steps"
                        ? { color: ink, usePointStyle: true, pointStyleWidth: 14, boxHeight: 7, padding: 16 }
                        : { color: ink, boxWidth: 26, boxHeight: 14 },
                },
                tooltip: {
                    backgroundColor: ink,
                    titleColor: paper,
                    bodyColor: paper,
                    displayColors: false,
                    callbacks: {
                        title: (items) => (items.length ? data.labels[items[0].dataIndex] : ""),
                        label: (item) => {
                            const series = data.series[item.datasetIndex];
                            return `${series.name}: ${series.texts[item.dataIndex] || "0"}`;
                        },
                    },
                },
            },
        };
    }

    function draw(canvas) {
        const data = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
        data.theme = theme(canvas);
        drawn.get(canvas)?.destroy();
        const box = canvas.parentElement;
        box.hidden = false;
        data.width = box.clientWidth;
        if (data.kind === "rows") {
            box.style.height = `${46 + 24 * data.labels.length}px`;
        }
        const wait = { id: "paymentsData", beforeInit: (chart) => { chart.$payments = data; } };
        drawn.set(canvas, new Chart(canvas, {
            type: data.kind === "steps" ? "line" : "bar",
            data: { labels: data.kind === "steps" ? undefined : data.labels, datasets: datasets(data) },
            options: options(data),
            plugins: [wait, labels],
        }));
    }

    function redraw() {
        for (const canvas of drawn.keys()) {
            draw(canvas);
        }
    }

    function begin() {
        if (typeof Chart === "undefined") {
            return;
        }
        for (const canvas of document.querySelectorAll("canvas[data-chart]")) {
            draw(canvas);
            const numbers = canvas.closest("figure").querySelector("details");
            numbers.open = false;
        }
        for (const details of document.querySelectorAll("details.pi-by-status")) {
            details.open = false;
        }
        new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme", "class"] });
        window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
        /* For printing: dark colours, and open tables. */
        let closed = [];
        window.addEventListener("beforeprint", () => {
            printing = true;
            closed = [...document.querySelectorAll("details:is(.pi-numbers, .pi-by-status):not([open])")];
            closed.forEach((details) => { details.open = true; });
            redraw();
        });
        window.addEventListener("afterprint", () => {
            printing = false;
            closed.forEach((details) => { details.open = false; });
            redraw();
        });
    }

    if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", begin);
    } else {
        begin();
    }
})();
