/** One problem with one field of the input. `path` is dotted, as the caller wrote it: `scopes.0`, `html`. */
export interface Detail {
  path: string;
  message: string;
}

/**
 * The codes every service shares, with the status each has (decided §2). A service adds its own codes (kaps: `VERSION_CONFLICT`, …)
 * by refusing with a status and the code; the envelope is the service's.
 */
export const commonCodes = {
  BAD_REQUEST: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  CONFLICT: 409,
  GONE: 410,
  PAYLOAD_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  VALIDATION_FAILED: 422,
  RATE_LIMITED: 429,
  INTERNAL: 500,
  UNAVAILABLE: 503,
} as const;
export type CommonCode = keyof typeof commonCodes;

export interface RefusalOptions {
  details?: unknown;
  headers?: Record<string, string>;
  /** Further top-level fields of the body, where the contract names some (`orgs` of ORG_REQUIRED, `locked_until`). */
  fields?: Record<string, unknown>;
  /** What the log may know and the caller may not. */
  internal?: string;
  cause?: unknown;
}

/** An expected refusal: thrown anywhere below a route, answered in the service's envelope. The message names the cause and the fix. */
export class Refusal extends Error {
  override name = "Refusal";
  readonly status: number;
  readonly code: string;
  readonly options: RefusalOptions;
  constructor(status: number, code: string, message: string, options: RefusalOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.status = status;
    this.code = code;
    this.options = options;
  }
}

/** A refusal with a shared code and its status. */
export function refuse(code: CommonCode, message: string, options: RefusalOptions = {}): Refusal {
  return new Refusal(commonCodes[code], code, message, options);
}

/** 422 with one line per field. */
export function invalid(...details: Detail[]): Refusal {
  const first = details[0];
  const message = first ? `${first.path === "" ? "the body" : first.path}: ${first.message}` : "the input is not valid";
  return refuse("VALIDATION_FAILED", details.length > 1 ? `${message} (and ${details.length - 1} more)` : message, { details });
}

/** 404: the thing does not exist, or belongs to another organisation; the two are not told apart. */
export function notFound(what: string): Refusal {
  return refuse("NOT_FOUND", `${what} does not exist here: check the id, and that the credential belongs to its organisation`);
}

/** Codes of errors that say the database, or the way to it, is away. */
const unreachable = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ENOTFOUND",
  "ETIMEDOUT",
  "EPIPE",
  "57P01",
  "57P02",
  "57P03",
  "53300",
  "08006",
  "08001",
]);

/** Every error as a refusal: expected ones as they are; text PostgreSQL cannot store as 422; a database that is away as 503; the rest is a 500 with the request id. */
export function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const isHalfSurrogate = code === "22P02" && error instanceof Error && "detail" in error && /surrogate/.test(String(error.detail));
  if (code === "22021" || code === "22P05" || isHalfSurrogate)
    return invalid({ path: "", message: "holds a NUL character or text that is not Unicode: remove it" });
  const isTimeout =
    error instanceof Error &&
    /timeout (acquiring|exceeded)|Connection (terminated|ended)|not queryable|Unable to acquire a connection/i.test(error.message);
  if (unreachable.has(code) || isTimeout) {
    return refuse("UNAVAILABLE", "the database cannot be reached: try again in a moment", {
      headers: { "retry-after": "1" },
      cause: error,
    });
  }
  return refuse("INTERNAL", "something went wrong on our side: try again, and give the request id to whoever runs this deployment", {
    cause: error,
  });
}
