import { anyOf } from "../../http/access.ts";
import { stillHolds } from "../../http/credentials.ts";
import { idParams } from "../../http/fields.ts";
import { notFound } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { streamEvents } from "../../http/sse.ts";
import { agentSubject, findAgent, heraldSubject } from "./agent.ts";

/** The stream of one agent: its mailbox's messages and the organisation's herald events. */
export const agentStream = route({
  method: "GET",
  path: "/v1/agents/{id}/stream",
  summary: "Stream an agent's events (server-sent events)",
  description:
    "For the agent's own key. Every event has an `id:`; `Last-Event-ID` goes on from there with nothing missed, for 24 hours (before that an `event: gap`). A comment every 15 seconds. Ends within a second of the key's revocation.",
  access: anyOf(["agent_key"]),
  params: idParams,
  load: async ({ deps, caller, params }) => {
    if (params.id !== caller.agent?.id) throw notFound(`the agent ${params.id}`); // an agent's key is for its agent
    return findAgent(deps.db, caller, params.id);
  },
  responses: { 200: { description: "The stream", contentType: "text/event-stream" } },
  handler: (context) =>
    streamEvents(context, {
      filter: { org_id: context.caller.org.id, subjects: [agentSubject(context.resource.id), heraldSubject] },
      isAlive: () => stillHolds(context.deps, context.request),
    }),
});
