import { Readable } from "node:stream";
import { composeAssignment, signAssignment } from "../gateway/assignment.ts";
import { refuse } from "../http/refusal.ts";
import type { InternalRoute } from "./internal-route.ts";

/** A runtime asks for what it should serve now: the answer to a revision it has not got yet. */
export const assignmentRoute: InternalRoute = {
  method: "GET",
  path: "/internal/runtimes/:runtime_id/assignment",
  token: "runtime",
  async handler({ deps, runtime, request }) {
    if (!runtime) throw refuse("GONE", "this runtime no longer serves a kap");
    const token = (request.headers.authorization ?? "").slice("Bearer ".length);
    const signed = signAssignment(deps.config.claimKey, await composeAssignment(deps, runtime.kap_id, { id: runtime.id, token }));
    const headers = { "content-type": "application/octet-stream", "content-length": String(signed.length) };
    return { status: 200, headers, stream: Readable.from([signed]) };
  },
};
