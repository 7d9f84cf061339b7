// Records: from the newest back, from an offset or a time on, or live; filtered; one of them in full.

import { api, ApiError } from "../core/api.js";
import { FORMATS, contains, full, preview } from "../core/decode.js";
import { h } from "../core/dom.js";
import { bytes, count, moment, plural, time } from "../core/format.js";
import { empty, errorNote, field, segmented, select } from "../core/parts.js";
import { effect, onEnd, signal } from "../core/reactive.js";
import { backward, forward, readable } from "../core/records.js";
import { remember } from "../core/router.js";
import { table } from "../core/table.js";

const PAGE_RECORDS = 100;
const SEARCHED_MOST = 50_000; // before it asks whether to go on
const LIVE_MOST = 500;
const LIVE_PAUSE_MS = 200;
const STARTS = [
    ["newest", "Newest"],
    ["oldest", "Oldest"],
    ["offset", "Offset"],
    ["time", "Time"],
    ["live", "Live"],
];

export function recordsTab(topic, loaded, query) {
    const start = signal(STARTS.some(([id]) => id === query.get("from")) ? query.get("from") : "newest");
    const format = signal(FORMATS.includes(query.get("as")) ? query.get("as") : "auto");
    const records = signal([]);
    const state = signal({ busy: false, searched: 0, more: false, error: null });
    const chosen = signal(null);

    const partition = select([["", "All"]]);
    const offset = h("input", { type: "number", min: "0", value: query.get("offset") ?? "0" });
    const when = h("input", { type: "datetime-local", step: "1", value: query.get("at") ?? localNow() });
    const filter = h("input", {
        type: "search",
        placeholder: "Filter by text in key, value or headers",
        "aria-label": "Filter",
        value: query.get("filter") ?? "",
    });

    let pages = null;
    let running = null;
    let stop = () => {};
    onEnd(() => stop());

    const change = (more) => state.set({ ...state.peek(), ...more });
    const wanted = () => (partition.value === "" ? null : Number(partition.value));

    async function begin() {
        stop();
        // Whoever begins anew takes over from one that is still on its way.
        const abort = new AbortController();
        running = abort;
        stop = () => abort.abort();
        records.set([]);
        chosen.set(null);
        remember({
            from: start.peek(),
            as: format.peek(),
            offset: start.peek() === "offset" ? offset.value : null,
            at: start.peek() === "time" ? when.value : null,
            filter: filter.value,
            partition: partition.value,
        });
        change({ busy: true, searched: 0, more: false, error: null });
        try {
            const { partitions } = await api.topic(topic);
            if (abort.signal.aborted) return;
            const marks = partitions.filter((each) => wanted() === null || each.partition === wanted());
            if (start.peek() === "live") follow(marks);
            else {
                pages = pagesFrom(marks, abort.signal);
                await more(abort.signal);
            }
        } catch (error) {
            if (error.name !== "AbortError") change({ busy: false, error });
        }
    }

    function pagesFrom(marks, abort) {
        const from = { marks, partition: wanted() };
        if (start.peek() === "newest") return backward(topic, { ...from, window: PAGE_RECORDS }, abort);
        if (start.peek() === "time")
            return forward(topic, { ...from, timestamp: new Date(when.value).getTime() }, abort);
        return forward(topic, { ...from, offset: start.peek() === "offset" ? Number(offset.value) : undefined }, abort);
    }

    /** Go on until a page full of records fits, there are no more, or it has taken long enough to ask. */
    async function more(abort) {
        change({ busy: true, error: null });
        const [words, before] = [filter.value.trim(), records.peek().length];
        let searched = 0;
        try {
            while (records.peek().length - before < PAGE_RECORDS && searched < SEARCHED_MOST) {
                const { value: page, done } = await pages.next();
                if (abort.aborted) return;
                if (done) return change({ busy: false, more: false });
                searched += page.length;
                const fitting = words ? page.filter((each) => contains(each, words)) : page;
                if (fitting.length) records.set([...records.peek(), ...fitting]);
                change({ searched: state.peek().searched + page.length });
            }
            change({ busy: false, more: true });
        } catch (error) {
            if (error.name !== "AbortError") change({ busy: false, error });
        }
    }

    const goOn = () => more(running.signal);

    function follow(marks) {
        const words = filter.value.trim();
        const source = api.follow(topic, {
            positions: new Map(marks.map((each) => [each.partition, each.high_watermark])),
            partition: wanted(),
        });
        let fresh = [];
        const timer = setInterval(() => {
            if (!fresh.length) return;
            change({ searched: state.peek().searched + fresh.length });
            const fitting = fresh.map(readable).filter((each) => !words || contains(each, words));
            fresh = [];
            if (fitting.length) records.set([...fitting.reverse(), ...records.peek()].slice(0, LIVE_MOST));
        }, LIVE_PAUSE_MS);
        source.onmessage = (event) => {
            fresh.push(JSON.parse(event.data));
            if (fresh.length > LIVE_MOST) fresh.splice(0, fresh.length - LIVE_MOST);
        };
        source.onopen = () => change({ error: null });
        source.onerror = (event) => {
            if (event.data) {
                const { error_code: code, message } = JSON.parse(event.data);
                change({ error: new ApiError(200, code, message) });
            } else if (source.readyState === EventSource.CLOSED)
                change({ error: new ApiError(0, 0, "The stream ended.") });
            else change({ error: new ApiError(0, 0, "The stream broke off; it is taken up again.") });
        };
        change({ busy: false });
        stop = () => {
            clearInterval(timer);
            source.close();
        };
    }

    // The choice of partitions is known with the first description of the topic.
    effect(() => {
        const total = loaded.data()?.partitions.length ?? 0;
        if (total && partition.options.length !== total + 1) {
            const kept = partition.value || (query.get("partition") ?? "");
            partition.replaceChildren(
                ...[["", "All"], ...Array.from({ length: total }, (_, each) => [String(each), String(each)])].map(
                    ([id, text]) => h("option", { value: id }, text),
                ),
            );
            partition.value = kept;
        }
    });
    let known = false;
    effect(() => {
        const first = !known && loaded.data() !== null;
        start();
        if (first || known) {
            known = true;
            queueMicrotask(begin);
        }
    });
    partition.addEventListener("change", begin);

    return h(
        "div",
        h(
            "form.bar.browse",
            { onsubmit: (event) => (event.preventDefault(), begin()) },
            segmented("From", STARTS, start),
            () => (start() === "offset" ? field("Offset", offset) : start() === "time" ? field("Time", when) : null),
            field("Partition", partition),
            filter,
            h("button", { type: "submit" }, () => (start() === "live" ? "Restart" : "Fetch")),
            segmented(
                "Show as",
                FORMATS.map((each) => [each, each === "auto" ? "Auto" : each === "text" ? "Text" : each.toUpperCase()]),
                format,
            ),
        ),
        () => errorNote(state().error),
        h(
            "div.beside",
            { class: () => (chosen() ? "with-detail" : "") },
            h(
                "div",
                table({
                    label: "Records",
                    columns: columns(format, chosen),
                    rows: () => (format(), records()),
                    key,
                    chosen: () => (chosen() ? key(chosen()) : null),
                    choose: (row) => chosen.set(chosen.peek() && key(chosen.peek()) === key(row) ? null : row),
                    empty: () => (state().busy ? empty("Reading…") : nothing(start(), filter.value, state().searched)),
                }),
                h(
                    "p.foot",
                    () => summary(state(), records().length, start()),
                    " ",
                    () =>
                        state().more && h("button", { type: "button", onclick: goOn, disabled: state().busy }, "More"),
                ),
            ),
            () => chosen() && detail(chosen(), format, () => chosen.set(null)),
        ),
    );
}

