// Elements by a function: h("button.primary", {onclick: save}, "Save"). A function in the place of a child or of a
// property is watched: what it reads may change, and the element with it.

import { effect } from "./reactive.js";

const SVG = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "polyline", "clipPath", "defs"]);

export function h(spec, ...rest) {
    const [tag, ...classes] = spec.split(".");
    const node = SVG.has(tag)
        ? document.createElementNS("http://www.w3.org/2000/svg", tag)
        : document.createElement(tag);
    if (classes.length) node.setAttribute("class", classes.join(" "));
    if (isProperties(rest[0])) setAll(node, rest.shift());
    append(node, rest);
    return node;
}

export function append(node, child) {
    if (child === null || child === undefined || child === false) return;
    if (Array.isArray(child)) child.forEach((each) => append(node, each));
    else if (typeof child === "function") appendWatched(node, child);
    else node.append(child);
}

export function replace(node, ...children) {
    node.replaceChildren();
    append(node, children);
}

function isProperties(value) {
    return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node);
}

function setAll(node, properties) {
    // Classes that are given as a property come to those of the spec, and go again when it changes.
    const fixed = node.getAttribute("class");
    const put = (name, value) => set(node, name, name === "class" ? joined(fixed, value) : value);
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
        else if (typeof value === "function") effect(() => put(name, value()));
        else put(name, value);
    }
}

const joined = (...classes) => classes.filter(Boolean).join(" ") || null;

function set(node, name, value) {
    if (name === "style") Object.assign(node.style, value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden")
        node[name] = value ?? "";
    else if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
}

function appendWatched(node, body) {
    const end = document.createComment("");
    let shown = [];
    node.append(end);
    effect(() => {
        const fresh = document.createDocumentFragment();
        append(fresh, body());
        shown.forEach((each) => each.remove());
        shown = [...fresh.childNodes];
        end.before(fresh);
    });
}
