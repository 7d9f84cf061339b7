// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [
    ["day", 86_400_000],
    ["hour", 3_600_000],
    ["minute", 60_000],
    ["second", 1000],
];

export const NOTHING = "–";

export const count = (value) => (value === null || value === undefined ? NOTHING : whole.format(value));

export const brief = (value) => (Math.abs(value) < 10_000 ? whole.format(Math.round(value)) : short.format(value));

export function bytes(value) {
    if (value === null || value === undefined) return NOTHING;
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < SIZES.length - 1) {
        value /= 1024;
        unit += 1;
    }
    const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : 1;
    return `${value.toFixed(digits)} ${SIZES[unit]}`;
}

/** A rate that is all but nothing is a dash: quiet topics are to look quiet. */
export function perSecond(value, unit = brief) {
    if (value < 0.05) return NOTHING;
    return `${value < 10 && unit === brief ? value.toFixed(1) : unit(value)}/s`;
}

export function span(ms) {
    for (const [unit, length] of SPANS) {
        if (ms >= length && ms % length === 0) return plural(ms / length, unit);
    }
    for (const [unit, length] of SPANS) {
        if (ms >= length) return `${(ms / length).toFixed(1)} ${unit}s`;
    }
    return `${ms} ms`;
}

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Local time, in the one form that all the world reads alike: 2026-11-18 17:04:20.123. */
export function moment(ms) {
    if (ms === null || ms === undefined) return NOTHING;
    const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
    return local.toISOString().slice(0, 23).replace("T", " ");
}

export const time = (ms) => (ms === null || ms === undefined ? NOTHING : moment(ms).slice(11, 19));

export function ago(ms, now = Date.now()) {
    if (ms === null || ms === undefined) return NOTHING;
    const passed = Math.max(0, now - ms);
    if (passed < 5000) return "just now";
    const [unit, length] = SPANS.find(([, each]) => passed >= each);
    return `${plural(Math.floor(passed / length), unit)} ago`;
}

/** What a topic keeps, in a few words. */
export function retention(topic) {
    const deletes = topic.cleanup_policy.includes("delete");
    if (!deletes) return "latest per key";
    const kept = [];
    if (topic.retention_ms >= 0) kept.push(span(topic.retention_ms));
    if (topic.retention_bytes >= 0) kept.push(`${bytes(topic.retention_bytes)} per partition`);
    return kept.join(" or ") || "for ever";
}
