import { buffer } from "node:stream/consumers";
import { type HostAnswer, type HostCall, HostRefusal, type RunAccount } from "./host-call.ts";
import { HostStreams, PushedBody } from "./host-streams.ts";
import type { KapStore } from "./kap-store.ts";

/** Files a dry run keeps in memory, together: a little more than the largest object. */
const maxKeptBytes = 32 * 1024 * 1024;

interface Kept {
  bytes: Buffer;
  contentType: string;
  at: Date;
}

interface Listed {
  key: string;
  size: number;
  last_modified: string;
}

/** What a put or delete would have done. */
export interface StoreChange {
  key: string;
  /** Whether an object of that key was there, as this run saw it. */
  existed: boolean;
}

/**
 * The file store as a dry run sees it: what the kap has, with the run's own puts and deletes over it, which are kept in memory and never carried out.
 * Keys are held to the store's rules by asking it; its quota is not asked.
 */
export class DryStore {
  readonly #store: KapStore;
  readonly #streams = new HostStreams();
  /** Null: deleted by this run. */
  readonly #changed = new Map<string, Kept | null>();
  #keptBytes = 0;
  #asked = 0;

  constructor(store: KapStore) {
    this.#store = store;
  }

  async put(
    call: HostCall,
    input: { key: string; streamId?: number; contentType?: string; bodyKind?: string; text?: string },
  ): Promise<StoreChange & { bytes: number; content_type: string }> {
    const max = maxKeptBytes - this.#keptBytes;
    let bytes: Buffer;
    if (input.bodyKind === "stream") {
      const pushed = new PushedBody(Math.max(0, max));
      // Before anything is awaited: the program may push its first piece right behind this call.
      this.#streams.keepPushed(call.run, this.#streamKey(call, input.streamId), pushed);
      bytes = await buffer(pushed.stream);
    } else bytes = input.text === undefined ? Buffer.from(call.bytes) : Buffer.from(input.text);
    if (bytes.length > max)
      throw new HostRefusal("StoreError", `A dry run keeps at most ${maxKeptBytes} bytes of files: put less in it.`, "DRY_RUN_LIMIT");
    const existed = await this.#exists(call, input.key);
    this.#keptBytes += bytes.length;
    const contentType = input.contentType ?? "application/octet-stream";
    this.#changed.set(input.key, { bytes, contentType, at: new Date() });
    return { key: input.key, existed, bytes: bytes.length, content_type: contentType };
  }

  async delete(call: HostCall, { key }: { key: string }): Promise<StoreChange> {
    const existed = await this.#exists(call, key);
    this.#changed.set(key, null);
    return { key, existed };
  }

  /** Everything that changes nothing. */
  async read(call: HostCall): Promise<HostAnswer> {
    const input = JSON.parse(call.text) as { key: string; streamId?: number; prefix?: string };
    switch (call.op) {
      case "store.get": {
        const kept = this.#changed.get(input.key);
        return kept === undefined ? this.#store.call(call) : shownObject(kept);
      }
      case "store.list":
        return this.#list(call, input.prefix ?? "");
      case "store.push":
        return this.#streams.push(this.#streamKey(call, input.streamId), call.bytes);
      case "store.finish":
        return this.#streams.finish(this.#streamKey(call, input.streamId));
      case "store.cancel":
        this.#streams.cancel(this.#streamKey(call, input.streamId));
        return this.#store.call(call);
      default:
        return this.#store.call(call);
    }
  }

  async #list(call: HostCall, prefix: string): Promise<HostAnswer> {
    const { text = "{}" } = await this.#store.call(call);
    const { objects } = JSON.parse(text) as { objects: Listed[] };
    const listed = objects.filter(({ key }) => !this.#changed.has(key));
    for (const [key, kept] of this.#changed)
      if (kept && key.startsWith(prefix)) listed.push({ key, size: kept.bytes.length, last_modified: kept.at.toISOString() });
    listed.sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    return { text: JSON.stringify({ objects: listed, next: null }) };
  }

  async #exists(call: HostCall, key: string): Promise<boolean> {
    const kept = this.#changed.get(key);
    if (kept !== undefined) return kept !== null;
    const streamId = `dry-${++this.#asked}`;
    const ask = (op: string): Promise<HostAnswer> => this.#store.call({ ...call, op, text: JSON.stringify({ key, streamId }) });
    const { text = "{}" } = await ask("store.get");
    await ask("store.cancel");
    return (JSON.parse(text) as { status: number }).status !== 404;
  }

  #streamKey(call: HostCall, streamId: unknown): string {
    return `dry/${call.streamKey(streamId)}`;
  }

  forget(run: RunAccount): void {
    this.#streams.forget(run);
    this.#changed.clear();
  }
}

function shownObject(kept: Kept | null): HostAnswer {
  if (kept === null) return { text: JSON.stringify({ status: 404, headers: [], bodyKind: "none" }) };
  const headers = ["content-type", kept.contentType, "content-length", String(kept.bytes.length), "last-modified", kept.at.toUTCString()];
  return { text: JSON.stringify({ status: 200, headers, bodyKind: "full" }), bytes: kept.bytes };
}
