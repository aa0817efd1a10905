import { randomBytes, timingSafeEqual } from "node:crypto";
import { availableParallelism } from "node:os";
import { refuse } from "../../http/refusal.ts";
import { createHashThread, type HashThread } from "./password-thread.ts";

/** Argon2id as OWASP's first choice for it: 19 MiB, two passes, one lane; about 30 ms of one core. */
const cost = { memory: 19_456, passes: 2, parallelism: 1 } as const;
const tagLength = 32;

// A hash beside requests must not be felt: one core at least is left to them, and the threads yield to whoever wants theirs.
const threadCount = availableParallelism() > 2 ? 2 : 1;
const free = Array.from({ length: threadCount }, createHashThread);
/** Hashes under way and waiting, some four seconds of them: those that would wait longer are refused at once. */
const places = 100 * threadCount;
const waiting: ((thread: HashThread) => void)[] = [];

async function inTurn<T>(work: (thread: HashThread) => Promise<T>): Promise<T> {
  let thread = free.pop();
  if (!thread) {
    if (waiting.length + threadCount >= places)
      throw refuse("UNAVAILABLE", "too many sign-ins at the same time: try again in a moment", { headers: { "retry-after": "5" } });
    thread = await new Promise<HashThread>((resolve) => waiting.push(resolve));
  }
  try {
    return await work(thread);
  } finally {
    const next = waiting.shift();
    if (next) next(thread);
    else free.push(thread);
  }
}

function hashWith(password: string, nonce: Buffer, parameters: { memory: number; passes: number; parallelism: number }): Promise<Buffer> {
  // NFKC: the same password typed on two keyboards can come in different code points (NIST SP 800-63B §3.1.1.2).
  return inTurn((thread) => thread.derive({ message: password.normalize("NFKC"), nonce, tagLength, ...parameters }));
}

/** Hashes a password for storage, in the PHC string format. Off the event loop. */
export async function hashPassword(password: string): Promise<string> {
  const nonce = randomBytes(16);
  const tag = await hashWith(password, nonce, cost);
  const text = (bytes: Buffer): string => bytes.toString("base64").replace(/=+$/, "");
  return `$argon2id$v=19$m=${cost.memory},t=${cost.passes},p=${cost.parallelism}$${text(nonce)}$${text(tag)}`;
}

const phc = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

/**
 * Whether a password is the one that was hashed. Without a hash (an email without an account) the same work is done and the answer is
 * false, so that time does not tell which emails have accounts.
 */
export async function verifyPassword(password: string, stored: string | null): Promise<boolean> {
  const [, memory, passes, parallelism, nonce, tag] = phc.exec(stored ?? "") ?? [];
  if (nonce === undefined || tag === undefined) {
    if (stored !== null) throw new Error("a stored password hash has an unknown form");
    await hashWith(password, Buffer.alloc(16), cost);
    return false;
  }
  const found = await hashWith(password, Buffer.from(nonce, "base64"), {
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
  });
  const expected = Buffer.from(tag, "base64");
  return expected.length === found.length && timingSafeEqual(expected, found);
}
