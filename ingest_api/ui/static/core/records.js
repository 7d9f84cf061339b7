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

/**
 * Pages from the end back, the newest first. `window` is how many offsets of each partition the first one takes up.
 * Whoever asks for the next says how many records of the last were of use: where they were few, in a compacted topic or
 * under a filter, twice as many offsets are next. A page that takes several replies is empty but for the last of them.
 */
export async function* backward(topic, { marks, partition, window: least }, abort) {
    const floor = new Map(marks.map((each) => [each.partition, each.log_start_offset]));
    let ends = new Map(marks.map((each) => [each.partition, each.high_watermark]));
    let window = least;
    while ([...ends].some(([each, end]) => end > floor.get(each))) {
        const starts = new Map([...ends].map(([each, end]) => [each, Math.max(floor.get(each), end - window)]));
        const belowEnds = (positions) => new Map([...positions].filter(([each, at]) => at < ends.get(each)));
        const page = [];
        let unread = belowEnds(starts);
        while (unread.size) {
            // More of a partition that is read would take the room of the others.
            const positions = new Map([...starts.keys()].map((each) => [each, unread.get(each) ?? "latest"]));
            const { records, next } = await api.records(topic, { positions, partition, maxBytes: PAGE_BYTES, abort });
            page.push(...records.filter((each) => each.offset < ends.get(each.partition)).map(readable));
            const left = belowEnds(new Map([...unread.keys()].map((each) => [each, next.get(each)])));
            const tooWide = left.size === unread.size && window > least;
            unread = left;
            if (unread.size) yield [];
            if (tooWide) break; // records are denser here than where it grew
        }
        if (unread.size) {
            window = Math.max(least, Math.floor(window / 2));
            continue;
        }
        ends = starts;
        const used = yield page.sort((a, b) => b.timestamp - a.timestamp || b.offset - a.offset);
        if (used < least) window *= 2;
    }
}

/** Records as they come in, some at a time. `positions` are where to begin, and move on with what was handed out. */
export async function* live(topic, { positions, partition }, abort) {
    for await (const records of api.follow(topic, { positions, partition, abort })) {
        for (const each of records) positions.set(each.partition, each.offset + 1);
        yield records.map(readable);
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
