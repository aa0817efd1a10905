import type { IncomingMessage, ServerResponse } from "node:http";
import type { Deps } from "./deps.ts";
import { serveKap } from "./gateway/gateway.ts";
import { isDoorway, serveDoorway } from "./gateway/hand-over.ts";
import type { Service } from "./http/route.ts";
import { createServiceApp } from "./http/serve.ts";
import { assignmentRoute } from "./internal/assignment-route.ts";
import type { InternalRoute } from "./internal/internal-route.ts";
import { agentsService } from "./services/agents/agents.ts";
import { authService, identityService } from "./services/auth/auth.ts";
import { deploymentsService } from "./services/deployments/deployments.ts";
import { createDocumentationService } from "./services/documentation/documentation.ts";
import { kapArchiveService } from "./services/kap-archive/kap-archive.ts";
import { kapDataService } from "./services/kap-data/kap-data.ts";
import { kapsService } from "./services/kaps/service.ts";
import { orgsService } from "./services/orgs/orgs.ts";
import { pagesService } from "./services/pages/pages.ts";
import { internalRoutes as runInternalRoutes } from "./services/runs/internal.ts";
import { runsService } from "./services/runs/service.ts";
import { secretsService } from "./services/secrets/service.ts";
import { internalRoutes as triggerInternalRoutes } from "./services/triggers/internal.ts";
import { triggersService } from "./services/triggers/service.ts";

/** Every service of the platform. Adding one here is all it takes to serve, validate and document it. */
export const services: Service[] = [
  authService,
  identityService,
  orgsService,
  agentsService,
  deploymentsService,
  kapsService,
  kapDataService,
  kapArchiveService,
  runsService,
  secretsService,
  triggersService,
  pagesService,
];
services.push(createDocumentationService(services));

/** Routes of the internal listener. */
export const internalRoutes: readonly InternalRoute[] = [assignmentRoute, ...runInternalRoutes, ...triggerInternalRoutes];

/** The handler of all services, without the gateway: what the internal listener passes a runtime's file store calls to. */
export function createServices(deps: Deps): (request: IncomingMessage, response: ServerResponse) => void {
  return createServiceApp(deps, services);
}

/** The public listener's handler: kap hosts go to the gateway before any framework, everything else to the services. */
export function createApp(deps: Deps, app = createServices(deps)): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const host = deps.addresses.read(request.headers.host);
    if (host.zone === "kap" && isDoorway(request.url)) void serveDoorway(deps, host.slug, request, response);
    else if (host.zone === "kap" || host.zone === "runtime") void serveKap(deps, host, request, response);
    else app(request, response);
  };
}
