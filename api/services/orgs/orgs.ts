import type { Service } from "../../http/route.ts";
import { appTokenRoutes } from "./app-token-routes.ts";
import { projectRoutes, workspaceRoutes } from "./scoping-routes.ts";

/** What an organisation is divided into (workspaces, projects) and what integrations reach it with (app tokens). */
export const orgsService: Service = {
  name: "orgs",
  envelope: "nested",
  bodyLimit: 1024 * 1024,
  routes: [...appTokenRoutes, ...workspaceRoutes, ...projectRoutes],
};
