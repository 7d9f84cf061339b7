// A topic's configuration: what holds, what was changed, and changing it.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { NOTHING, bytes, span } from "../core/format.js";
import { empty, errorNote, field, form, openDialog, say } from "../core/parts.js";
import { derived, signal } from "../core/reactive.js";

const NO_LIMIT = "9223372036854775807";

export function configTab(topic, loaded) {
    const search = signal("");
    const changedOnly = signal(false);
    // Names alone: their entries watch what they say, so that a refresh leaves the focus where it is.
    const names = derived(() =>
        (loaded.data()?.configs ?? [])
            .filter(
                (each) =>
                    (!changedOnly() || !each.is_default) &&
                    `${each.name} ${each.doc}`.toLowerCase().includes(search().toLowerCase()),
            )
            .map((each) => each.name),
    );
    const known = derived(() => loaded.data() !== null);
    return h(
        "div",
        h(
            "div.bar",
            h("input", {
                type: "search",
                placeholder: "Search configuration",
                "aria-label": "Search configuration",
                oninput: (event) => search.set(event.target.value),
            }),
            h(
                "label.check",
                h("input", { type: "checkbox", onchange: (event) => changedOnly.set(event.target.checked) }),
                "Changed only",
            ),
        ),
        h("div.configs", () =>
            names().length
                ? names().map((each) => entry(topic, each, loaded))
                : known() &&
                  empty("Nothing here", changedOnly() ? "All of it is at its defaults." : "No config fits."),
        ),
    );
}

function entry(topic, name, loaded) {
    const config = () => loaded.data().configs.find((each) => each.name === name);
    return h(
        "div.config",
        { class: () => (config().is_default ? "" : "changed") },
        h("div.name", h("code", name), () =>
            config().is_default ? null : h("small", `default ${config().default}`),
        ),
        h(
            "div.value",
            h("code", () => config().value || NOTHING),
            h("small", () => inWords(name, config().value)),
        ),
        h("p", () => config().doc),
        h(
            "button",
            { type: "button", "aria-label": `Alter ${name}`, onclick: () => alter(topic, config(), loaded) },
            "Alter",
        ),
    );
}

function inWords(name, value) {
    if (value === NO_LIMIT) return "no limit";
    if (value === "-1") return "no limit";
    if (name.endsWith(".ms") && Number(value) >= 1000) return span(Number(value));
    if (name.endsWith(".bytes") && Number(value) >= 1024) return bytes(Number(value));
    return "";
}

function alter(topic, config, loaded) {
    openDialog(config.name, (close) => {
        const value = h("input", { value: config.value, spellcheck: "false", autocomplete: "off", autofocus: true });
        const failed = signal(null);
        const done = (text) => {
            close();
            say(text);
            loaded.refresh();
        };
        const reset = async () => {
            try {
                await api.resetConfig(topic, config.name);
                done(`${config.name} is at its default again.`);
            } catch (error) {
                failed.set(error);
            }
        };
        return h(
            "div",
            form({
                fields: [
                    h("p", config.doc),
                    field(`Value (${config.type})`, value, `The default is ${config.default || "nothing"}.`),
                ],
                action: "Set",
                cancel: close,
                submit: async () => {
                    await api.setConfig(topic, config.name, value.value);
                    done(`${config.name} is ${value.value} now.`);
                },
            }),
            () => errorNote(failed()),
            config.is_default
                ? null
                : h(
                      "button.plain",
                      { type: "button", onclick: reset },
                      `Take it back to ${config.default || "the default"}`,
                  ),
        );
    });
}
