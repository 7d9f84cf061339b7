// Light, dark, or as the system has it; and colours for what is drawn and not styled.

import { signal } from "./reactive.js";

const KEY = "lakelog.theme";
const CHOICES = ["auto", "light", "dark"];

export const theme = signal(stored());
// Grows with every change of colours, for who has to draw again.
export const colours = signal(0);

apply(theme.peek());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);

export function nextTheme() {
    const next = CHOICES[(CHOICES.indexOf(theme.peek()) + 1) % CHOICES.length];
    try {
        localStorage.setItem(KEY, next);
    } catch {
        // a browser that keeps nothing: the choice holds for this page
    }
    apply(next);
    theme.set(next);
    changed();
}

const probe = document.createElement("span");
probe.hidden = true;

/** The colour that a custom property stands for now. */
export function colour(property) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(${property})`;
    return getComputedStyle(probe).color;
}

function stored() {
    try {
        const kept = localStorage.getItem(KEY);
        return CHOICES.includes(kept) ? kept : "auto";
    } catch {
        return "auto";
    }
}

function apply(choice) {
    document.documentElement.dataset.theme = choice;
}

function changed() {
    colours.set(colours.peek() + 1);
}
