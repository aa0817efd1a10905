import { type Refusal, refuse } from "../../http/refusal.ts";

/** 422: the archive is not one that can be imported. Nothing of it is kept. */
export function badArchive(path: string, message: string): Refusal {
  return refuse("VALIDATION_FAILED", `${path}: ${message}`, { details: [{ path, message }] });
}
