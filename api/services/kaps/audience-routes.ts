import { invalid } from "../../http/refusal.ts";
import { type Route, route } from "../../http/route.ts";
import { policyOf, readInvited, setAudience } from "./audience.ts";
import { newestEvents } from "./history.ts";
import { kapBase, loadKap, readers, writers } from "./kap-access.ts";
import { confirmPublicRequired } from "./kap-routes.ts";
import { answers, bodies, kapPath } from "./schema.ts";

const shownEvents = 200;

/** Who may reach a kap. */
export const audienceRoutes: readonly Route[] = [
  route({
    method: "GET",
    path: `${kapBase}/audience`,
    summary: "Read who may reach a kap, and how that came to be",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "The policy and its newest 200 changes; the kap's history has all", schema: answers.audience } },
    async handler({ deps, resource: kap }) {
      const events = await newestEvents(deps.db, kap.id, "audience.changed", shownEvents);
      return { status: 200, body: { policy: policyOf(kap), events } };
    },
  }),
  route({
    method: "PUT",
    path: `${kapBase}/audience`,
    summary: "Change who may reach a kap",
    description:
      "`members` of the organisation, the `invited` (entries are an address or @domain; members only if listed), or `public`, which needs `confirm_public: true`. " +
      "`base_revision` must be the policy's revision, else 409 `AUDIENCE_CONFLICT`.",
    access: writers,
    params: kapPath,
    load: loadKap,
    body: bodies.audience,
    responses: { 200: { description: "The policy, and whether it changed", schema: answers.audienceChanged } },
    async handler({ deps, caller, client, resource: kap, body }) {
      const { invited, problems } = readInvited(body.invited);
      if (problems.length > 0) throw invalid(...problems);
      if (body.audience === "public" && kap.audience !== "public" && !body.confirm_public) throw confirmPublicRequired();
      const wanted = { audience: body.audience, invited, base: body.base_revision };
      return { status: 200, body: await setAudience(deps, caller, client, kap.id, wanted) };
    },
  }),
];
