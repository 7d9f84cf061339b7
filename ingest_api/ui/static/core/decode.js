// Keys and values of records: bytes that may be JSON, text or neither.

import { laidOut } from "./json.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });
const HEX_ROW_BYTES = 16;

export const FORMATS = ["auto", "json", "text", "hex"];

export function bytesOf(base64) {
    if (base64 === null || base64 === undefined) return null;
    return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}

export function base64Of(text) {
    return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** In one line, for a table. Says in which form it is, as asked for or the best that fits. */
export function preview(data, format, most = 240) {
    if (data === null) return { form: "null", text: "null" };
    const cut = data.length > most * 4 ? data.subarray(0, most * 4) : data;
    const text = format === "hex" ? null : textOf(cut, cut !== data);
    if (text === null) return { form: "hex", text: hexPairs(data.subarray(0, Math.ceil(most / 3))) };
    const form = format === "text" || !looksLikeJson(text) ? "text" : "json";
    return { form, text: text.slice(0, most).replace(/\s+/g, " ") };
}

/** In full, for who looks at one record. */
export function full(data, format) {
    if (data === null) return { form: "null", text: "null" };
    const text = format === "hex" ? null : textOf(data, false);
    if (text === null) return { form: "hex", text: hexDump(data) };
    if (format !== "text") {
        try {
            return { form: "json", text: laidOut(text) };
        } catch {
            // not JSON: shown as the text that it is
        }
    }
    return { form: "text", text };
}

/** Whether some words are anywhere in a record: its key, its value, its headers. */
export function contains(record, words) {
    const wanted = words.toLowerCase();
    const parts = [record.key, record.value, ...record.headers.map((each) => each.value)];
    const texts = parts.filter((each) => each !== null).map((each) => textOf(each, false) ?? hexPairs(each));
    return [...texts, ...record.headers.map((each) => each.key)].some((each) => each.toLowerCase().includes(wanted));
}

function textOf(data, isCut) {
    try {
        return printable(utf8.decode(data));
    } catch {
        if (!isCut) return null;
        // The cut may be in the middle of a letter.
        for (let less = 1; less < 4; less += 1) {
            try {
                return printable(utf8.decode(data.subarray(0, data.length - less)));
            } catch {
                // one byte less
            }
        }
        return null;
    }
}

function printable(text) {
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
}

function looksLikeJson(text) {
    return /^\s*([{["\d-]|true|false|null)/.test(text);
}

function hexPairs(data) {
    return [...data].map((each) => each.toString(16).padStart(2, "0")).join(" ");
}

function hexDump(data) {
    const rows = [];
    for (let start = 0; start < data.length; start += HEX_ROW_BYTES) {
        const row = data.subarray(start, start + HEX_ROW_BYTES);
        const letters = [...row].map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
        rows.push(`${start.toString(16).padStart(6, "0")}  ${hexPairs(row).padEnd(HEX_ROW_BYTES * 3)} ${letters}`);
    }
    return rows.join("\n");
}
