import { setTimeout as delay } from "node:timers/promises";

/**
 * Waits until `condition` gives a truthy value and returns it. It is asked again every 20 ms; what it throws counts as "not yet" and is the
 * cause of the error after `timeoutMs` (20 s unless told: machines that run tests are loaded).
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  options: { timeoutMs?: number; what?: string } = {},
): Promise<Exclude<T, false | null | undefined | 0 | "">> {
  const timeoutMs = options.timeoutMs ?? 20_000;
  const end = performance.now() + timeoutMs;
  let cause: unknown;
  do {
    try {
      const value = await condition();
      if (value) return value as Exclude<T, false | null | undefined | 0 | "">;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    await delay(20);
  } while (performance.now() < end);
  throw new Error(`${options.what ?? "the condition"} did not come true within ${timeoutMs} ms`, { cause });
}
