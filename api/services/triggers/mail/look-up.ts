import { Resolver } from "node:dns/promises";
import type { DNSResolver } from "mailauth";

/** One question's deadline. */
const queryMs = 1_500;
/** How long an answer, or that there is none, is used again: mails come in bunches from the same senders. */
const keptMs = 30_000;
const maxKept = 5_000;

interface Kept {
  until: number;
  answer: Promise<string[][] | string[]>;
}

/** Look-ups at the given name servers (those of the machine when empty), each question asked once for all mails of half a minute. */
export function createLookUp(servers: readonly string[]): DNSResolver {
  const resolver = new Resolver({ timeout: queryMs, tries: 1 });
  if (servers.length > 0) resolver.setServers(servers);
  const kept = new Map<string, Kept>();
  return (name, type) => {
    const key = `${type} ${name.toLowerCase()}`;
    const now = Date.now();
    const known = kept.get(key);
    if (known && known.until > now) return known.answer;
    const answer = resolver.resolve(name, type) as Promise<string[][] | string[]>;
    answer.catch(() => undefined); // whoever asked hears of it
    kept.delete(key);
    kept.set(key, { until: now + keptMs, answer });
    if (kept.size > maxKept) kept.delete(kept.keys().next().value as string);
    return answer;
  };
}
