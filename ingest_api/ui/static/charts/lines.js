// Lines over time. Hover, or focus and use the arrow keys, to read the values at a moment.

import { h, replace } from "../core/dom.js";
import { time } from "../core/format.js";
import { onEnd } from "../core/reactive.js";

const MARGIN = { top: 10, right: 12, bottom: 20, left: 58 };

/** Draw with `draw({times, series: [{name, values, tone}], format})`; tone is a number from 1 to 8. */
export function lineChart(label, height = 170) {
    const svg = h("svg", { role: "img", "aria-label": label, height: String(height) });
    const legend = h("div.legend");
    const reading = h("div.reading", { hidden: true });
    const node = h(
        "div.chart",
        { tabindex: "0", "aria-label": `${label}. Arrow keys read values.` },
        legend,
        svg,
        reading,
    );
    let data = null;
    let at = null;

    function draw(next = data) {
        data = next;
        if (!data) return;
        const width = Math.max(240, node.clientWidth);
        svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
        svg.setAttribute("width", width);
        replace(
            legend,
            data.series.length > 1 && data.series.map((each) => h("span", { class: `tone-${each.tone}` }, each.name)),
        );
        const scale = scales(data, width, height);
        replace(
            svg,
            grid(scale, data, width, height),
            data.series.map((each) => line(each, scale)),
            cursor(scale),
        );
    }

    function cursor(scale) {
        reading.hidden = at === null;
        if (at === null) return null;
        const x = scale.x(at);
        const values = data.series.filter((each) => each.values[at] !== null && each.values[at] !== undefined);
        replace(
            reading,
            h("b", time(data.times[at])),
            values.map((each) =>
                h("span", { class: `tone-${each.tone}` }, `${each.name} `, h("i", data.format(each.values[at]))),
            ),
        );
        reading.style.left = `${Math.min(x + 10, node.clientWidth - 170)}px`;
        return [
            h("line.cursor", { x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom }),
            values.map((each) =>
                h("circle", { class: `tone-${each.tone}`, cx: x, cy: scale.y(each.values[at]), r: 3 }),
            ),
        ];
    }

    function point(index) {
        at = index === null || !data?.times.length ? null : Math.max(0, Math.min(data.times.length - 1, index));
        draw();
    }

    svg.addEventListener("pointermove", (event) => {
        if (!data?.times.length) return;
        const inside = event.clientX - svg.getBoundingClientRect().left - MARGIN.left;
        const span = Math.max(240, node.clientWidth) - MARGIN.left - MARGIN.right;
        point(Math.round((inside / span) * (data.times.length - 1)));
    });
    svg.addEventListener("pointerleave", () => point(null));
    node.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step && data) point((at ?? data.times.length - 1) + step);
    });
    node.addEventListener("blur", () => point(null));
    const resized = new ResizeObserver(() => draw());
    resized.observe(node);
    onEnd(() => resized.disconnect());
    return { node, draw };
}

function scales({ times, series }, width, height) {
    const most = niceMost(Math.max(1, ...series.flatMap((each) => each.values.map((value) => value ?? 0))));
    const [left, right] = [MARGIN.left, width - MARGIN.right];
    const [top, bottom] = [MARGIN.top, height - MARGIN.bottom];
    return {
        most,
        x: (index) => left + ((right - left) * index) / Math.max(1, times.length - 1),
        y: (value) => bottom - ((bottom - top) * value) / most,
    };
}

/** The least round number above: axes end on numbers that one can halve. */
function niceMost(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 4, 5, 10].map((each) => each * power).find((each) => each >= value);
}

function grid(scale, { times, format }, width, height) {
    const marks = [0, 0.5, 1].map((share) => scale.most * share);
    const ticks = times.length > 1 ? [0, 1 / 3, 2 / 3, 1].map((share) => Math.round(share * (times.length - 1))) : [];
    return [
        marks.map((value) => [
            h("line.grid", { x1: MARGIN.left, x2: width - MARGIN.right, y1: scale.y(value), y2: scale.y(value) }),
            h("text", { x: MARGIN.left - 8, y: scale.y(value) + 4, "text-anchor": "end" }, format(value)),
        ]),
        ticks.map((index, place) =>
            h(
                "text",
                {
                    x: scale.x(index),
                    y: height - 4,
                    "text-anchor": place === 0 ? "start" : place === ticks.length - 1 ? "end" : "middle",
                },
                time(times[index]),
            ),
        ),
    ];
}

function line({ values, tone }, scale) {
    let path = "";
    let begun = false;
    values.forEach((value, index) => {
        if (value === null || value === undefined) {
            begun = false;
            return;
        }
        path += `${begun ? "L" : "M"}${scale.x(index).toFixed(1)},${scale.y(value).toFixed(1)}`;
        begun = true;
    });
    // Under the first line alone: areas over areas are mud.
    const area = tone === 1 && values.length > 1 && values.every((value) => value !== null && value !== undefined);
    return [
        area &&
            h("path.area", {
                class: `tone-${tone}`,
                d: `${path}L${scale.x(values.length - 1)},${scale.y(0)}L${scale.x(0)},${scale.y(0)}Z`,
            }),
        h("path.line", { class: `tone-${tone}`, d: path }),
    ];
}