const key = (record) => `${record.partition}:${record.offset}`;

function columns(format) {
    const shown = (part) => (row) => {
        const { form, text } = preview(row[part], format.peek());
        return h("code", { class: form, title: form }, text);
    };
    return [
        {
            id: "partition",
            label: "Part",
            number: true,
            width: "3.5rem",
            narrow: false,
            cell: (row) => String(row.partition),
        },
        {
            id: "offset",
            label: "Offset",
            number: true,
            width: "7rem",
            cell: (row) => h("button.link", { type: "button" }, count(row.offset)),
        },
        {
            id: "time",
            label: "Time",
            width: "6rem",
            narrow: false,
            cell: (row) => h("span.muted", { title: moment(row.timestamp) }, time(row.timestamp)),
        },
        { id: "key", label: "Key", width: "18%", cell: shown("key") },
        { id: "value", label: "Value", cell: shown("value") },
        {
            id: "headers",
            label: "Headers",
            width: "5rem",
            number: true,
            narrow: false,
            cell: (row) => (row.headers.length ? String(row.headers.length) : h("span.faint", "–")),
        },
    ];
}

function detail(record, format, close) {
    const block = (label, data) => {
        const { form, text } = full(data, format());
        return h(
            "section",
            h("h3", label, h("small", data === null ? "" : `${form}, ${bytes(data.length)}`)),
            h("pre", { class: form, tabindex: "0" }, form === "json" ? coloured(text) : text),
        );
    };
    return h(
        "aside.detail",
        { "aria-label": "Record" },
        h(
            "header",
            h("h2", `Partition ${record.partition}, offset ${count(record.offset)}`),
            h("button.plain", { type: "button", "aria-label": "Close", onclick: close }, "✕"),
        ),
        h("p.muted", moment(record.timestamp)),
        block("Key", record.key),
        block("Value", record.value),
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
                              h("td", h("code", full(each.value, format()).text)),
                          ),
                      ),
                  )
                : h("p.muted", "None"),
        ),
    );
}

/** Pretty-printed JSON in colours. */
function coloured(text) {
    const parts = [];
    let end = 0;
    for (const match of text.matchAll(
        /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g,
    )) {
        parts.push(text.slice(end, match.index));
        const kind =
            match[2] !== undefined
                ? "name"
                : match[1] !== undefined
                  ? "string"
                  : match[3] !== undefined
                    ? "word"
                    : "digits";
        parts.push(h(`span.json-${kind}`, match[2] !== undefined ? match[1] : match[0]), match[2] ?? "");
        end = match.index + match[0].length;
    }
    parts.push(text.slice(end));
    return parts;
}

function summary({ busy, searched, more }, shown, start) {
    if (start === "live") return searched ? `${plural(shown, "record")} shown of ${count(searched)} that came in.` : "";
    if (!searched) return busy ? "Reading…" : "";
    const rest = busy ? ", reading on…" : more ? "." : ": that is all.";
    return shown === searched
        ? `${plural(shown, "record")}${rest}`
        : `${count(shown)} of ${plural(searched, "record")} fit${rest}`;
}

function nothing(start, words, searched) {
    if (start === "live")
        return empty("Waiting for records", "What is produced from now on appears here, the newest on top.");
    if (words) return empty("Nothing fits", `None of ${plural(searched, "record")} has “${words}” in it.`);
    return empty("No records", "There is nothing in this part of the topic.");
}

function localNow() {
    const now = new Date(Date.now() - 3_600_000);
    return new Date(now - now.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
