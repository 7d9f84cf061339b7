// All topics: how large, how busy, and what each of them keeps.

import { throughput } from "../charts/throughput.js";
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { NOTHING, ago, brief, bytes, count, perSecond, plural, retention } from "../core/format.js";
import { load } from "../core/load.js";
import { chip, empty, figure, loadError, titled } from "../core/parts.js";
import { signal } from "../core/reactive.js";
import { href, remember } from "../core/router.js";
import { table } from "../core/table.js";
import { createTopic } from "./create_topic.js";

const REFRESH_MS = 5000;

export function topicsView(_, query) {
    titled("Topics");
    const loaded = load(api.topics, REFRESH_MS);
    const search = signal(query.get("search") ?? "");
    const internal = signal(query.get("internal") === "yes");
    const keep = () => remember({ search: search.peek(), internal: internal.peek() ? "yes" : null });

    const counted = () => (loaded.data() ?? []).filter((each) => internal() || !each.internal);
    const rows = () => {
        const words = search().toLowerCase().split(/\s+/).filter(Boolean);
        return counted().filter((each) => words.every((word) => each.name.toLowerCase().includes(word)));
    };
    const total = (value) => counted().reduce((sum, each) => sum + value(each), 0);

    return h(
        "div.view",
        h(
            "header.title",
            h("h1", "Topics"),
            h("button.primary", { type: "button", onclick: () => createTopic(loaded.refresh) }, "Create topic"),
        ),
        h(
            "dl.figures",
            figure("Topics", () => (loaded.data() ? count(counted().length) : NOTHING)),
            figure("Records", () => (loaded.data() ? brief(total((each) => each.records)) : NOTHING)),
            figure("Size", () => (loaded.data() ? bytes(total((each) => each.bytes)) : NOTHING)),
            figure("In", () => perSecond(total((each) => each.per_second.records_in))),
            figure("Out", () => perSecond(total((each) => each.per_second.records_out))),
        ),
        throughput(null),
        loadError(loaded),
        h(
            "div.bar",
            h("input", {
                type: "search",
                placeholder: "Search topics",
                "aria-label": "Search topics",
                value: search.peek(),
                oninput: (event) => (search.set(event.target.value), keep()),
            }),
            h(
                "label.check",
                h("input", {
                    type: "checkbox",
                    checked: internal.peek(),
                    onchange: (event) => (internal.set(event.target.checked), keep()),
                }),
                "Internal",
            ),
            h("span.aside", () => (loaded.data() ? plural(rows().length, "topic") : "")),
        ),
        table({
            label: "Topics",
            columns: COLUMNS,
            rows,
            key: (row) => row.name,
            sort: { by: "name", descending: false },
            empty: () =>
                !loaded.data()
                    ? null
                    : counted().length
                      ? empty(
                            "No topic fits",
                            `None of ${plural(counted().length, "topic")} has “${search()}” in its name.`,
                        )
                      : empty(
                            "No topics yet",
                            "A topic is made by its first record, or by Create topic above. From a terminal, ",
                            h("code", "lakelog produce orders"),
                            " makes one of the lines that it is given.",
                        ),
        }),
    );
}

const COLUMNS = [
    {
        id: "name",
        label: "Topic",
        header: true,
        value: (row) => row.name,
        cell: (row) => h("a", { href: href("topics", row.name) }, row.name),
    },
    {
        id: "partitions",
        label: "Parts",
        number: true,
        width: "4.5rem",
        narrow: false,
        value: (row) => row.partitions,
        cell: (row) => count(row.partitions),
    },
    {
        id: "records",
        label: "Records",
        number: true,
        width: "7.5rem",
        value: (row) => row.records,
        cell: (row) => brief(row.records),
    },
    {
        id: "bytes",
        label: "Size",
        number: true,
        width: "7rem",
        value: (row) => row.bytes,
        cell: (row) => bytes(row.bytes),
    },
    {
        id: "in",
        label: "In",
        number: true,
        width: "6rem",
        value: (row) => row.per_second.records_in,
        cell: (row) => rate(row.per_second.records_in),
    },
    {
        id: "out",
        label: "Out",
        number: true,
        width: "6rem",
        narrow: false,
        value: (row) => row.per_second.records_out,
        cell: (row) => rate(row.per_second.records_out),
    },
    {
        id: "segments",
        label: "Files",
        number: true,
        width: "5rem",
        narrow: false,
        value: (row) => row.segments,
        cell: (row) => count(row.segments),
    },
    {
        id: "policy",
        label: "Policy",
        width: "10rem",
        narrow: false,
        value: (row) => row.cleanup_policy,
        cell: (row) => row.cleanup_policy.split(",").map((each) => chip(each, each)),
    },
    {
        id: "keeps",
        label: "Keeps",
        width: "9.5rem",
        narrow: false,
        value: (row) => (row.cleanup_policy.includes("delete") && row.retention_ms >= 0 ? row.retention_ms : Infinity),
        cell: (row) => h("span.muted", { title: retention(row) }, retention(row)),
    },
    {
        id: "newest",
        label: "Newest record",
        width: "10rem",
        narrow: false,
        value: (row) => row.max_timestamp_ms,
        cell: (row) => h("span.muted", ago(row.max_timestamp_ms)),
    },
];

function rate(value) {
    const text = perSecond(value);
    return h("span", { class: text === NOTHING ? "faint" : "busy" }, text);
}
