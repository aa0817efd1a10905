import type { KeyObject } from "node:crypto";
import { type Assignment, AssignmentRefused, openAssignment } from "../seam/assignment.ts";
import { callApi, readBody } from "./api-client.ts";

const fetchTimeoutMs = 5_000;
const attempts = 4;
const pauseMs = 50;
/** Program of 10 MiB, its map and its code cache. */
const maxAssignmentBytes = 48 * 1024 * 1024;

/** The api does not know this runtime any more: it has been given up, and should end. */
export class Disowned extends AssignmentRefused {}

/** Fetches this runtime's newer assignments from the api. */
export class AssignmentSource {
  readonly #key: KeyObject;
  readonly #bootId: string;

  constructor(key: KeyObject, bootId: string) {
    this.#key = key;
    this.#bootId = bootId;
  }

  /** The assignment of at least `revision`, verified. Tries again when the api cannot be reached or is behind. @throws Error naming the last cause */
  async fetch(current: Assignment, revision: number): Promise<Assignment> {
    let cause: unknown;
    for (let attempt = 0; attempt < attempts; attempt++) {
      if (attempt > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs * attempt));
      try {
        const assignment = await this.#once(current);
        if (assignment.revision >= revision) return assignment;
        cause = new Error(`the api's newest revision is ${assignment.revision}`);
      } catch (error) {
        if (error instanceof AssignmentRefused) throw error;
        cause = error;
      }
    }
    throw cause;
  }

  async #once(current: Assignment): Promise<Assignment> {
    const response = await callApi(current.api, {
      method: "GET",
      path: `/internal/runtimes/${current.runtime_id}/assignment`,
      signal: AbortSignal.timeout(fetchTimeoutMs),
    });
    const body = await readBody(response, maxAssignmentBytes);
    const status = response.statusCode ?? 0;
    if (status === 410) throw new Disowned("the api has given this runtime up");
    if (status >= 400 && status < 500) throw new AssignmentRefused(`the api answered ${status}: this runtime serves the kap no longer`);
    if (status !== 200) throw new Error(`the api answered ${status}`);
    const assignment = openAssignment(body, this.#key, this.#bootId);
    if (assignment.kap_id !== current.kap_id) throw new AssignmentRefused("the api sent another kap's assignment");
    return assignment;
  }
}
