// Moving a group to another place: first what would happen, then doing just that.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count } from "../core/format.js";
import { errorNote, field, openDialog, say, select } from "../core/parts.js";
import { signal } from "../core/reactive.js";

const TARGETS = [
    ["earliest", "The beginning"],
    ["latest", "The end"],
    ["offset", "An offset"],
    ["timestamp", "A time"],
    ["duration", "So long ago"],
    ["shift", "So many records on or back"],
];

export function resetOffsets(group, described, done) {
    const topics = [...new Set((described?.partitions ?? []).map((each) => each.topic))];
    openDialog(`Reset offsets of ${group}`, (close) => {
        const topic = select([["", "All that it has committed"], ...topics.map((each) => [each, each])]);
        const to = signal("earliest");
        const target = select(TARGETS);
        const number = h("input", { type: "number", value: "0" });
        const when = h("input", { type: "datetime-local", step: "1", required: true });
        const minutes = h("input", { type: "number", min: "0", value: "60" });
        const preview = signal(null); // what was asked, and what would come of it
        const error = signal(null);
        const busy = signal(false);

        const body = () => ({
            ...place(to.peek(), { number, when, minutes }),
            topics: topic.value ? { [topic.value]: null } : null,
        });
        let latest = null; // the body that was asked for last; a reply to another one is outdated
        const changed = () => {
            latest = null;
            preview.set(null);
            busy.set(false);
        };
        for (const input of [topic, number, when, minutes]) input.addEventListener("input", changed);
        target.addEventListener("change", () => {
            to.set(target.value);
            changed();
        });

        async function attempt(asked, dryRun) {
            latest = asked;
            busy.set(true);
            error.set(null);
            try {
                const found = await api.resetOffsets(group, { ...asked, dry_run: dryRun });
                if (!dryRun) {
                    close();
                    say(`Group ${group} goes on from there.`);
                    done();
                } else if (latest === asked) preview.set({ asked, found });
            } catch (problem) {
                if (!dryRun || latest === asked) error.set(problem);
            } finally {
                if (latest === asked) busy.set(false);
            }
        }

        function submit(event) {
            event.preventDefault();
            if (busy.peek()) return;
            if (preview.peek()) attempt(preview.peek().asked, false);
            else attempt(body(), true);
        }

        return h(
            "form",
            { onsubmit: submit },
            h(
                "div.fields",
                field("What", topic),
                h("div.row", field("To", target), () => {
                    if (to() === "offset") return field("Offset", number);
                    if (to() === "shift") return field("Records", number, "Back where it is negative.");
                    if (to() === "timestamp") return field("Time", when);
                    if (to() === "duration") return field("Minutes ago", minutes);
                    return null;
                }),
            ),
            () => preview() && changes(preview().found),
            () => errorNote(error()),
            h(
                "div.actions",
                h("button", { type: "button", onclick: close }, "Cancel"),
                h("button.primary", { type: "submit", "aria-disabled": () => String(busy()) }, () =>
                    preview() === null ? "Preview" : "Reset offsets",
                ),
            ),
        );
    });
}

/** The target as the API names it. */
function place(to, { number, when, minutes }) {
    if (to === "offset" || to === "shift") return { [to]: Number(number.value) };
    if (to === "timestamp") return { timestamp_ms: new Date(when.value).getTime() };
    if (to === "duration") return { duration_ms: Number(minutes.value) * 60_000 };
    return { to };
}

function changes(found) {
    if (!found.length) return h("p.muted", "There is nothing to move: the group has committed nothing there.");
    return h(
        "div.scroll",
        h(
            "table.plain",
            { "aria-label": "What would change" },
            h(
                "thead",
                h(
                    "tr",
                    ["Partition", "From", "To", "Records"].map((each, index) =>
                        h("th", { scope: "col", class: index ? "number" : "" }, each),
                    ),
                ),
            ),
            h(
                "tbody",
                found.map((each) => {
                    const moved = each.before === null ? null : each.after - each.before;
                    return h(
                        "tr",
                        h("th", { scope: "row" }, `${each.topic} ${each.partition}`),
                        h("td.number", count(each.before)),
                        h("td.number", count(each.after)),
                        h(
                            "td.number",
                            { class: moved ? "busy" : "faint" },
                            moved === null ? "–" : `${moved > 0 ? "+" : ""}${count(moved)}`,
                        ),
                    );
                }),
            ),
        ),
    );
}
