// Data that is asked for again and again while somebody looks. It rests while the page is hidden or paused.

import { onEnd, signal } from "./reactive.js";

export const paused = signal(false);

/** `data` is null before the first answer; `error` is what went wrong last, null when the last time went well. */
export function load(ask, everyMs) {
    const data = signal(null);
    const error = signal(null);
    let timer = null;
    let ended = false;

    async function refresh() {
        clearTimeout(timer);
        if (!document.hidden && !(paused.peek() && data.peek() !== null)) {
            try {
                const answer = await ask();
                if (ended) return;
                data.set(answer);
                error.set(null);
            } catch (problem) {
                if (ended) return;
                error.set(problem);
            }
        }
        clearTimeout(timer);
        if (!ended) timer = setTimeout(refresh, everyMs);
    }

    const wake = () => document.hidden || refresh();
    document.addEventListener("visibilitychange", wake);
    onEnd(() => {
        ended = true;
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", wake);
    });
    refresh();
    return { data, error, refresh };
}
