// JSON as the text that it is: laid out and coloured without being read into values, because numbers lose digits and
// names that are there twice go missing on that way.

import { h } from "./dom.js";

const TOKEN = /(?<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?<mark>[{}[\],:])|(?<other>[^\s{}[\],:"]+)/g;
const INDENT = "  ";
const DEEPEST = 40; // further in, lines begin where they are: thousands of brackets are a few bytes

/** Over several lines; throws a SyntaxError for what is not JSON. */
export function laidOut(text) {
    JSON.parse(text);
    let [out, depth, before] = ["", 0, ""];
    for (const [token] of text.matchAll(TOKEN)) {
        const opened = before === "{" || before === "[";
        const closes = token === "}" || token === "]";
        if (closes) depth -= 1;
        if (closes !== opened || before === ",") out += `\n${INDENT.repeat(Math.min(depth, DEEPEST))}`;
        out += token === ":" ? ": " : token;
        if (token === "{" || token === "[") depth += 1;
        before = token;
    }
    return out;
}

/** What was laid out, in colours. */
export function coloured(text) {
    const parts = [];
    let end = 0;
    for (const { 0: token, index, groups } of text.matchAll(TOKEN)) {
        if (groups.mark) continue;
        parts.push(text.slice(end, index));
        end = index + token.length;
        parts.push(h(`span.json-${kindOf(token, text[end])}`, token));
    }
    parts.push(text.slice(end));
    return parts;
}

function kindOf(token, next) {
    if (token[0] === '"') return next === ":" ? "name" : "string";
    return /[tfn]/.test(token[0]) ? "word" : "digits";
}
