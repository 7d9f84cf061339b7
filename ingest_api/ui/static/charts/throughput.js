// Records and bytes per second, in and out, of a topic or of all together.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { brief, bytes } from "../core/format.js";
import { load } from "../core/load.js";
import { effect, signal } from "../core/reactive.js";
import { loadError, segmented } from "../core/parts.js";
import { lineChart } from "./lines.js";

const REFRESH_MS = 5000;
const UNITS = {
    records: (value) => `${brief(value)}/s`,
    bytes: (value) => `${bytes(value)}/s`,
};

export function throughput(topic) {
    const unit = signal("records");
    const loaded = load(() => api.throughput(topic), REFRESH_MS);
    const chart = lineChart("Throughput of the last fifteen minutes", 150);
    effect(() => {
        const data = loaded.data();
        if (!data) return;
        const { interval_ms: interval, end_ms: end, counts } = data;
        const perSecond = (flow) => counts[`${unit()}_${flow}`].map((each) => (each * 1000) / interval);
        const into = perSecond("in");
        chart.draw({
            times: into.map((_, index) => end - interval * (into.length - index)),
            series: [
                { name: "in", values: into, tone: 1 },
                { name: "out", values: perSecond("out"), tone: 2 },
            ],
            format: UNITS[unit()],
        });
    });
    return h(
        "section.panel",
        h(
            "header",
            h("h2", "Throughput"),
            segmented(
                "Unit",
                [
                    ["records", "Records"],
                    ["bytes", "Bytes"],
                ],
                unit,
            ),
        ),
        loadError(loaded),
        chart.node,
    );
}
