import type { IncomingMessage } from "node:http";
import type { Deps } from "../deps.ts";
import type { Reply } from "../http/route.ts";

/** Which part of the platform may call: a runtime with its own token, mail ingest, or the schedule driver. */
export type InternalToken = "runtime" | "ingest" | "fire";

export interface InternalContext {
  deps: Deps;
  params: Record<string, string>;
  request: IncomingMessage;
  /** Of token `runtime`: which runtime calls and the kap it serves. */
  runtime: { id: string; kap_id: string } | null;
  signal: AbortSignal;
}

/** A route of the internal listener, which only parts of the platform reach. `path` is written with `:name` parameters. */
export interface InternalRoute {
  method: "GET" | "POST";
  path: string;
  token: InternalToken;
  handler(context: InternalContext): Promise<Reply>;
}
