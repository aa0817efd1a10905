import { z } from "zod";
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiPathsObject } from "zod-openapi";
import type { Access } from "./access.ts";
import type { EnvelopeName } from "./envelopes.ts";
import type { Route, Service } from "./route.ts";

const detail = z.unknown().optional();
const envelopeSchemas: Record<EnvelopeName, z.ZodType> = {
  nested: z.looseObject({ error: z.object({ code: z.string(), message: z.string(), details: detail }) }).meta({ id: "Error" }),
  flat: z.looseObject({ error: z.string(), message: z.string(), details: detail }).meta({ id: "AuthError" }),
  kaps: z.looseObject({ error: z.object({ code: z.string(), message: z.string(), details: z.unknown() }) }).meta({ id: "KapsError" }),
  artifacts: z.looseObject({ error: z.string(), code: z.number(), detail: z.string() }).meta({ id: "ArtifactsError" }),
};

const refusals: Record<number, string> = {
  400: "Malformed request",
  401: "No valid credential",
  403: "The credential may not do this",
  404: "Not here, or another organisation's",
  405: "Not a method of this path",
  409: "In conflict with the present state",
  410: "Gone",
  413: "Over a size limit",
  415: "Wrong content type",
  422: "Not valid; details name each field",
  429: "Over a rate limit; Retry-After says when",
  500: "Our fault; the request id finds it in the log",
  503: "A part is away; try again",
};

/** The access rule of a route in words a reader of the contract knows. */
export function accessOf(access: Access): Record<string, unknown> {
  return access.open
    ? { open: true }
    : { kinds: access.kinds, scope: access.scope, permission: access.permission, other_kinds: access.otherKinds };
}

/** The OpenAPI document of all services, from the same declarations that validate. */
export function createOpenApi(services: readonly Service[], server: string): Record<string, unknown> {
  const paths: ZodOpenApiPathsObject = {};
  for (const service of services) {
    for (const route of service.routes) {
      const path = route.path.replaceAll("*}", "}");
      paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(service, route) };
    }
  }
  return createDocument({
    openapi: "3.1.0",
    info: { title: "Kapstone", version: "1", description: "Artifacts, knowledge and kaps of organisations and their agents." },
    servers: [{ url: server }],
    paths,
    components: {
      securitySchemes: {
        key: { type: "apiKey", in: "header", name: "x-api-key" },
        bearer: { type: "http", scheme: "bearer" },
        cookie: { type: "apiKey", in: "cookie", name: "kapstone_session" },
      },
    },
  }) as unknown as Record<string, unknown>;
}

function operation(service: Service, route: Route): ZodOpenApiOperationObject {
  const error = { "application/json": { schema: envelopeSchemas[service.envelope] } };
  const responses: Record<string, object> = {};
  for (const [status, spec] of Object.entries(route.responses)) {
    const type = spec.contentType ?? (spec.schema ? "application/json" : undefined);
    responses[status] = { description: spec.description, ...(type ? { content: { [type]: { schema: spec.schema ?? z.string() } } } : {}) };
  }
  for (const [status, description] of Object.entries(refusals)) responses[status] ??= { description, content: error };
  const requestBody = route.rawBody
    ? {
        description: route.rawBody.description,
        content: Object.fromEntries(route.rawBody.contentTypes.map((type) => [type, { schema: z.string().meta({ format: "binary" }) }])),
      }
    : route.body
      ? { required: !route.bodyOptional, content: { "application/json": { schema: route.body } } }
      : undefined;
  const names = [...route.path.matchAll(/\{(\w+)\*?\}/g)].map((match) => match[1] as string);
  const pathParams =
    route.params instanceof z.ZodObject ? route.params : z.object(Object.fromEntries(names.map((name) => [name, z.string()])));
  return {
    operationId: `${route.method.toLowerCase()}${route.path.replace(/[^A-Za-z0-9]+/g, "_")}`,
    tags: [service.name],
    summary: route.summary,
    ...(route.description ? { description: route.description } : {}),
    ...(route.deprecatedUntil ? { deprecated: true } : {}),
    ...(route.access.open ? { security: [] } : { security: [{ key: [] }, { bearer: [] }, { cookie: [] }] }),
    requestParams: {
      ...(names.length > 0 ? { path: pathParams } : {}),
      ...(route.query instanceof z.ZodObject ? { query: route.query } : {}),
    },
    ...(requestBody ? { requestBody } : {}),
    responses,
    "x-access": accessOf(route.access),
  } as ZodOpenApiOperationObject;
}
