// Where the reader is: the part of the address after #, as a path and a query. Views are left before others are shown.

import { replace } from "./dom.js";
import { scope, signal } from "./reactive.js";

export const place = signal(current());

function current() {
    const [path, query] = location.hash.slice(1).split("?");
    return { path: path || "/topics", query: new URLSearchParams(query ?? "") };
}

addEventListener("hashchange", () => place.set(current()));

export const href = (...steps) => `#/${steps.map(encodeURIComponent).join("/")}`;

export const go = (...steps) => {
    location.hash = href(...steps);
};

/** Change what the address says after "?" without going anywhere. */
export function remember(query) {
    const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const text = new URLSearchParams(kept).toString();
    history.replaceState(null, "", `#${current().path}${text ? `?${text}` : ""}`);
}

/** Show in `outlet` what `routes` have for the place. A route is a list of steps, a step that begins with ":" any. */
export function serve(outlet, routes, otherwise) {
    let leave = () => {};
    let shown = null;
    return () => {
        const { path, query } = place();
        if (path === shown) return;
        shown = path;
        leave();
        const [view, params] = find(routes, stepsOf(path)) ?? [otherwise, {}];
        const [node, end] = scope(() => view(params, query));
        leave = end;
        replace(outlet, node);
        scrollTo(0, 0);
    };
}

/** None of an address that is not written as addresses are. */
function stepsOf(path) {
    try {
        return path.split("/").filter(Boolean).map(decodeURIComponent);
    } catch {
        return [];
    }
}

function find(routes, steps) {
    for (const [pattern, view] of routes) {
        const wanted = pattern.split("/").filter(Boolean);
        if (wanted.length === steps.length && wanted.every((each, i) => each[0] === ":" || each === steps[i])) {
            return [view, Object.fromEntries(wanted.map((each, i) => [each.slice(1), steps[i]]))];
        }
    }
    return null;
}
