// Ways through a topic's records: forward from a place, back from the end, or live. Each hands out pages, so that a
// filter can go on until enough records fit, and be stopped.

import { api } from "./api.js";
import { bytesOf } from "./decode.js";

const PAGE_BYTES = 512 * 1024;

/** Pages from an offset, from a time or from the beginning on. `marks`: by partition, where it begins and ends. */
export async function* forward(topic, { marks, partition, offset, timestamp }, abort) {
    const begin = (each) =>
        Math.min(Math.max(offset ?? each.log_start_offset, each.log_start_offset), each.high_watermark);
    let positions = timestamp === undefined ? new Map(marks.map((each) => [each.partition, begin(each)])) : null;
    while (true) {
        const asked = positions ? { positions } : { timestamp };
        const { records, next } = await api.records(topic, { ...asked, partition, maxBytes: PAGE_BYTES, abort });
        const stood = positions;
        positions = next;
        yield records.map(readable);
        if (!records.length && (!stood || same(stood, next))) return;
    }
}

/** Pages from the end back, the newest first; `window` is how many offsets of each partition a page takes up. */
export async function* backward(topic, { marks, partition, window }, abort) {
    let ends = new Map(marks.map((each) => [each.partition, each.high_watermark]));
    const floor = new Map(marks.map((each) => [each.partition, each.log_start_offset]));
    while ([...ends].some(([each, end]) => end > floor.get(each))) {
        const starts = new Map([...ends].map(([each, end]) => [each, Math.max(floor.get(each), end - window)]));
        const page = [];
        let positions = starts;
        while ([...positions].some(([each, at]) => at < ends.get(each))) {
            const { records, next } = await api.records(topic, { positions, partition, maxBytes: PAGE_BYTES, abort });
            page.push(...records.filter((each) => each.offset < ends.get(each.partition)).map(readable));
            if (same(positions, next)) break;
            positions = next;
        }
        yield page.sort((a, b) => b.timestamp - a.timestamp || b.offset - a.offset);
        ends = starts;
    }
}

export function readable(record) {
    return {
        ...record,
        key: bytesOf(record.key),
        value: bytesOf(record.value),
        headers: (record.headers ?? []).map((each) => ({ key: each.key, value: bytesOf(each.value) })),
    };
}

const same = (a, b) => [...b].every(([partition, offset]) => a.get(partition) === offset);
