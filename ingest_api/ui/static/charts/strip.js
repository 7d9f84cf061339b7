// The files of a partition along the offset axis. Files that are narrower than a pixel share one, and its colour is
// that of the state most in need of attention, so ten thousand of them cost no more than a thousand.

import { h } from "../core/dom.js";
import { effect, onEnd } from "../core/reactive.js";
import { colour, colours } from "../core/theme.js";

export const STATES = ["active", "dirty", "sealed", "clean"];
const HEIGHT = 22;

/**
 * All of it is watched. columns(): of one partition, as the gateway has them; axis(): the offsets that it spans, over
 * all partitions; point(index): the pointer is on a file, or on none for null; chosen(): the file that is marked
 */
export function strip(columns, { axis, point, choose, chosen }) {
    const canvas = h("canvas.strip", { role: "img", "aria-label": () => described(columns()) });

    function draw() {
        const width = canvas.clientWidth;
        if (!width) return;
        const dots = devicePixelRatio || 1;
        canvas.width = Math.round(width * dots);
        canvas.height = HEIGHT * dots;
        const paint = canvas.getContext("2d");
        const tones = Object.fromEntries(STATES.map((each) => [each, colour(`--segment-${each}`)]));
        const at = (offset) => ((offset - axis().from) / axis().span) * canvas.width;
        paint.fillStyle = colour("--segment-gone");
        paint.fillRect(0, canvas.height / 2 - dots / 2, at(columns().log_start_offset), dots);
        for (const [start, end, state] of runs(columns(), at)) {
            paint.fillStyle = tones[state];
            // A hair between neighbours, where there is room for one.
            paint.fillRect(start, 0, Math.max(1, end - start - (end - start > 4 * dots ? dots : 0)), canvas.height);
        }
        const marked = columns().file.indexOf(chosen());
        if (marked >= 0) {
            paint.strokeStyle = colour("--text");
            paint.lineWidth = 2 * dots;
            const [start, end] = [at(columns().base_offset[marked]), at(columns().end_offset[marked])];
            paint.strokeRect(start + dots, dots, Math.max(2 * dots, end - start - 3 * dots), canvas.height - 2 * dots);
        }
    }

    function fileAt(event) {
        const box = canvas.getBoundingClientRect();
        const { from, span } = axis();
        return indexAt(columns(), from + ((event.clientX - box.left) / box.width) * span);
    }

    canvas.addEventListener("pointermove", (event) => point(fileAt(event)));
    canvas.addEventListener("pointerleave", () => point(null));
    canvas.addEventListener("click", (event) => choose(fileAt(event)));
    effect(() => {
        colours();
        columns();
        axis();
        chosen();
        draw();
    });
    const resized = new ResizeObserver(draw);
    resized.observe(canvas);
    onEnd(() => resized.disconnect());
    return canvas;
}

/** Files as [start, end, state] in pixels; those within one pixel are one. */
function* runs(columns, at) {
    let open = null;
    for (let index = 0; index < columns.base_offset.length; index += 1) {
        const start = at(columns.base_offset[index]);
        const end = at(columns.end_offset[index]);
        const state = columns.state[index];
        if (open && end - open[0] < 1) {
            open[1] = end;
            if (STATES.indexOf(state) < STATES.indexOf(open[2])) open[2] = state;
            continue;
        }
        if (open) yield open;
        open = [start, end, state];
    }
    if (open) yield open;
}

/** The file that holds an offset, or null between files. */
export function indexAt(columns, offset) {
    let [low, high] = [0, columns.base_offset.length - 1];
    while (low <= high) {
        const middle = (low + high) >> 1;
        if (offset < columns.base_offset[middle]) high = middle - 1;
        else if (offset >= columns.end_offset[middle]) low = middle + 1;
        else return middle;
    }
    return null;
}

function described(columns) {
    const counted = STATES.map((state) => [state, columns.state.filter((each) => each === state).length]);
    const parts = counted.filter(([, count]) => count).map(([state, count]) => `${count} ${state}`);
    return `Partition ${columns.partition}: ${parts.join(", ") || "no files"}`;
}
