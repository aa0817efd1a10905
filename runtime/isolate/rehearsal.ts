import { closeSync, openSync } from "node:fs";
import { duplexPair } from "node:stream";
import { text } from "node:stream/consumers";
import { BoardWriter } from "../seam/flight-board.ts";
import type { LoadHead } from "../seam/records.ts";
import { createDataListener } from "./data-listener.ts";
import { Engine } from "./engine.ts";
import type { RunLink } from "./link.ts";
import type { Sandbox } from "./sandbox.ts";

/** Reads and answers as most programs do. */
const bundle = `"use strict";(async () => ({ "main.ts": async () => ({ default: {
  async fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    const sent = request.method === "POST" ? await request.json() : searchParams.get("n");
    return Response.json({ pathname, sent, accept: request.headers.get("accept") });
  },
} }) }))()`;

const kapId = "rehearsal";
const head: LoadHead = {
  revision: 1,
  kap: { id: kapId, slug: kapId, name: kapId },
  version_id: kapId,
  triggers: [{ id: kapId, kind: "request", file_path: "main.ts" }],
  secrets: {},
  program: { bundle_bytes: bundle.length, map_bytes: 0, cache_bytes: 0 },
  limits: {
    memory_mb: 8,
    request_wall_ms: 5_000,
    background_wall_ms: 5_000,
    request_cpu_ms: 5_000,
    background_cpu_ms: 5_000,
    request_body_bytes: 1_024,
    response_body_bytes: 1_024,
    concurrency: 1,
    queue: 1,
    fetches: 1,
    fetch_bytes: 1,
    log_lines: 1,
    log_line_bytes: 64,
    db_statement_ms: 1,
    db_rows: 1,
    db_result_bytes: 1,
    db_bytes: 1,
    store_object_bytes: 1,
  },
  fresh: true,
};

const silent: RunLink = { send: () => undefined, addLine: () => undefined, addRun: () => undefined, flush: () => undefined };

const body = JSON.stringify({ hello: "world" });
const fields = `host: rehearsal\r\naccept: */*\r\nx-kapstone-kap: ${kapId}\r\nx-kapstone-revision: 1\r\n`;
const requests = [
  `GET /?n=1 HTTP/1.1\r\n${fields}\r\n`,
  `POST / HTTP/1.1\r\n${fields}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
];

/**
 * Serves two requests of its own while nobody waits: code that runs for the first time is compiled then, in this process and in the kit. All of it is
 * its own and dropped afterwards: connection, context, runs, the board, what would have been reported. Answers what the "caller" saw.
 */
export async function rehearse(sandbox: Sandbox): Promise<string> {
  const board = openSync("/dev/null", "w");
  const engine = new Engine(sandbox, silent, new BoardWriter(board));
  engine.load(head, { bundle, map: null, cache: null });
  const listener = createDataListener(() => engine);
  let seen = "";
  for (const request of requests) {
    const [caller, connection] = duplexPair();
    listener.emit("connection", connection);
    caller.write(request);
    seen += await text(caller);
  }
  if (engine.runs.size > 0)
    await new Promise<void>((resolve) => {
      engine.onIdle = resolve;
    });
  engine.close();
  // What the board has left to write is written with this turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
  closeSync(board);
  return seen;
}
