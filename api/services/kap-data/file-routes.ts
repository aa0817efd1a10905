import type { IncomingMessage } from "node:http";
import { finished, PassThrough, type Readable } from "node:stream";
import { z } from "zod";
import { defaultContentType, NoSuchBucket, ObjectTooLarge } from "#platform/objects/store.ts";
import { storeObjectBytes } from "../../gateway/limits.ts";
import { hasBody } from "../../http/body.ts";
import { Refusal, refuse } from "../../http/refusal.ts";
import type { Route } from "../../http/route.ts";
import { dataRoutes } from "./data-route.ts";
import { listAll, tarOf } from "./file-tar.ts";
import { checkObjectKey } from "./object-key.ts";
import { readRange } from "./range.ts";
import { countStored, roomFor, storeFull } from "./store-quota.ts";

const keyQuery = z.object({ key: z.string() });
const fileEntry = z.object({ key: z.string(), size: z.number().int(), last_modified: z.date(), etag: z.string() });

function fileNotFound(key: string): Refusal {
  return refuse("NOT_FOUND", `no file ${JSON.stringify(key)} in this kap's store: see GET …/store/files`);
}

/** A name for a download, safe in a header: ASCII, and the real one beside it (RFC 6266). */
function attachment(key: string): string {
  const name = key.split("/").filter(Boolean).at(-1) ?? "file";
  return `attachment; filename="${name.replace(/[^\x20-\x7e]|["\\]/g, "_")}"; filename*=UTF-8''${encodeURIComponent(name).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)}`;
}

/** A body as the store reads it, and destroys it. One of unknown length may turn out too large: its request is spared, so that its refusal reaches the client. */
function bodyOf(request: IncomingMessage, declaredBytes: number | null): Readable {
  if (declaredBytes !== null) return request;
  const body = new PassThrough();
  finished(request, { writable: false }, (error) => {
    if (error) body.destroy(error);
  });
  return request.pipe(body);
}

/** The file store of a kap: list, put, get, delete, and everything as one tar (spec 3 §4 B). */
export const fileRoutes: Route[] = [
  ...dataRoutes({
    method: "GET",
    suffix: "/store/files",
    summary: "All files of the kap's store; all pages followed",
    scope: "store.read",
    query: z.object({ prefix: z.string().max(1_024).optional() }),
    responses: { 200: { description: "Files in the order of their keys' bytes", schema: z.object({ files: z.array(fileEntry) }) } },
    async handler({ deps, resource: kap, query }) {
      const files: z.infer<typeof fileEntry>[] = [];
      for await (const object of listAll(deps.objects, kap.bucket, query.prefix)) {
        files.push({ key: object.key, size: object.sizeBytes, last_modified: object.lastModified, etag: object.etag });
      }
      return { status: 200, body: { files } };
    },
  }),
  ...dataRoutes({
    method: "PUT",
    suffix: "/store/files/object",
    summary: "Stores the raw body as a file, replacing what was there",
    scope: "store.write",
    limit: "store",
    query: keyQuery,
    rawBody: { raw: true, description: "The file's bytes, at most 30 MiB", contentTypes: ["*/*"] },
    bodyLimit: storeObjectBytes,
    responses: { 200: { description: "Stored durably", schema: z.object({ stored: z.literal(true), key: z.string() }) } },
    async handler({ deps, resource: kap, query, request, signal }) {
      const key = checkObjectKey(query.key);
      const declaredBytes = request.headers["transfer-encoding"] === undefined ? Number(request.headers["content-length"] ?? 0) : null;
      const room = await roomFor(deps, kap, key, declaredBytes);
      const body = hasBody(request) ? bodyOf(request, declaredBytes) : Buffer.alloc(0);
      const contentType = request.headers["content-type"] ?? defaultContentType;
      try {
        const maxBytes = Math.min(storeObjectBytes, room);
        const { sizeBytes } = await deps.objects.put(kap.bucket, key, body, { contentType, maxBytes, signal });
        if (declaredBytes === null) countStored(kap.bucket, sizeBytes);
      } catch (error) {
        if (error instanceof ObjectTooLarge) {
          if (room < storeObjectBytes) throw storeFull(deps.config, room);
          throw refuse("PAYLOAD_TOO_LARGE", `a file is at most ${storeObjectBytes} bytes: send a smaller one`);
        }
        if (!(error instanceof NoSuchBucket)) throw error;
        await deps.objects.ensureBucket(kap.bucket);
        throw new Refusal(503, "UNAVAILABLE", "the kap's file store was being made: send the file again", {
          headers: { "retry-after": "1" },
        });
      }
      return { status: 200, body: { stored: true, key } };
    },
  }),
  ...dataRoutes({
    method: "GET",
    suffix: "/store/files/object",
    summary: "A file's bytes with its content type, as an attachment; ranges are honoured",
    scope: "store.read",
    limit: "store",
    query: keyQuery,
    responses: {
      200: { description: "The bytes", contentType: "application/octet-stream" },
      206: { description: "The range asked for", contentType: "application/octet-stream" },
      416: { description: "No byte lies in the range" },
    },
    async handler({ deps, resource: kap, query, request, signal }) {
      const key = checkObjectKey(query.key);
      const rangeHeader = request.headers.range;
      const found = rangeHeader === undefined ? null : await deps.objects.head(kap.bucket, key);
      const range = found ? readRange(rangeHeader, found.sizeBytes) : null;
      if (range === "unsatisfiable") {
        throw new Refusal(416, "RANGE_NOT_SATISFIABLE", `the file has ${found?.sizeBytes} bytes and none lies in the range`, {
          headers: { "content-range": `bytes */${found?.sizeBytes}` },
        });
      }
      const object = await deps.objects.get(kap.bucket, key, { ...(range ? { range } : {}), signal });
      if (!object) throw fileNotFound(key);
      const length = range ? range.end - range.start + 1 : object.sizeBytes;
      return {
        status: range ? 206 : 200,
        stream: object.body,
        headers: {
          "content-type": object.contentType,
          "content-length": String(length),
          "content-disposition": attachment(key),
          "accept-ranges": "bytes",
          "last-modified": object.lastModified.toUTCString(),
          etag: `"${object.etag}"`,
          // Files are the kap's, so other people's: a browser must never run one on the platform's own hosts.
          "content-security-policy": "sandbox; default-src 'none'",
          ...(range ? { "content-range": `bytes ${range.start}-${range.end}/${object.sizeBytes}` } : {}),
        },
      };
    },
  }),
  ...dataRoutes({
    method: "DELETE",
    suffix: "/store/files/object",
    summary: "Removes a file",
    scope: "store.write",
    limit: "store",
    query: keyQuery,
    responses: { 200: { description: "Removed", schema: z.object({ deleted: z.literal(true), key: z.string() }) } },
    async handler({ deps, resource: kap, query }) {
      const key = checkObjectKey(query.key);
      if (!(await deps.objects.delete(kap.bucket, key))) throw fileNotFound(key);
      return { status: 200, body: { deleted: true, key } };
    },
  }),
  ...dataRoutes({
    method: "GET",
    suffix: "/store/files/export",
    summary: "All files as one tar, streamed",
    scope: "store.read",
    responses: { 200: { description: "A tar", contentType: "application/x-tar" } },
    async handler({ deps, resource: kap, signal }) {
      return {
        status: 200,
        stream: tarOf(deps.objects, kap.bucket, signal),
        headers: { "content-type": "application/x-tar", "content-disposition": 'attachment; filename="files.tar"' },
      };
    },
  }),
];
