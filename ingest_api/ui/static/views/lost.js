import { h } from "../core/dom.js";
import { empty, titled } from "../core/parts.js";
import { href, place } from "../core/router.js";

export function lostView() {
    titled("Nothing here");
    return empty(
        "There is no such page",
        `Nothing is at ${place.peek().path}. `,
        h("a", { href: href("topics") }, "All topics"),
    );
}
