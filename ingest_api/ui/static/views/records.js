// Records: from the newest back, from an offset or a time on, or live; filtered; one of them in full.

import { api } from "../core/api.js";
import { FORMATS, contains, preview } from "../core/decode.js";
import { h } from "../core/dom.js";
import { count, moment, plural, time } from "../core/format.js";
import { paused } from "../core/load.js";
import { empty, errorNote, field, segmented, select } from "../core/parts.js";
import { derived, effect, onEnd, signal } from "../core/reactive.js";
import { backward, forward, live } from "../core/records.js";
import { remember } from "../core/router.js";
import { table } from "../core/table.js";
import { recordDetail } from "./record.js";

const PAGE_RECORDS = 100;
// Before it asks whether to go on.
const SEARCHED_MOST = 50_000;
const REPLIES_MOST = 100;
const LIVE_MOST = 500;
const LIVE_PAUSE_MS = 200;
const LIVE_AGAIN_MS = 2000;
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
    const stop = () => running?.abort();
    onEnd(stop);

    /** Back to the row that the record was opened from. */
    function close() {
        const row = key(chosen.peek());
        chosen.set(null);
        document.querySelector(`tr[data-key="${row}"] button`)?.focus();
    }

    const change = (more) => state.set({ ...state.peek(), ...more });
    const wanted = () => (partition.value === "" ? null : Number(partition.value));

    async function begin() {
        stop();
        // Whoever begins anew takes over from one that is still on its way.
        running = new AbortController();
        const abort = running.signal;
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
            if (abort.aborted) return;
            const marks = partitions.filter((each) => wanted() === null || each.partition === wanted());
            if (start.peek() === "live") await follow(marks, abort);
            else {
                pages = pagesFrom(marks, abort);
                await more(abort);
            }
        } catch (error) {
            if (!abort.aborted) change({ busy: false, error });
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
        const [fits, before] = [fitting(), records.peek().length];
        let [searched, replies, used] = [0, 0, PAGE_RECORDS];
        try {
            while (
                records.peek().length - before < PAGE_RECORDS &&
                searched < SEARCHED_MOST &&
                replies < REPLIES_MOST
            ) {
                const { value: page, done } = await pages.next(used);
                if (abort.aborted) return;
                if (done) return change({ busy: false, more: false });
                const found = page.filter(fits);
                [searched, replies, used] = [searched + page.length, replies + 1, found.length];
                if (found.length) records.set([...records.peek(), ...found]);
                change({ searched: state.peek().searched + page.length });
            }
            change({ busy: false, more: true });
        } catch (error) {
            if (!abort.aborted) change({ busy: false, more: false, error });
        }
    }

    const goOn = () => state.peek().busy || more(running.signal);

    function fitting() {
        const words = filter.value.trim();
        return (record) => !words || contains(record, words);
    }

    /** Show what comes in until the gateway refuses it. Where the stream ends or breaks off it is taken up again. */
    async function follow(marks, abort) {
        const fits = fitting();
        const positions = new Map(marks.map((each) => [each.partition, each.high_watermark]));
        let [fresh, counted] = [[], 0];
        const timer = setInterval(() => {
            if (!counted || paused.peek()) return;
            change({ searched: state.peek().searched + counted });
            if (fresh.length) records.set([...fresh.reverse(), ...records.peek()].slice(0, LIVE_MOST));
            [fresh, counted] = [[], 0];
        }, LIVE_PAUSE_MS);
        abort.addEventListener("abort", () => clearInterval(timer));
        change({ busy: false });
        while (!abort.aborted) {
            try {
                for await (const some of live(topic, { positions, partition: wanted() }, abort)) {
                    if (state.peek().error) change({ error: null });
                    counted += some.length;
                    fresh = [...fresh, ...some.filter(fits)].slice(-LIVE_MOST);
                }
            } catch (error) {
                if (abort.aborted || error.status !== 0) throw error;
                change({ error });
            }
            await new Promise((resolve) => setTimeout(resolve, LIVE_AGAIN_MS));
        }
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
    const known = derived(() => loaded.data() !== null);
    effect(() => {
        start();
        if (known()) queueMicrotask(begin);
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
                    h(
                        "button",
                        {
                            type: "button",
                            // It stays while it works, and with it the focus.
                            "aria-disabled": () => String(state().busy),
                            hidden: () => !state().more,
                            onclick: goOn,
                        },
                        "More",
                    ),
                ),
            ),
            () => chosen() && recordDetail(chosen(), format, close),
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

function summary({ busy, searched, more, error }, shown, start) {
    if (start === "live") {
        const held = paused() ? "Held still: what comes in is shown when you go on. " : "";
        return held + (searched ? `${plural(shown, "record")} shown of ${count(searched)} that came in.` : "");
    }
    if (!searched) return busy ? "Reading…" : "";
    const rest = busy ? ", reading on…" : more || error ? "." : ": that is all.";
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
