// Small parts that the views share.

import { h } from "./dom.js";
import { effect, scope, signal } from "./reactive.js";

/** What went wrong, as the API says it. */
export function errorNote(error) {
    if (!error) return null;
    const label = error.label ?? "Fault in this page";
    return h("div.note.bad", { role: "alert" }, h("strong", label), h("span", error.message));
}

export const loadError = (loaded) => () => errorNote(loaded.error());

export function chip(text, kind = "") {
    return h("span.chip", { class: kind }, text);
}

/** A figure with its name; the figure is watched. */
export function figure(label, value, hint) {
    return h("div.figure", { title: hint }, h("dt", label), h("dd", value));
}

export function empty(title, ...more) {
    return h("div.nothing", h("h3", title), h("p", more));
}

export function panel(title, ...content) {
    const heading = typeof title === "string" ? h("h2", title) : title;
    return h("section.panel", h("header", heading), ...content);
}

/** Choices of which one holds, as buttons in a row. */
export function segmented(label, options, choice) {
    return h(
        "div.segmented",
        { role: "group", "aria-label": label },
        options.map(([value, text]) =>
            h(
                "button",
                { type: "button", "aria-pressed": () => String(choice() === value), onclick: () => choice.set(value) },
                text,
            ),
        ),
    );
}

let fieldCount = 0;

export function field(label, input, hint) {
    fieldCount += 1;
    input.id ||= `field-${fieldCount}`;
    const described = hint && h("small", { id: `${input.id}-hint` }, hint);
    if (described) input.setAttribute("aria-describedby", described.id);
    return h("div.field", h("label", { for: input.id }, label), input, described);
}

export function select(options, value) {
    return h(
        "select",
        options.map(([each, text]) => h("option", { value: each, selected: each === value }, text)),
    );
}

/** A form that can fail: it says what the API said, and can be sent once at a time. */
export function form({ fields, action, danger, submit, cancel }) {
    const error = signal(null);
    const busy = signal(false);
    return h(
        "form",
        {
            onsubmit: async (event) => {
                event.preventDefault();
                if (busy.peek()) return;
                busy.set(true);
                error.set(null);
                try {
                    await submit();
                } catch (problem) {
                    error.set(problem);
                } finally {
                    busy.set(false);
                }
            },
        },
        h("div.fields", fields),
        () => errorNote(error()),
        h(
            "div.actions",
            cancel && h("button", { type: "button", onclick: cancel }, "Cancel"),
            // Not disabled, which would take the focus from it.
            h(
                "button.primary",
                { type: "submit", class: danger ? "danger" : "", "aria-disabled": () => String(busy()) },
                action,
            ),
        ),
    );
}

/** A modal window. `content` is given how to close it; what it begins ends when it closes. */
export function openDialog(title, content) {
    const node = h("dialog", { "aria-label": title });
    const [body, end] = scope(() => content(() => node.close()));
    node.append(
        h(
            "header",
            h("h2", title),
            h("button.plain", { type: "button", "aria-label": "Close", onclick: () => node.close() }, "✕"),
        ),
        body,
    );
    node.addEventListener("close", () => {
        end();
        node.remove();
    });
    // Beside the window is a click that began there, not the end of a selection that did not.
    let pressedBeside = false;
    node.addEventListener("pointerdown", (event) => {
        pressedBeside = event.target === node && isBeside(node.getBoundingClientRect(), event);
    });
    node.addEventListener("click", (event) => event.target === node && pressedBeside && node.close());
    document.body.append(node);
    node.showModal();
}

const isBeside = ({ left, right, top, bottom }, { clientX: x, clientY: y }) =>
    x < left || x > right || y < top || y > bottom;

export function confirmByName(title, name, explanation, act) {
    openDialog(title, (close) => {
        const typed = h("input", { autocomplete: "off", spellcheck: "false", required: true, pattern: escaped(name) });
        return form({
            fields: [h("p", explanation), field(`Type ${name} to go on`, typed)],
            action: title,
            danger: true,
            cancel: close,
            submit: async () => {
                await act();
                close();
            },
        });
    });
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** A word at the foot of the page that goes by itself. */
export function say(text) {
    let area = document.querySelector(".words");
    if (!area) {
        area = h("div.words", { role: "status", "aria-live": "polite" });
        document.body.append(area);
    }
    const word = h("div", text);
    area.append(word);
    setTimeout(() => word.remove(), 6000);
}

/** The page's title follows what is shown. */
export function titled(text) {
    effect(() => {
        document.title = `${typeof text === "function" ? text() : text} · Lakelog`;
    });
}
