// The HTTP API as the gateway describes it: what can be asked, with what, and what comes back.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { plural } from "../core/format.js";
import { load } from "../core/load.js";
import { empty, loadError, titled } from "../core/parts.js";
import { derived, signal } from "../core/reactive.js";

const REFRESH_MS = 600_000;
const METHODS = ["get", "post", "put", "patch", "delete"];

export function descriptionView() {
    titled("API");
    const loaded = load(api.description, REFRESH_MS);
    const described = derived(loaded.data); // another only after an upgrade: what is open stays open
    const search = signal("");
    const found = () => {
        const wanted = search().toLowerCase();
        const all = described() ? operations(described()) : [];
        return all.filter((each) => `${each.method} ${each.path} ${each.summary}`.toLowerCase().includes(wanted));
    };
    return h(
        "div.view",
        h("header.title", h("h1", "API"), h("a", { href: "../openapi" }, "As OpenAPI")),
        h(
            "div.bar",
            h("input", {
                type: "search",
                placeholder: "Search the API",
                "aria-label": "Search the API",
                oninput: (event) => search.set(event.target.value),
            }),
            h("span.muted", () => (described() ? plural(found().length, "operation") : "")),
        ),
        loadError(loaded),
        () =>
            described() && !found().length
                ? empty("No operation fits", "Search by a part of a path, a method or what it does.")
                : byTag(found()).map(([tag, some]) =>
                      h("section", h("h2", tag), h("div.operations", some.map(operation))),
                  ),
    );
}

function operations({ paths }) {
    return Object.entries(paths).flatMap(([path, methods]) =>
        METHODS.filter((method) => methods[method]).map((method) => ({
            summary: "",
            ...methods[method],
            path,
            method: method.toUpperCase(),
        })),
    );
}

function byTag(some) {
    const tags = new Map();
    for (const each of some) {
        const tag = each.tags?.[0] ?? "other";
        tags.set(tag, [...(tags.get(tag) ?? []), each]);
    }
    return [...tags];
}

function operation(described) {
    const { method, path, summary, description, parameters, requestBody, responses } = described;
    return h(
        "details",
        h("summary", h("code.method", method), h("code", path), h("span", summary)),
        description && h("p", description),
        parameters?.length && listed("Parameters", parameters.map(parameter)),
        requestBody && listed("Body", Object.entries(requestBody.content).map(content)),
        listed("Replies", Object.entries(responses).map(reply)),
    );
}

const listed = (title, rows) => [h("h3", title), h("dl.described", rows)];

function parameter({ name, in: where, required, schema, description }) {
    const facts = [where, kind(schema), required ? "required" : null].filter(Boolean).join(", ");
    return [h("dt", h("code", name)), h("dd", h("small", facts), description && h("span", ` ${description}`))];
}

function content([type, { schema }]) {
    return [h("dt", h("code", type)), h("dd", h("small", kind(schema)))];
}

function reply([status, { description }]) {
    return [h("dt", h("code", status)), h("dd", description)];
}

function kind(schema) {
    if (!schema) return "";
    if (schema.$ref) return schema.$ref.split("/").at(-1);
    if (schema.enum) return schema.enum.join(" | ");
    const choices = schema.anyOf ?? schema.oneOf;
    if (choices) return [...new Set(choices.map(kind))].join(" | ");
    if (schema.type === "array") return `array of ${kind(schema.items) || "anything"}`;
    if (schema.properties) return `object with ${Object.keys(schema.properties).join(", ")}`;
    return [schema.type].flat().filter(Boolean).join(" | ");
}
