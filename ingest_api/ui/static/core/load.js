// Data that is asked for again and again while somebody looks. It rests while the page is hidden or held still.

import { effect, onEnd, signal } from "./reactive.js";

export const paused = signal(false);

/**
 * `data` is null before the first answer; `error` is what went wrong last, null when the last time went well.
 * `refresh` asks at once, also while the page is held still: it is for who has just changed something.
 */
export function load(ask, everyMs) {
    const data = signal(null);
    const error = signal(null);
    let timer = null;
    let latest = 0;
    let ended = false;

    async function refresh() {
        clearTimeout(timer);
        latest += 1;
        const mine = latest;
        const overtaken = () => ended || mine !== latest;
        try {
            const answer = await ask();
            if (overtaken()) return;
            data.set(answer);
            error.set(null);
        } catch (problem) {
            if (overtaken()) return;
            error.set(problem);
        }
        timer = setTimeout(goOn, everyMs);
    }

    function goOn() {
        clearTimeout(timer);
        if (document.hidden || (paused.peek() && data.peek() !== null)) timer = setTimeout(goOn, everyMs);
        else refresh();
    }

    const wake = () => document.hidden || goOn();
    document.addEventListener("visibilitychange", wake);
    onEnd(() => {
        ended = true;
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", wake);
    });
    // To begin with, and at once when the page is let go of.
    effect(() => {
        if (!paused() || data.peek() === null) refresh();
    });
    return { data, error, refresh };
}
