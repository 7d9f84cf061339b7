// One topic: its figures, and tabs for records, partitions and configuration.

import { throughput } from "../charts/throughput.js";
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { NOTHING, brief, bytes, count, plural, retention } from "../core/format.js";
import { load } from "../core/load.js";
import { chip, confirmByName, field, figure, form, loadError, openDialog, say, titled } from "../core/parts.js";
import { go, href } from "../core/router.js";
import { configTab } from "./config.js";
import { partitionsTab } from "./partitions.js";
import { produceRecord } from "./produce.js";
import { recordsTab } from "./records.js";

const REFRESH_MS = 5000;
const TABS = [
    ["records", "Records", recordsTab],
    ["partitions", "Partitions", partitionsTab],
    ["config", "Configuration", configTab],
];

export function topicView({ topic, tab = "records" }, query) {
    titled(topic);
    const loaded = load(() => api.topic(topic), REFRESH_MS);
    const figures = () => loaded.data()?.figures;
    const config = (name) => loaded.data()?.configs.find((each) => each.name === name)?.value ?? "";
    const [, , content] = TABS.find(([id]) => id === tab) ?? TABS[0];

    return h(
        "div.view",
        h(
            "header.title",
            h("nav.crumbs", { "aria-label": "Up" }, h("a", { href: href("topics") }, "Topics"), " / "),
            h("h1", topic),
            () =>
                config("cleanup.policy")
                    .split(",")
                    .filter(Boolean)
                    .map((each) => chip(each, each)),
            h(
                "div.buttons",
                h(
                    "button.primary",
                    { type: "button", onclick: () => produceRecord(topic, loaded) },
                    "Produce",
                ),
                h("button", { type: "button", onclick: () => grow(topic, loaded) }, "Add partitions"),
                h("button.danger", { type: "button", onclick: () => remove(topic, loaded) }, "Delete"),
            ),
        ),
        loadError(loaded),
        h(
            "dl.figures",
            figure("Partitions", () => count(loaded.data()?.partitions.length)),
            figure("Records", () => (figures() ? brief(figures().records) : NOTHING)),
            figure("Size", () => bytes(figures()?.bytes)),
            figure("Files", () => count(figures()?.segments)),
            figure("Keeps", () => (loaded.data() ? retention(kept(config)) : NOTHING)),
            figure(
                "Table version",
                () => count(loaded.data()?.table_version),
                "The newest version of the topic's Delta table",
            ),
        ),
        tab === "records" ? null : throughput(topic),
        h(
            "nav.tabs",
            { "aria-label": "Parts of the topic" },
            TABS.map(([id, label]) =>
                h("a", { href: href("topics", topic, id), "aria-current": id === tab ? "page" : null }, label),
            ),
        ),
        content(topic, loaded, query),
    );
}

function kept(config) {
    return {
        cleanup_policy: config("cleanup.policy"),
        retention_ms: Number(config("retention.ms")),
        retention_bytes: Number(config("retention.bytes")),
    };
}

function grow(topic, loaded) {
    const now = loaded.data.peek()?.partitions.length ?? 1;
    openDialog("Add partitions", (close) => {
        const total = h("input", { type: "number", min: String(now + 1), value: String(now + 1), required: true });
        return form({
            fields: [
                field(
                    "Partitions from now on",
                    total,
                    `There are ${now}. Records that are there stay where they are; keys may go elsewhere from now on.`,
                ),
            ],
            action: "Add partitions",
            cancel: close,
            submit: async () => {
                await api.addPartitions(topic, Number(total.value));
                close();
                say(`${topic} has ${plural(Number(total.value), "partition")}.`);
                loaded.refresh();
            },
        });
    });
}

function remove(topic) {
    confirmByName("Delete topic", topic, "The topic goes with all of its records, and its table with it.", async () => {
        await api.deleteTopic(topic);
        say(`Topic ${topic} is deleted.`);
        go("topics");
    });
}
