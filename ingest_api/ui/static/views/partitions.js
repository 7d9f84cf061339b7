// Partitions, and the files of each along the offset axis.

import { STATES, strip } from "../charts/strip.js";
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { bytes, count, moment, plural } from "../core/format.js";
import { load } from "../core/load.js";
import { chip, empty, loadError, panel } from "../core/parts.js";
import { derived, effect, signal } from "../core/reactive.js";
import { table } from "../core/table.js";

const REFRESH_MS = 10_000;
const MEANINGS = {
    active: "still written to",
    dirty: "sealed, not compacted yet",
    sealed: "full or old: never written again",
    clean: "compacted",
};

export function partitionsTab(topic, described) {
    const loaded = load(() => api.segments(topic), REFRESH_MS);
    const chosen = signal({ partition: 0, file: null }); // a file by its path: others come and go around it
    const pointed = signal(null);
    const part = () => loaded.data()?.[chosen().partition];
    const used = () => STATES.filter((state) => loaded.data()?.some((each) => each.state.includes(state)));
    const total = derived(() => loaded.data()?.length ?? 0);
    effect(() => {
        const grown = described.data()?.partitions.length > loaded.data.peek()?.length;
        if (grown) loaded.refresh();
    });

    return h(
        "div",
        loadError(loaded),
        panel(
            h("h2", "Files along the offsets"),
            h("p.legend", () =>
                used().map((state) => h("span", { class: `segment-${state}` }, `${state}: ${MEANINGS[state]}`)),
            ),
            () => total() > 0 && partitionList(total(), loaded.data, chosen, pointed),
            h("p.pointed", { "aria-live": "off" }, () =>
                pointed() ? fileInWords(...pointed()) : "Point at a file to see what is in it.",
            ),
        ),
        panel(
            h("h2", () => (part() ? `Files of partition ${part().partition}` : "Files")),
            table({
                label: "Files",
                columns: COLUMNS,
                rows: () => (part() ? rowsOf(part()) : []),
                key: (row) => row.file,
                sort: { by: "base", descending: true },
                chosen: () => chosen().file,
                choose: (row) => chosen.set({ partition: row.partition, file: row.file }),
                empty: () =>
                    loaded.data() &&
                    empty("No files", "Nothing has been written to this partition, or all of it has expired."),
            }),
        ),
    );
}

/** The rows are made once and watch what they say, so that a refresh leaves the focus where it is. */
function partitionList(total, data, chosen, pointed) {
    const axis = derived(() => {
        const from = Math.min(...data().map((each) => each.log_start_offset));
        const to = Math.max(...data().map((each) => each.high_watermark));
        return { from, to, span: Math.max(1, to - from) };
    });
    return h(
        "div.partitions",
        h(
            "div.head",
            ["Partition", "First offset", "Next offset", "Size", "Files"].map((each) => h("span", each)),
            h("span", () => `${count(axis().from)} to ${count(axis().to)}`),
        ),
        Array.from({ length: total }, (_, partition) => {
            const part = () => data()[partition];
            const isChosen = () => chosen().partition === partition;
            const choose = (file) => chosen.set({ partition, file });
            return h(
                "div.partition",
                { class: () => (isChosen() ? "chosen" : "") },
                h("button.link", { type: "button", onclick: () => choose(null) }, String(partition)),
                h("span", () => count(part().log_start_offset)),
                h("span", () => count(part().high_watermark)),
                h("span", () => bytes(part().bytes.reduce((sum, size) => sum + size, 0))),
                h("span", () => count(part().bytes.length)),
                strip(part, {
                    axis,
                    point: (index) => pointed.set(index === null ? null : [part(), index]),
                    choose: (index) => choose(index === null ? null : part().file[index]),
                    chosen: () => (isChosen() ? chosen().file : null),
                }),
            );
        }),
    );
}

const rowsOf = (part) => part.file.map((_, index) => rowAt(part, index));

function rowAt(part, index) {
    return {
        file: part.file[index],
        partition: part.partition,
        base: part.base_offset[index],
        end: part.end_offset[index],
        records: part.records[index],
        bytes: part.bytes[index],
        newest: part.max_timestamp_ms[index],
        state: part.state[index],
    };
}

function fileInWords(part, index) {
    const row = rowAt(part, index);
    const figures = [
        `offsets ${count(row.base)} to ${count(row.end - 1)}`,
        plural(row.records, "record"),
        bytes(row.bytes),
        `newest ${moment(row.newest)}`,
    ];
    return [chip(row.state, `segment-${row.state}`), ` ${row.file}: ${figures.join(", ")}`];
}

const COLUMNS = [
    {
        id: "base",
        label: "First offset",
        number: true,
        width: "8rem",
        value: (row) => row.base,
        cell: (row) => h("button.link", { type: "button" }, count(row.base)),
    },
    {
        id: "end",
        label: "Last",
        number: true,
        width: "8rem",
        narrow: false,
        value: (row) => row.end,
        cell: (row) => count(row.end - 1),
    },
    {
        id: "records",
        label: "Records",
        number: true,
        width: "6.5rem",
        value: (row) => row.records,
        cell: (row) => count(row.records),
    },
    {
        id: "bytes",
        label: "Size",
        number: true,
        width: "6.5rem",
        value: (row) => row.bytes,
        cell: (row) => bytes(row.bytes),
    },
    {
        id: "state",
        label: "State",
        width: "6rem",
        value: (row) => row.state,
        cell: (row) => chip(row.state, `segment-${row.state}`),
    },
    {
        id: "newest",
        label: "Newest record",
        width: "14.5rem",
        narrow: false,
        value: (row) => row.newest,
        cell: (row) => h("span.muted", moment(row.newest)),
    },
    {
        id: "file",
        label: "File",
        narrow: false,
        value: (row) => row.file,
        cell: (row) => h("code", { title: row.file }, row.file),
    },
];
