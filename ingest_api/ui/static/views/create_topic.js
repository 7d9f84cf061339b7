import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { field, form, openDialog, say, select } from "../core/parts.js";
import { go } from "../core/router.js";

const KEEPS = [
    ["604800000", "7 days"],
    ["86400000", "1 day"],
    ["2592000000", "30 days"],
    ["-1", "for ever"],
];

export function createTopic(created) {
    openDialog("Create topic", (close) => {
        const name = h("input", { required: true, autocomplete: "off", spellcheck: "false", autofocus: true });
        const partitions = h("input", { type: "number", min: "1", max: "10000", value: "1", required: true });
        const policy = select([
            ["delete", "Delete old records"],
            ["compact", "Keep the latest per key"],
            ["compact,delete", "Both"],
        ]);
        const keeps = select(KEEPS);
        const more = h("textarea", { rows: "3", spellcheck: "false", placeholder: "segment.bytes=67108864" });
        return form({
            fields: [
                field("Name", name, "Letters, digits, dots, dashes and underscores."),
                h("div.row", field("Partitions", partitions), field("Clean up", policy), field("Keep records", keeps)),
                field("Further configuration", more, "One name=value a line."),
            ],
            action: "Create topic",
            cancel: close,
            submit: async () => {
                const configs = [
                    { name: "cleanup.policy", value: policy.value },
                    { name: "retention.ms", value: keeps.value },
                    ...lines(more.value),
                ].filter(({ name: each, value }) => DEFAULTS[each] !== value);
                await api.createTopic({
                    topic_name: name.value.trim(),
                    partitions_count: Number(partitions.value),
                    configs,
                });
                close();
                created();
                say(`Topic ${name.value.trim()} is there.`);
                go("topics", name.value.trim());
            },
        });
    });
}

// What is the default already need not be set: a new default would not reach it.
const DEFAULTS = { "cleanup.policy": "delete", "retention.ms": "604800000" };

function lines(text) {
    return text
        .split("\n")
        .map((each) => each.trim())
        .filter(Boolean)
        .map((each) => {
            const [name, ...value] = each.split("=");
            return { name: name.trim(), value: value.join("=").trim() };
        });
}
