// One group: its members, what each reads, how far behind it is in every partition and how that went lately.

import { lineChart } from "../charts/lines.js";
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { NOTHING, brief, count } from "../core/format.js";
import { load } from "../core/load.js";
import { chip, confirmByName, empty, figure, loadError, panel, say, titled } from "../core/parts.js";
import { derived, effect } from "../core/reactive.js";
import { go, href } from "../core/router.js";
import { table } from "../core/table.js";
import { BEHIND, stateChip } from "./groups.js";
import { resetOffsets } from "./reset_offsets.js";

const REFRESH_MS = 5000;
const LINES_MOST = 7;

export function groupView({ group }) {
    titled(group);
    const loaded = load(() => api.group(group), REFRESH_MS);
    const data = loaded.data;
    const chart = lineChart("Records behind, by partition", 200);
    const noted = derived(() => Boolean(data()?.history.lags.length)); // the chart stays, and with it its focus
    effect(() => noted() && chart.draw({ ...seriesOf(data()), format: brief }));
    return h(
        "div.view",
        h(
            "header.title",
            h("nav.crumbs", { "aria-label": "Up" }, h("a", { href: href("groups") }, "Groups"), " / "),
            h("h1", group),
            () => data() && stateChip(data().state),
            h(
                "div.buttons",
                h(
                    "button",
                    { type: "button", onclick: () => resetOffsets(group, data.peek(), loaded.refresh) },
                    "Reset offsets",
                ),
                h("button.danger", { type: "button", onclick: () => remove(group) }, "Delete"),
            ),
        ),
        loadError(loaded),
        h(
            "dl.figures",
            figure("Members", () => count(data()?.members.length)),
            figure("Records behind", () =>
                data() ? count(data().partitions.reduce((sum, each) => sum + (each.lag ?? 0), 0)) : NOTHING,
            ),
            figure("Partitions", () => count(data()?.partitions.length)),
            figure("Assignor", () => data()?.protocol || NOTHING),
            figure("Generation", () => count(data()?.generation)),
        ),
        panel("Records behind, over time", () =>
            noted()
                ? chart.node
                : empty(
                      "Nothing to draw yet",
                      "How far behind a group is, is noted every ten seconds from its first commit on.",
                  ),
        ),
        panel(
            h("h2", "Members"),
            table({
                label: "Members",
                columns: MEMBERS,
                rows: () => data()?.members ?? [],
                key: (row) => row.member_id,
                empty: () =>
                    data() && empty("Nobody is in the group now", "What it has committed stays, until it expires."),
            }),
        ),
        panel(
            h("h2", "Partitions"),
            table({
                label: "Partitions",
                columns: PARTITIONS,
                rows: () => data()?.partitions ?? [],
                key: (row) => `${row.topic}:${row.partition}`,
                sort: { by: "partition", descending: false },
                empty: () =>
                    data() &&
                    empty("Nothing committed", "The group has no offsets, and nobody in it reads anything yet."),
            }),
        ),
    );
}

/** The partitions that are furthest behind now, and all together, from when the first of them was known. */
function seriesOf({ history: whole }) {
    const start = Math.min(...whole.lags.map((each) => each.lag.findIndex((value) => value !== null)));
    const history = {
        times_ms: whole.times_ms.slice(start),
        lags: whole.lags.map((each) => ({ ...each, lag: each.lag.slice(start) })),
    };
    const latest = (each) => each.lag.findLast((value) => value !== null) ?? 0;
    const most = [...history.lags].sort((a, b) => latest(b) - latest(a)).slice(0, LINES_MOST);
    const lines = most.map((each, index) => ({
        name: `${each.topic}-${each.partition}`,
        values: each.lag,
        tone: index + 2,
    }));
    if (history.lags.length < 2)
        return { times: history.times_ms, series: lines.map((each) => ({ ...each, tone: 1 })) };
    const all = history.times_ms.map((_, index) => {
        const known = history.lags.map((each) => each.lag[index]).filter((value) => value !== null);
        return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
    });
    return { times: history.times_ms, series: [{ name: "all", values: all, tone: 1 }, ...lines] };
}

const MEMBERS = [
    {
        id: "client",
        label: "Client",
        width: "14rem",
        header: true,
        value: (row) => row.client_id,
        cell: (row) => row.client_id || h("span.faint", "without a name"),
    },
    {
        id: "host",
        label: "Host",
        width: "9rem",
        narrow: false,
        value: (row) => row.client_host,
        cell: (row) => h("span.muted", row.client_host || NOTHING),
    },
    {
        id: "reads",
        label: "Reads",
        cell: (row) => (row.assignment.length ? assigned(row.assignment) : h("span.faint", "nothing")),
    },
    {
        id: "id",
        label: "Member id",
        width: "16rem",
        narrow: false,
        cell: (row) => h("code", { title: row.member_id }, row.instance_id ?? row.member_id),
    },
];

function assigned(assignment) {
    const topics = Map.groupBy ? Map.groupBy(assignment, (each) => each.topic) : grouped(assignment);
    return [...topics].map(([topic, places]) => chip(`${topic} ${places.map((each) => each.partition).join(" ")}`));
}

function grouped(assignment) {
    const topics = new Map();
    for (const each of assignment) topics.set(each.topic, [...(topics.get(each.topic) ?? []), each]);
    return topics;
}

const PARTITIONS = [
    {
        id: "partition",
        label: "Partition",
        header: true,
        value: (row) => `${row.topic} ${row.partition}`,
        cell: (row) => [h("a", { href: href("topics", row.topic) }, row.topic), ` ${row.partition}`],
    },
    BEHIND,
    {
        id: "committed",
        label: "Committed",
        number: true,
        width: "8rem",
        value: (row) => row.committed,
        cell: (row) => count(row.committed),
    },
    {
        id: "current",
        label: "Reads at",
        number: true,
        width: "8rem",
        narrow: false,
        value: (row) => row.current,
        cell: (row) => count(row.current),
    },
    {
        id: "end",
        label: "End",
        number: true,
        width: "8rem",
        value: (row) => row.end_offset,
        cell: (row) => count(row.end_offset),
    },
    {
        id: "start",
        label: "Begins at",
        number: true,
        width: "7rem",
        narrow: false,
        value: (row) => row.log_start_offset,
        cell: (row) => count(row.log_start_offset),
    },
    {
        id: "client",
        label: "Read by",
        width: "12rem",
        narrow: false,
        value: (row) => row.client_id,
        cell: (row) => (row.member_id ? row.client_id || row.member_id : h("span.faint", "nobody")),
    },
];

function remove(group) {
    confirmByName("Delete group", group, "The group is forgotten, with all that it has committed.", async () => {
        await api.deleteGroup(group);
        say(`Group ${group} is deleted.`);
        go("groups");
    });
}
