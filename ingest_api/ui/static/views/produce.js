import { api } from "../core/api.js";
import { base64Of } from "../core/decode.js";
import { h } from "../core/dom.js";
import { count } from "../core/format.js";
import { field, form, openDialog, select } from "../core/parts.js";
import { signal } from "../core/reactive.js";

const FORMS = [
    ["JSON", "JSON"],
    ["STRING", "Text"],
    ["BINARY", "Base64"],
    ["NULL", "Null"],
];

export function produceRecord(topic, loaded) {
    openDialog(`Produce to ${topic}`, (close) => {
        const sent = signal(null);
        const key = part("Key", 1, "STRING");
        const value = part("Value", 6, "JSON", true);
        const partition = h("input", {
            type: "number",
            min: "0",
            max: String((loaded.data.peek()?.partitions.length ?? 1) - 1),
            placeholder: "By key",
        });
        const headers = h("textarea", { rows: "2", spellcheck: "false", placeholder: "trace-id: 8f3a" });
        return h(
            "div",
            form({
                fields: [
                    key.fields,
                    value.fields,
                    h("div.row", field("Partition", partition), field("Headers", headers, "One name: value a line.")),
                ],
                action: "Produce",
                cancel: close,
                submit: async () => {
                    sent.set(null);
                    const record = { key: key.read(), value: value.read(), headers: lines(headers.value) };
                    if (partition.value) record.partition_id = Number(partition.value);
                    sent.set(await api.produce(topic, record));
                    loaded.refresh();
                },
            }),
            () =>
                sent() &&
                h(
                    "div.note.good",
                    { role: "status" },
                    h("strong", "Stored"),
                    h("span", `in partition ${sent().partition_id} at offset ${count(sent().offset)}`),
                ),
        );
    });
}

function part(label, rows, form, focus) {
    const kind = select(FORMS, form);
    const text =
        rows === 1
            ? h("input", { spellcheck: "false", autocomplete: "off" })
            : h("textarea", { rows: String(rows), spellcheck: "false" });
    if (focus) text.autofocus = true;
    return {
        fields: h("div.part", field(label, text), field("as", kind)),
        read() {
            if (kind.value === "NULL" || (text.value === "" && label === "Key")) return null;
            if (kind.value === "JSON") return { type: "STRING", data: checkedJson(label, text.value) };
            return { type: kind.value, data: text.value };
        },
    };
}

/** The text itself: what it stands for would not be written again as it was, 1.0 as 1 and long numbers rounded. */
function checkedJson(label, text) {
    try {
        JSON.parse(text);
        return text;
    } catch (error) {
        throw Object.assign(new SyntaxError(`${label} is not JSON: ${error.message}`), { label: "Not sent" });
    }
}

function lines(text) {
    return text
        .split("\n")
        .filter((each) => each.trim())
        .map((each) => {
            const [name, ...value] = each.split(":");
            return { name: name.trim(), value: base64Of(value.join(":").trim()) };
        });
}
