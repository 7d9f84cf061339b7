// Values that are watched. A signal is read by calling it; an effect runs again when a signal that it read has changed.
// What is made inside an effect or a scope ends with it, so a view that is left leaves nothing running.

let watcher = null;
let owner = null;

export function signal(value) {
    const readers = new Set();
    const read = () => {
        if (watcher) {
            readers.add(watcher);
            watcher.sources.add(readers);
        }
        return value;
    };
    read.peek = () => value;
    read.set = (next) => {
        if (Object.is(next, value)) return;
        value = next;
        for (const reader of [...readers]) if (readers.has(reader)) reader.run();
    };
    return read;
}

export function effect(body) {
    const self = {
        sources: new Set(),
        owned: [],
        run() {
            release(self);
            const [outerWatcher, outerOwner] = [watcher, owner];
            [watcher, owner] = [self, self.owned];
            try {
                body();
            } finally {
                [watcher, owner] = [outerWatcher, outerOwner];
            }
        },
    };
    onEnd(() => release(self));
    self.run();
}

/** What `make` gives, as a value that changes only when its content does, however often what it is made of is set. */
export function derived(make) {
    const value = signal(undefined);
    let content = null;
    effect(() => {
        const next = make();
        const text = JSON.stringify(next);
        if (text === content) return;
        content = text;
        value.set(next);
    });
    return value;
}

/** Run `body` outside of what watches it, and hand back how to end all that it began. */
export function scope(body) {
    const [outerWatcher, outerOwner] = [watcher, owner];
    const owned = [];
    [watcher, owner] = [null, owned];
    try {
        return [body(), () => owned.splice(0).forEach((end) => end())];
    } finally {
        [watcher, owner] = [outerWatcher, outerOwner];
    }
}

/** Have something done when the view, dialog or effect around this ends. */
export function onEnd(end) {
    owner?.push(end);
}

function release(self) {
    for (const readers of self.sources) readers.delete(self);
    self.sources.clear();
    self.owned.splice(0).forEach((end) => end());
}
