// Jobs: what is due and why, what ran, and what it saved.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { NOTHING, ago, bytes, count, moment, plural } from "../core/format.js";
import { load } from "../core/load.js";
import { chip, empty, figure, loadError, panel, titled } from "../core/parts.js";
import { href } from "../core/router.js";
import { table } from "../core/table.js";

const REFRESH_MS = 15_000;

export function jobsView() {
    titled("Jobs");
    const loaded = load(api.jobs, REFRESH_MS);
    const data = loaded.data;
    const saved = (what) => data()?.runs.reduce((sum, each) => sum + each[`${what}_before`] - each[`${what}_after`], 0);
    const failed = () => data()?.runs.filter((each) => each.error).length;
    return h(
        "div.view",
        h("header.title", h("h1", "Jobs")),
        h(
            "dl.figures",
            figure("Due", () => (data() ? count(data().due.length) : NOTHING)),
            figure(
                "Ran",
                () => (data() ? count(data().runs.length) : NOTHING),
                "Rows of the last 500 in __maintenance",
            ),
            figure("Failed", () => (data() ? count(failed()) : NOTHING)),
            figure("Files saved", () => (data() ? count(saved("files")) : NOTHING)),
            figure("Bytes saved", () => (data() ? bytes(saved("bytes")) : NOTHING)),
            figure("Records let go", () => (data() ? count(saved("records")) : NOTHING)),
        ),
        loadError(loaded),
        panel(
            h("h2", "Due"),
            table({
                label: "Due",
                columns: DUE,
                rows: () =>
                    data() ? [...data().due, ...data().waiting.map((each) => ({ ...each, job: "waits" }))] : [],
                key: (row) => `${row.topic}:${row.partition}:${row.job}`,
                sort: { by: "topic", descending: false },
                empty: () =>
                    data() &&
                    empty(
                        "Nothing is due",
                        `All of ${plural(data().partitions, "partition")} are as clean as their topics ask for. `,
                        h("code", "lakelog jobs run all"),
                        " runs the jobs by hand.",
                    ),
            }),
        ),
        panel(
            h("h2", "What ran"),
            table({
                label: "What ran",
                columns: RUNS,
                rows: () => data()?.runs ?? [],
                key: (row) => `${row.run}:${row.job}:${row.topic}:${row.partition}`,
                sort: { by: "when", descending: true },
                empty: () =>
                    data() &&
                    empty(
                        "Nothing ran yet",
                        "Each run of a job leaves a row per partition in the table __maintenance.",
                    ),
            }),
        ),
    );
}

const where = (row) => (row.partition < 0 ? "all" : String(row.partition));
const change = (before, after, unit) =>
    h("span", before === after ? unit(after) : [h("span.muted", `${unit(before)} → `), unit(after)]);

const TOPIC = {
    id: "topic",
    label: "Topic",
    header: true,
    width: "22%",
    value: (row) => row.topic,
    cell: (row) => h("a", { href: href("topics", row.topic, "partitions") }, row.topic),
};
const PARTITION = {
    id: "partition",
    label: "Part",
    number: true,
    width: "4rem",
    value: (row) => row.partition,
    cell: where,
};

const DUE = [
    TOPIC,
    PARTITION,
    {
        id: "job",
        label: "Job",
        width: "8rem",
        value: (row) => row.job,
        cell: (row) => chip(row.job, row.job === "waits" ? "quiet" : "warm"),
    },
    {
        id: "reason",
        label: "Why",
        value: (row) => row.reason,
        cell: (row) => h("span", { title: row.reason }, row.reason),
    },
];

const RUNS = [
    {
        id: "when",
        label: "When",
        width: "9.5rem",
        value: (row) => row.started_at_ms,
        cell: (row) => h("span.muted", { title: moment(row.started_at_ms) }, ago(row.started_at_ms)),
    },
    {
        id: "job",
        label: "Job",
        width: "7.5rem",
        value: (row) => row.job,
        cell: (row) => chip(row.job, row.error ? "bad" : "good"),
    },
    { ...TOPIC, width: "16%" },
    { ...PARTITION, narrow: false },
    {
        id: "files",
        label: "Files",
        number: true,
        width: "8rem",
        narrow: false,
        value: (row) => row.files_before - row.files_after,
        cell: (row) => change(row.files_before, row.files_after, count),
    },
    {
        id: "bytes",
        label: "Size",
        number: true,
        width: "11rem",
        value: (row) => row.bytes_before - row.bytes_after,
        cell: (row) => change(row.bytes_before, row.bytes_after, bytes),
    },
    {
        id: "seconds",
        label: "Took",
        number: true,
        width: "5rem",
        narrow: false,
        value: (row) => row.seconds,
        cell: (row) => `${row.seconds.toFixed(1)} s`,
    },
    {
        id: "reason",
        label: "Why, or what went wrong",
        narrow: false,
        value: (row) => row.error ?? row.reason,
        cell: (row) =>
            h(
                "span",
                { class: row.error ? "wrong" : "muted", title: row.error ?? row.reason },
                row.error ?? row.reason,
            ),
    },
];
