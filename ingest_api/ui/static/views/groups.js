// Consumer groups: how they do, and how far behind they are.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { NOTHING, brief, count, plural } from "../core/format.js";
import { load } from "../core/load.js";
import { chip, empty, figure, loadError, titled } from "../core/parts.js";
import { signal } from "../core/reactive.js";
import { href, remember } from "../core/router.js";
import { table } from "../core/table.js";

const REFRESH_MS = 5000;

export function groupsView(_, query) {
    titled("Groups");
    const loaded = load(api.groups, REFRESH_MS);
    const search = signal(query.get("search") ?? "");
    const all = () => loaded.data() ?? [];
    const rows = () =>
        all().filter((each) =>
            `${each.group_id} ${each.topics.join(" ")}`.toLowerCase().includes(search().toLowerCase()),
        );
    return h(
        "div.view",
        h("header.title", h("h1", "Groups")),
        h(
            "dl.figures",
            figure("Groups", () => (loaded.data() ? count(all().length) : NOTHING)),
            figure("Members", () =>
                loaded.data() ? count(all().reduce((sum, each) => sum + each.members, 0)) : NOTHING,
            ),
            figure("Records behind", () =>
                loaded.data() ? brief(all().reduce((sum, each) => sum + each.lag, 0)) : NOTHING,
            ),
        ),
        loadError(loaded),
        h(
            "div.bar",
            h("input", {
                type: "search",
                placeholder: "Search groups and topics",
                "aria-label": "Search groups and topics",
                value: search.peek(),
                oninput: (event) => (search.set(event.target.value), remember({ search: event.target.value })),
            }),
            h("span.aside", () => (loaded.data() ? plural(rows().length, "group") : "")),
        ),
        table({
            label: "Groups",
            columns: COLUMNS,
            rows,
            key: (row) => row.group_id,
            sort: { by: "group", descending: false },
            empty: () =>
                loaded.data() &&
                (all().length
                    ? empty(
                          "No group fits",
                          `None of ${plural(all().length, "group")} has “${search()}” in its name or topics.`,
                      )
                    : empty(
                          "No groups yet",
                          "A group is there once a consumer joins it or commits an offset under its name.",
                      )),
        }),
    );
}

export const BEHIND = {
    id: "lag",
    label: "Behind",
    number: true,
    width: "7rem",
    value: (row) => row.lag,
    cell: (row) => h("span", { class: row.lag ? "busy" : "faint" }, count(row.lag)),
};

const COLUMNS = [
    {
        id: "group",
        label: "Group",
        header: true,
        value: (row) => row.group_id,
        cell: (row) => h("a", { href: href("groups", row.group_id) }, row.group_id),
    },
    { id: "state", label: "State", width: "10rem", value: (row) => row.state, cell: (row) => stateChip(row.state) },
    {
        id: "members",
        label: "Members",
        number: true,
        width: "6rem",
        value: (row) => row.members,
        cell: (row) => count(row.members),
    },
    BEHIND,
    {
        id: "topics",
        label: "Topics",
        narrow: false,
        width: "38%",
        value: (row) => row.topics.join(),
        cell: (row) => row.topics.map((each) => [h("a", { href: href("topics", each) }, each), " "]),
    },
];

const TONES = { Stable: "good", Empty: "quiet", Dead: "bad", PreparingRebalance: "warm", CompletingRebalance: "warm" };

export function stateChip(state) {
    return chip(state.replace(/(?<=[a-z])(?=[A-Z])/g, " "), TONES[state] ?? "");
}
