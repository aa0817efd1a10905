import type { EventFilter, LoggedEvent } from "#platform/events.ts";
import { unauthenticated } from "./access.ts";
import type { Caller } from "./caller.ts";
import type { Context, Reply } from "./route.ts";

const heartbeatMs = 15_000;
const recheckMs = 500;
const batch = 200;

/** Formats one server-sent event. */
export function formatEvent(event: { id?: string; event?: string; data: unknown }): string {
  const id = event.id === undefined ? "" : `id: ${event.id}\n`;
  const name = event.event === undefined ? "" : `event: ${event.event}\n`;
  return `${id}${name}data: ${JSON.stringify(event.data)}\n\n`;
}

export interface StreamOptions {
  filter: EventFilter;
  /** Event name and data of a logged event. */
  present?: (event: LoggedEvent) => { event: string; data: unknown };
  /** Whether the caller may still read: asked twice a second; when not, the stream ends (decided §3: within a second of revocation). */
  isAlive: () => Promise<boolean>;
}

/**
 * Streams the event log to one caller as server-sent events: `id:` on every event is its commit-ordered position, `Last-Event-ID` resumes
 * with nothing missed; an id that is unreadable or older than what is kept gets an `event: gap` first. A comment every 15 seconds keeps
 * proxies from closing the stream.
 */
export async function streamEvents(context: Context<unknown, unknown, unknown, unknown, Caller>, options: StreamOptions): Promise<Reply> {
  const { deps, request, response, signal } = context;
  if (!(await options.isAlive())) throw unauthenticated();
  const present = options.present ?? ((event: LoggedEvent) => ({ event: event.kind, data: event.payload }));
  const resume = await startOf(context);
  response.writeHead(200, {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    connection: "close",
  });
  if (request.method === "HEAD") {
    response.end();
    return { status: 200 };
  }
  request.socket.setKeepAlive(true);
  response.write(": connected\n\n");
  if (resume.gap)
    response.write(
      formatEvent({
        id: String(resume.position),
        event: "gap",
        data: { message: "events before this point are no longer kept: read the present state" },
      }),
    );
  let position = resume.position;
  let changed = true;
  let wake = (): void => undefined;
  const stop = deps.events.onChange(() => {
    changed = true;
    wake();
  });
  signal.addEventListener("abort", () => wake());
  let lastWriteMs = Date.now();
  try {
    while (!signal.aborted && !response.destroyed) {
      if (changed) {
        changed = false;
        const events = await deps.events.read(options.filter, position, batch);
        for (const event of events) {
          position = event.position;
          if (!response.write(formatEvent({ id: String(event.position), ...present(event) }))) await drained(response, signal);
          lastWriteMs = Date.now();
        }
        if (events.length === batch) changed = true;
      }
      if (Date.now() - lastWriteMs >= heartbeatMs) {
        response.write(": \n\n");
        lastWriteMs = Date.now();
      }
      if (!(await options.isAlive())) break;
      if (!changed) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, recheckMs);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
    }
  } finally {
    stop();
    response.end();
  }
  return { status: 200 };
}

async function startOf(context: Context<unknown, unknown, unknown, unknown, Caller>): Promise<{ position: number; gap: boolean }> {
  const { events } = context.deps;
  const header = context.request.headers["last-event-id"];
  const head = await events.head();
  if (header === undefined) return { position: head, gap: false };
  const position = typeof header === "string" && /^\d{1,15}$/.test(header) ? Number(header) : Number.NaN;
  const oldest = await events.oldest();
  if (Number.isNaN(position) || position > head) return { position: head, gap: true };
  if (position + 1 < oldest) return { position: oldest - 1, gap: true };
  return { position, gap: false };
}

function drained(response: { once(event: string, listener: () => void): unknown }, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    response.once("drain", resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
