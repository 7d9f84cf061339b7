// Requests to the gateway. What it refuses comes as an ApiError that says what the gateway said, word for word.

const ROOT = new URL("../", document.baseURI);
const BINARY = "application/vnd.kafka.binary.v2+json";
const LINES = "application/x-ndjson";

export class ApiError extends Error {
    constructor(status, code, message, reason) {
        super(message);
        this.status = status;
        this.code = code;
        this.reason = reason; // Kafka's name for it, where there is one
    }

    /** Its code in words, such as "409 TOPIC_ALREADY_EXISTS". */
    get label() {
        if (this.status === 0) return "No answer";
        return [this.code, this.reason].filter(Boolean).join(" ");
    }
}

async function call(method, path, { body, accept, abort } = {}) {
    const reply = await answered(
        fetch(new URL(path, ROOT), {
            method,
            headers: {
                ...(accept ? { Accept: accept } : {}),
                ...(body === undefined ? {} : { "Content-Type": "application/json" }),
            },
            body: body === undefined ? undefined : JSON.stringify(body),
            signal: abort,
        }),
    );
    if (!reply.ok) throw await refusal(reply);
    return reply;
}

async function answered(network) {
    try {
        return await network;
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError(0, 0, "The gateway does not answer. It is asked again as long as this page is open.");
    }
}

async function refusal(reply) {
    const text = await reply.text();
    const reason = reply.headers.get("Lakelog-Error");
    try {
        const { error_code: code, message } = JSON.parse(text);
        return new ApiError(reply.status, code, message, reason);
    } catch {
        return new ApiError(reply.status, reply.status, text || reply.statusText, reason);
    }
}

const get = async (path, options) => (await call("GET", path, options)).json();
const send = (method, path, body) => call(method, path, { body });
const name = encodeURIComponent;

let cluster = null;
async function clusterPath() {
    cluster ??= (await get("v3/clusters")).data[0].cluster_id;
    return `v3/clusters/${name(cluster)}`;
}
const topicPath = async (topic) => `${await clusterPath()}/topics/${name(topic)}`;

export const api = {
    async cluster() {
        await clusterPath();
        return { id: cluster, version: (await get("")).version };
    },

    topics: async () => (await get("ui/api/topics")).topics,
    async topic(topic) {
        const [described, figures] = await Promise.all([
            get(`admin/topics/${name(topic)}`),
            get(`ui/api/topics/${name(topic)}`),
        ]);
        return { ...described, figures };
    },
    throughput: (topic) => get(`ui/api/throughput${topic ? `?topic=${name(topic)}` : ""}`),
    segments: async (topic) => (await get(`ui/api/topics/${name(topic)}/segments`)).partitions,

    createTopic: async (body) => send("POST", `${await clusterPath()}/topics`, body),
    deleteTopic: async (topic) => send("DELETE", await topicPath(topic)),
    addPartitions: async (topic, count) => send("PATCH", await topicPath(topic), { partitions_count: count }),
    setConfig: async (topic, config, value) =>
        send("PUT", `${await topicPath(topic)}/configs/${name(config)}`, { value }),
    resetConfig: async (topic, config) => send("DELETE", `${await topicPath(topic)}/configs/${name(config)}`),

    /** Records from positions or a time on, of one partition or of all, and where to go on. */
    async records(topic, { positions, timestamp, partition, maxBytes, abort }) {
        const query = new URLSearchParams({ max_bytes: maxBytes, ...from(positions, timestamp, partition) });
        const reply = await call("GET", `${streamPath(topic, partition)}/records?${query}`, { accept: BINARY, abort });
        const next = reply.headers.get("Lakelog-Next-Offset");
        return { records: await reply.json(), next: read(partition === null ? next : `${partition}:${next}`) };
    },
    /** Lists of records as they come in, from positions on; an empty one when the stream is there. */
    async *follow(topic, { positions, partition, abort }) {
        const query = new URLSearchParams({ format: "binary", ...from(positions, undefined, partition) });
        const reply = await call("GET", `${streamPath(topic, partition)}/stream?${query}`, { accept: LINES, abort });
        yield [];
        for await (const lines of linesOf(reply)) {
            const records = lines.filter(Boolean).map((each) => JSON.parse(each));
            const refused = records.findIndex((each) => "error_code" in each);
            yield refused < 0 ? records : records.slice(0, refused);
            if (refused >= 0) throw new ApiError(reply.status, records[refused].error_code, records[refused].message);
        }
    },
    async produce(topic, record) {
        const report = await (await send("POST", `${await topicPath(topic)}/records`, record)).json();
        if (report.error_code !== 200) throw new ApiError(200, report.error_code, report.message);
        return report;
    },

    groups: async () => (await get("ui/api/groups")).groups,
    async group(group) {
        const [described, partitions, history] = await Promise.all([
            get(`admin/groups/${name(group)}`),
            get(`admin/groups/${name(group)}/lag`),
            get(`ui/api/groups/${name(group)}/lag-history`),
        ]);
        return { ...described, partitions, history };
    },
    deleteGroup: (group) => send("DELETE", `admin/groups/${name(group)}`),
    resetOffsets: async (group, body) => (await send("POST", `admin/groups/${name(group)}/reset-offsets`, body)).json(),

    jobs: () => get("ui/api/jobs"),
    description: () => get("openapi"),
};

/** The lines of a reply, as many at a time as are whole. */
async function* linesOf(reply) {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    while (true) {
        const { value, done } = await answered(reader.read());
        if (done) return;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        yield lines;
    }
}

function streamPath(topic, partition) {
    return `topics/${name(topic)}${partition === null ? "" : `/partitions/${partition}`}`;
}

function from(positions, timestamp, partition) {
    if (timestamp !== undefined) return { timestamp };
    return partition === null ? { positions: written(positions) } : { offset: positions.get(partition) };
}

/** Positions as the gateway writes them: 0:17,1:4. */
function written(positions) {
    return [...positions].map(([partition, offset]) => `${partition}:${offset}`).join(",");
}

function read(text) {
    const pairs = (text ?? "")
        .split(",")
        .filter(Boolean)
        .map((each) => each.split(":").map(Number));
    return new Map(pairs);
}
