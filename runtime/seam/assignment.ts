import { type KeyObject, verify } from "node:crypto";
import { type AssignmentHead, assignmentSchemas } from "#platform/assignment.ts";
import { isProgram } from "./program-bytes.ts";

/** Everything a generic runtime needs to become one kap's. Signed by the api; holds secrets, so it is never logged. */
export type Assignment = AssignmentHead & {
  /** Bundle, map and code cache, as `program` tells their lengths. */
  programBytes: Buffer;
};

/** An assignment that cannot be accepted. The message says why; it never quotes the token. */
export class AssignmentRefused extends Error {
  override name = "AssignmentRefused";
}

/**
 * Verifies an assignment and returns its content. It is a signed text (JWS compact, EdDSA, `typ: kap-assignment`), a line feed, and the program's
 * bytes, whose digest is signed. The algorithm is fixed: a header that names another one is refused before any signature is looked at.
 * @throws AssignmentRefused on a bad form, header, signature, shape, digest, expiry or boot id
 */
export function openAssignment(body: Buffer, key: KeyObject, bootId: string, nowMs: number = Date.now()): Assignment {
  const textEnd = body.indexOf("\n");
  const parts = body.toString("latin1", 0, Math.max(0, textEnd)).split(".");
  const [head, payload, signature] = parts;
  if (parts.length !== 3 || !head || !payload || !signature)
    throw new AssignmentRefused("the assignment is not a compact JWS and a program");
  const header: unknown = parseJson(Buffer.from(head, "base64url").toString("utf8"), "header");
  const named = header as { alg?: unknown; typ?: unknown; crit?: unknown } | null;
  if (named?.alg !== "EdDSA" || named.typ !== "kap-assignment" || named.crit !== undefined)
    throw new AssignmentRefused("the assignment's header must be exactly EdDSA and kap-assignment");
  if (!verify(null, Buffer.from(`${head}.${payload}`, "ascii"), key, Buffer.from(signature, "base64url")))
    throw new AssignmentRefused("the assignment's signature does not hold: it was not signed by this platform's api");
  const parsed = assignmentSchemas.head.safeParse(parseJson(Buffer.from(payload, "base64url").toString("utf8"), "payload"));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new AssignmentRefused(`the assignment is malformed at ${issue?.path.join(".") ?? "its root"}: ${issue?.message ?? "unknown"}`);
  }
  const programBytes = body.subarray(textEnd + 1);
  if (!isProgram(programBytes, parsed.data.program)) throw new AssignmentRefused("the assignment's program is not the one that was signed");
  if (parsed.data.exp * 1000 <= nowMs) throw new AssignmentRefused("the assignment has expired: ask the api for a new one");
  if (parsed.data.boot_id !== undefined && parsed.data.boot_id !== bootId)
    throw new AssignmentRefused("the assignment is for another boot of this runtime: read /state and claim again");
  return { ...parsed.data, programBytes };
}

/** Does once what the first `openAssignment` would pay for: the schemas compile on their first use, and so does the signature's algorithm. */
export function warmAssignments(key: KeyObject): void {
  for (const schema of Object.values(assignmentSchemas)) schema.safeParse({});
  verify(null, Buffer.alloc(1), key, Buffer.alloc(64));
}

function parseJson(text: string, part: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new AssignmentRefused(`the assignment's ${part} is not JSON`);
  }
}
