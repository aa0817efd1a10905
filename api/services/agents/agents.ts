import type { Service } from "../../http/route.ts";
import { agentKeyRoutes } from "./agent-key-routes.ts";
import { agentRoutes } from "./agent-routes.ts";
import { agentStream } from "./stream-route.ts";

/** Agents, their keys and their streams. */
export const agentsService: Service = {
  name: "agents",
  envelope: "nested",
  bodyLimit: 1024 * 1024,
  routes: [...agentRoutes, ...agentKeyRoutes, agentStream],
};
