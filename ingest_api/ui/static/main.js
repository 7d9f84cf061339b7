// The frame around the views: navigation, theme, keys.

import { api } from "./core/api.js";
import { h } from "./core/dom.js";
import { paused } from "./core/load.js";
import { openDialog } from "./core/parts.js";
import { effect, signal } from "./core/reactive.js";
import { go, href, place, serve } from "./core/router.js";
import { nextTheme, theme } from "./core/theme.js";
import { descriptionView } from "./views/description.js";
import { groupView } from "./views/group.js";
import { groupsView } from "./views/groups.js";
import { jobsView } from "./views/jobs.js";
import { lostView } from "./views/lost.js";
import { topicView } from "./views/topic.js";
import { topicsView } from "./views/topics.js";

const SECTIONS = [
    ["topics", "Topics"],
    ["groups", "Groups"],
    ["jobs", "Jobs"],
    ["api", "API"],
];
const ROUTES = [
    ["/topics", topicsView],
    ["/topics/:topic", topicView],
    ["/topics/:topic/:tab", topicView],
    ["/groups", groupsView],
    ["/groups/:group", groupView],
    ["/jobs", jobsView],
    ["/api", descriptionView],
];
const KEYS = [
    ["/", "Search"],
    ["g t", "Topics"],
    ["g g", "Groups"],
    ["g j", "Jobs"],
    ["g a", "API"],
    ["↑ ↓", "From row to row"],
    ["← →", "Read a plot, once it has the focus"],
    ["p", "Hold still, or go on"],
    ["Esc", "Close"],
    ["?", "This list"],
];
const THEMES = { auto: "◐", light: "☀", dark: "☾" };

const cluster = signal(null);
api.cluster().then(cluster.set, () => {});

const outlet = h("main", { id: "content", tabindex: "-1" });
document.body.append(
    h("a.skip", { href: "#content", onclick: (event) => (event.preventDefault(), outlet.focus()) }, "Skip to content"),
    h(
        "header.top",
        h("a.brand", { href: href("topics") }, logo(), h("b", "Lakelog")),
        h(
            "nav",
            { "aria-label": "Sections" },
            SECTIONS.map(([id, label]) =>
                h(
                    "a",
                    { href: href(id), "aria-current": () => (place().path.split("/")[1] === id ? "page" : null) },
                    label,
                ),
            ),
        ),
        h("span.cluster", { title: "The cluster, and the gateway's version" }, () =>
            cluster() ? [h("i", cluster().id), ` ${cluster().version}`] : "",
        ),
        h(
            "button.plain",
            {
                type: "button",
                class: "hold",
                "aria-pressed": () => String(paused()),
                title: "Hold still (p)",
                onclick: () => paused.set(!paused.peek()),
            },
            () => (paused() ? "Held" : "Live"),
        ),
        h(
            "button.plain",
            {
                type: "button",
                "aria-label": () => `Colours: ${theme()}`,
                title: () => `Colours: ${theme()}`,
                onclick: nextTheme,
            },
            () => THEMES[theme()],
        ),
        h("button.plain", { type: "button", "aria-label": "Keys", title: "Keys (?)", onclick: showKeys }, "?"),
    ),
    outlet,
);
effect(serve(outlet, ROUTES, lostView));

let before = "";
addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select")) {
        if (event.key === "Escape") event.target.blur();
        return;
    }
    const section = before === "g" && { t: "topics", g: "groups", j: "jobs", a: "api" }[event.key];
    before = before === "g" ? "" : event.key;
    if (section) go(section);
    else if (event.key === "?") showKeys();
    else if (event.key === "p") paused.set(!paused.peek());
    else if (event.key === "/") {
        const search = document.querySelector("input[type=search]");
        if (search) {
            event.preventDefault();
            search.focus();
        }
    }
});

function showKeys() {
    openDialog("Keys", () =>
        h(
            "dl.keys",
            KEYS.map(([key, does]) => [h("dt", h("kbd", key)), h("dd", does)]),
        ),
    );
}

function logo() {
    return h(
        "svg.logo",
        { viewBox: "0 0 24 24", width: "22", height: "22", "aria-hidden": "true" },
        [8.5, 13, 17.5].map((y, index) =>
            h("path", { d: `M3 ${y}c3-2 6-2 9 0s6 2 9 0`, opacity: String(1 - index * 0.28) }),
        ),
    );
}
