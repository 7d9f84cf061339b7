// A table that draws only the rows that can be seen, however many there are. Sorted by its headings; up and down keys
// go from row to row.

import { append, h, replace } from "./dom.js";
import { effect, onEnd, signal } from "./reactive.js";

const ROW_PIXELS = 37; // as in parts.css
const SPARE_ROWS = 12;

/**
 * columns: {id, label, cell(row), value(row) to sort by, width, number, narrow: false to hide it on narrow screens}
 * rows: a function that gives the rows and is watched; key(row): what makes a row itself; empty: shown without rows
 */
export function table({ label, columns, rows, key, sort, empty, choose, chosen }) {
    const order = signal(sort);
    const top = h("tr.spacer", { "aria-hidden": "true" });
    const bottom = h("tr.spacer", { "aria-hidden": "true" });
    const body = h("tbody", top, bottom);
    const none = h("div.empty");
    const node = h(
        "div.table-frame",
        h(
            "table.data",
            { "aria-label": label },
            h(
                "colgroup",
                columns.map((each) => h("col", { class: shown(each), style: { width: each.width ?? "auto" } })),
            ),
            h(
                "thead",
                h(
                    "tr",
                    columns.map((each) => heading(each, order)),
                ),
            ),
            body,
        ),
        none,
    );

    let sorted = [];
    let range = [0, 0];

    function draw() {
        range = visible(body, sorted.length);
        const active = document.activeElement;
        const held = body.contains(active) && active.closest("tr");
        const place = held && controls(held).indexOf(active);
        const drawn = sorted.slice(...range).map((row, index) => line(row, range[0] + index));
        top.style.height = `${range[0] * ROW_PIXELS}px`;
        bottom.style.height = `${(sorted.length - range[1]) * ROW_PIXELS}px`;
        body.replaceChildren(top, ...drawn, bottom);
        const again = held && drawn.find((each) => each.dataset.key === held.dataset.key);
        // Where it has been scrolled away it is not to draw the page back.
        if (again) controls(again)[place]?.focus({ preventScroll: true });
    }

    function line(row, index) {
        const name = String(key(row));
        return h(
            "tr",
            {
                "data-key": name,
                "aria-rowindex": index + 2,
                class: `${choose ? "choosable" : ""} ${chosen?.() === name ? "chosen" : ""}`,
                ...(choose ? { onclick: () => choose(row) } : {}),
            },
            columns.map((each) => {
                const cell = h(each.header ? "th" : "td", { class: `${each.number ? "number" : ""} ${shown(each)}` });
                if (each.header) cell.setAttribute("scope", "row");
                append(cell, each.cell(row));
                return cell;
            }),
        );
    }

    effect(() => {
        const all = rows();
        chosen?.();
        sorted = sortedBy(
            all,
            columns.find((each) => each.id === order()?.by),
            order()?.descending,
        );
        node.firstChild.setAttribute("aria-rowcount", sorted.length + 1);
        node.firstChild.hidden = sorted.length === 0;
        replace(none, sorted.length === 0 ? empty : null);
        draw();
    });

    const moved = () => {
        const [first, last] = visible(body, sorted.length);
        if (first !== range[0] || last !== range[1]) draw();
    };
    addEventListener("scroll", moved, { passive: true });
    addEventListener("resize", moved);
    // The table has no place yet when it is made.
    requestAnimationFrame(moved);
    onEnd(() => {
        removeEventListener("scroll", moved);
        removeEventListener("resize", moved);
    });
    body.addEventListener("keydown", stepThroughRows);
    return node;
}

function heading(column, order) {
    const sorting = () => (order()?.by === column.id ? (order().descending ? "descending" : "ascending") : null);
    const toggle = () => {
        const same = order.peek()?.by === column.id;
        order.set({ by: column.id, descending: same ? !order.peek().descending : Boolean(column.number) });
    };
    return h(
        "th",
        { scope: "col", class: `${column.number ? "number" : ""} ${shown(column)}`, "aria-sort": sorting },
        column.value
            ? h("button", { type: "button", onclick: toggle, title: column.title }, column.label)
            : column.label,
    );
}

const shown = (column) => (column.narrow === false ? "wide-only" : "");

function sortedBy(rows, column, descending) {
    if (!column) return rows;
    const direction = descending ? -1 : 1;
    return [...rows].sort((a, b) => direction * compare(column.value(a), column.value(b)));
}

function compare(a, b) {
    if (a === null || b === null) return (a !== null) - (b !== null);
    return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
}

function visible(body, total) {
    const above = -body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(above / ROW_PIXELS) - SPARE_ROWS);
    const last = Math.ceil((above + innerHeight) / ROW_PIXELS) + SPARE_ROWS;
    return [Math.min(first, total), Math.max(0, Math.min(last, total))];
}

const controls = (row) => [...row.querySelectorAll("a, button")];

function stepThroughRows(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const row = step && event.target.closest("tr")?.[step];
    const [other] = row ? controls(row) : [];
    if (other) {
        event.preventDefault();
        other.focus();
        other.scrollIntoView({ block: "nearest" });
    }
}
