import { randomBytes } from "node:crypto";
import { chmod, open, readFile, rename } from "node:fs/promises";

/**
 * A secret of this installation, kept in a file that only its owner can read: the first call makes it (`mint`, by default 32 random bytes in
 * base64url) and every later one returns the same. Written whole or not at all: a start that is killed in the middle leaves no half of it.
 */
export async function keptSecret(path: string, mint: () => string = () => randomBytes(32).toString("base64url")): Promise<string> {
  try {
    const kept = await readFile(path, "utf8");
    await chmod(path, 0o600);
    return kept;
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
  }
  const secret = mint();
  await writeSecret(path, secret);
  return secret;
}

/** Writes `text` to `path` (mode 0600) durably and in one step. */
export async function writeSecret(path: string, text: string): Promise<void> {
  const unfinished = `${path}.new`;
  const file = await open(unfinished, "w", 0o600);
  try {
    await file.chmod(0o600);
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(unfinished, path);
}
