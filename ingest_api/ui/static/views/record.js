// One record in full: its key, its value, its headers.

import { full } from "../core/decode.js";
import { h } from "../core/dom.js";
import { bytes, count, moment } from "../core/format.js";
import { coloured } from "../core/json.js";
import { onEnd } from "../core/reactive.js";

/** Takes the focus once it is in the page; Escape or its button closes it. */
export function recordDetail(record, format, close) {
    const node = h(
        "aside.detail",
        { "aria-label": "Record", tabindex: "-1" },
        h(
            "header",
            h("h2", `Partition ${record.partition}, offset ${count(record.offset)}`),
            h("button.plain", { type: "button", "aria-label": "Close", onclick: close }, "✕"),
        ),
        h("p.muted", moment(record.timestamp)),
        block("Key", record.key, format),
        block("Value", record.value, format),
        h(
            "section",
            h("h3", "Headers"),
            record.headers.length
                ? h(
                      "table.headers",
                      record.headers.map((each) =>
                          h(
                              "tr",
                              h("th", { scope: "row" }, each.key),
                              h("td", h("code", () => full(each.value, format()).text)),
                          ),
                      ),
                  )
                : h("p.muted", "None"),
        ),
    );
    const closeByKey = (event) => {
        const elsewhere = document.querySelector("dialog[open]") || event.target.closest("input, textarea, select");
        if (event.key === "Escape" && !elsewhere) close();
    };
    addEventListener("keydown", closeByKey);
    onEnd(() => removeEventListener("keydown", closeByKey));
    queueMicrotask(() => node.focus({ preventScroll: true }));
    return node;
}

function block(label, data, format) {
    return h("section", () => {
        const { form, text } = full(data, format());
        return [
            h("h3", label, h("small", data === null ? "" : `${form}, ${bytes(data.length)}`)),
            h("pre", { class: form, tabindex: "0" }, form === "json" ? coloured(text) : text),
        ];
    });
}
