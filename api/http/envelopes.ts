import type { Refusal } from "./refusal.ts";

/** How a service words its errors (spec 1 §7, spec 2 §7, spec 3 §7). */
export type EnvelopeName = "nested" | "flat" | "kaps" | "artifacts";
export type Envelope = (refusal: Refusal) => Record<string, unknown>;

const artifactWords: Record<string, string> = {
  BAD_REQUEST: "bad-request",
  VALIDATION_FAILED: "unprocessable",
};

/** The body of a refusal in each envelope. */
export const envelopes: Record<EnvelopeName, Envelope> = {
  nested: ({ code, message, options }) => ({
    error: { code, message, ...(options.details === undefined ? {} : { details: options.details }) },
    ...options.fields,
  }),
  flat: ({ code, message, options }) => ({
    error: code,
    message,
    ...(options.details === undefined ? {} : { details: options.details }),
    ...options.fields,
  }),
  kaps: ({ code, message, options }) => ({ error: { code, message, details: options.details ?? null }, ...options.fields }),
  artifacts: ({ code, status, message, options }) => ({
    error: artifactWords[code] ?? code.toLowerCase().replaceAll("_", "-"),
    code: status,
    detail: message,
    ...(options.details === undefined ? {} : { details: options.details }),
    ...options.fields,
  }),
};

const kapsPath = /^\/v1\/(?:kaps(?:\/|$)|orgs\/[^/]+\/(?:kaps|recovery|usage|secret-groups)(?:\/|$))/;

/** The envelope of a path that no route answers, so that even a 404 or 405 has the form its service's clients read. */
export function envelopeOfPath(path: string): EnvelopeName {
  if (path === "/v1/auth" || path.startsWith("/v1/auth/")) return "flat";
  if (kapsPath.test(path)) return "kaps";
  if (/^\/(?:v1\/)?(?:artifacts|bundles|steward)(?:\/|$)|^\/a\//.test(path)) return "artifacts";
  return "nested";
}
