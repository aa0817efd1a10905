import { invalid } from "../../http/refusal.ts";

/** Checks a key of a kap's file store: 1 to 1,024 bytes of UTF-8; no NUL, no leading `/`, no `.` or `..` segments (decided §7.3). */
export function checkObjectKey(key: string, path = "key"): string {
  const bytes = Buffer.byteLength(key);
  if (bytes < 1 || bytes > 1_024) throw invalid({ path, message: `must have 1 to 1024 bytes, this one has ${bytes}` });
  if (!key.isWellFormed()) throw invalid({ path, message: "must be valid UTF-8" });
  if (key.includes("\0")) throw invalid({ path, message: "must not hold a NUL character" });
  if (key.startsWith("/")) throw invalid({ path, message: "must not start with /" });
  if (key.split("/").some((segment) => segment === "." || segment === ".."))
    throw invalid({ path, message: "must not hold . or .. segments" });
  return key;
}
