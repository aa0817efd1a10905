import { newId } from "#platform/ids.ts";

const plainToken = /^[\w.:@/+=-]{1,128}$/;

/** The caller's X-Request-Id when it is a plain token of at most 128 characters, else a new one (decided §2). */
export function requestIdOf(header: string | string[] | undefined): string {
  return typeof header === "string" && plainToken.test(header) ? header : newId();
}
