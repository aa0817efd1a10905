import type { z } from "zod";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { refuse } from "../../http/refusal.ts";
import type { Context } from "../../http/route.ts";
import { type Method, type RawBody, type Reply, type ResponseSpec, type Route, route } from "../../http/route.ts";
import { findKap, type KapRow, refuseDeleted } from "../kaps/kap.ts";

/** What a store token must be allowed to do (decided §7.3). */
export type StoreScope = "db.read" | "db.write" | "store.read" | "store.write";

interface DataRouteInput<Q extends z.ZodType | undefined, B extends z.ZodType | undefined> {
  method: Method;
  /** Appended to either base. */
  suffix: string;
  summary: string;
  scope: StoreScope;
  query?: Q;
  body?: B | undefined;
  rawBody?: RawBody;
  bodyLimit?: number;
  responses: Record<number, ResponseSpec>;
  limit?: "store";
  handler: (
    context: Context<
      Record<string, string>,
      Q extends z.ZodType<infer T> ? T : Record<string, never>,
      B extends z.ZodType<infer T> ? T : undefined,
      KapRow
    >,
  ) => Promise<Reply>;
}

/**
 * A per-kap data route on its two equivalent bases (spec 3 §4 B). Members need `kaps.data`; a `kst1_` token (on the `/v1/kaps` base only,
 * spec 3 §5 B.4) needs the scope; a runtime may touch its own kap's files. A deleted kap's data answer 410.
 */
export function dataRoutes<Q extends z.ZodType | undefined = undefined, B extends z.ZodType | undefined = undefined>(
  input: DataRouteInput<Q, B>,
): Route[] {
  const { suffix, scope, handler, ...rest } = input;
  const base = (prefix: string, withTokens: boolean): Route =>
    route({
      ...(rest as Omit<typeof rest, "query" | "body">),
      query: input.query as z.ZodType,
      body: input.body as z.ZodType | undefined,
      path: `${prefix}${suffix}`,
      access: members("kaps.data", { otherKinds: 401, also: withTokens ? ["store_token", "runtime"] : [] }),
      async load({ deps, caller, params }) {
        const kap = await findKap(deps.db, caller, (params as Record<string, string>).id ?? "");
        checkScope(caller, scope);
        return kap;
      },
      async handler(context) {
        const known = context as unknown as Parameters<typeof handler>[0];
        refuseDeleted(known.resource);
        return handler(known);
      },
    } as Parameters<typeof route>[0]);
  return [base("/v1/orgs/{org_id}/kaps/{id}", false), base("/v1/kaps/{id}", true)];
}

function checkScope(caller: Caller, scope: StoreScope): void {
  if (caller.kind === "store_token" && !caller.scopes.includes(scope)) {
    throw refuse("FORBIDDEN", `scope required: ${scope} (this token has ${caller.scopes.join(", ")}; mint one that has it)`);
  }
  if (caller.kind === "runtime" && !scope.startsWith("store."))
    throw refuse("FORBIDDEN", "a runtime reaches its database directly, not through this route");
}
