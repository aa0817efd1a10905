import { createReadStream } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { z } from "zod";
import { checkReadiness } from "#platform/metrics.ts";
import { open } from "../../http/access.ts";
import { createOpenApi } from "../../http/openapi.ts";
import { notFound } from "../../http/refusal.ts";
import { type Route, route, type Service } from "../../http/route.ts";
import { readinessChecks } from "../../internal/health.ts";

const assets: Record<string, string> = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
  "favicon-32x32.png": "image/png",
};

/** Everything on the page comes from this host: no outside address is asked for anything. */
const pagePolicy =
  "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kapstone API</title>
<link rel="icon" href="/docs/assets/favicon-32x32.png">
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/assets/start.js"></script>
</body>
</html>
`;
const startScript = `SwaggerUIBundle({ url: "/v1/openapi.json", dom_id: "#api", deepLinking: true, docExpansion: "none", filter: true, validatorUrl: null });\n`;

/** The API's description of itself (generated from the schemas that validate), the page that shows it, and health. `services` is the live list of all. */
export function createDocumentationService(services: readonly Service[]): Service {
  let document: Record<string, unknown> | undefined;
  const swagger = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));
  const routes: Route[] = [
    route({
      method: "GET",
      path: "/v1/openapi.json",
      summary: "The OpenAPI description of every route",
      access: open(),
      responses: { 200: { description: "OpenAPI 3.1", schema: z.looseObject({ openapi: z.string() }) } },
      async handler({ deps }) {
        document ??= createOpenApi(services, deps.addresses.api);
        return { status: 200, body: document, headers: { "cache-control": "no-cache" } };
      },
    }),
    route({
      method: "GET",
      path: "/docs",
      summary: "The description as a page",
      access: open(),
      responses: { 200: { description: "A page", contentType: "text/html" } },
      async handler({ response }) {
        response
          .writeHead(200, {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": pagePolicy,
            "referrer-policy": "no-referrer",
          })
          .end(page);
        return { status: 200 };
      },
    }),
    route({
      method: "GET",
      path: "/docs/assets/{name}",
      summary: "A file of the page",
      access: open(),
      responses: { 200: { description: "The file", contentType: "application/octet-stream" } },
      async handler({ params, response }) {
        if (params.name === "start.js") {
          response.writeHead(200, { "content-type": "text/javascript; charset=utf-8" }).end(startScript);
          return { status: 200 };
        }
        const type = assets[params.name ?? ""];
        if (!type) throw notFound(`the file ${params.name}`);
        return {
          status: 200,
          stream: createReadStream(join(swagger, params.name ?? "")),
          headers: { "content-type": type, "cache-control": "public, max-age=3600", "content-security-policy": pagePolicy },
        };
      },
    }),
    route({
      method: "GET",
      path: "/healthz",
      summary: "Whether the process is alive",
      access: open(),
      responses: { 200: { description: "Alive", schema: z.object({ status: z.literal("ok") }) } },
      async handler() {
        return { status: 200, body: { status: "ok" } };
      },
    }),
    route({
      method: "GET",
      path: "/readyz",
      summary: "Whether every part works, each by name",
      access: open(),
      responses: {
        200: { description: "All work", schema: z.object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) }) },
        503: { description: "At least one is down", schema: z.object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) }) },
      },
      async handler({ deps }) {
        const state = await checkReadiness(readinessChecks(deps));
        return { status: state.ready ? 200 : 503, body: state };
      },
    }),
  ];
  return { name: "documentation", envelope: "nested", routes };
}
