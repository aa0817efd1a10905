import { Readable } from "node:stream";
import fc from "fast-check";
import { expect, test } from "vitest";
import { readWatchEvents, type WatchEvent } from "./watch-stream.ts";

interface Named {
  metadata: { name: string };
}

async function read(chunks: Iterable<Buffer | string>): Promise<WatchEvent<Named>[]> {
  const events: WatchEvent<Named>[] = [];
  for await (const event of readWatchEvents<Named>(Readable.from([...chunks].map((chunk) => Buffer.from(chunk))))) events.push(event);
  return events;
}
const line = (type: string, name: string): string => `${JSON.stringify({ type, object: { metadata: { name } } })}\n`;

test("events come out as they went in, wherever the stream is cut into chunks", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.string({ unit: "grapheme" })), fc.array(fc.nat({ max: 200 })), async (names, cuts) => {
      const bytes = Buffer.from(names.map((name) => line("ADDED", name)).join(""));
      const at = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
      const chunks = [0, ...at].map((from, i) => bytes.subarray(from, [...at, bytes.length][i]));
      expect((await read(chunks)).map(({ object }) => object.metadata.name)).toEqual(names);
    }),
  );
});

test("a stream that ends inside an event is no orderly end", async () => {
  await expect(read([line("ADDED", "a"), '{"type":"ADD'])).rejects.toThrow(/broke off inside an event/);
  await expect(read([line("ADDED", "a")])).resolves.toHaveLength(1);
});

test("an ERROR event is thrown with its status and the pause it asks for", async () => {
  const gone = { type: "ERROR", object: { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" } };
  await expect(read([`${JSON.stringify(gone)}\n`])).rejects.toMatchObject({ status: 410, reason: "Expired" });
  const busy = { type: "ERROR", object: { code: 429, reason: "TooManyRequests", details: { retryAfterSeconds: 7 } } };
  await expect(read([`${JSON.stringify(busy)}\n`])).rejects.toMatchObject({ status: 429, retryAfterMs: 7_000 });
});

test("what is no event is not passed over", async () => {
  await expect(read(["<html>\n"])).rejects.toThrow(/something that is no event/);
  await expect(read([line("PATCHED", "a")])).rejects.toThrow(/unknown type "PATCHED"/);
});

test("an event without an end does not fill the memory", async () => {
  function* endless(): Generator<Buffer> {
    for (let i = 0; i < 100; i++) yield Buffer.alloc(1_048_576, "x");
  }
  await expect(read(endless())).rejects.toThrow(/larger than 8 MiB/);
});
