import { afterAll, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { signUp, startServices } from "../contract/auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());

const pairs = 60;
const runs = 4;

/** Middle of a list of milliseconds. */
function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

async function timed(email: string): Promise<number> {
  const start = performance.now();
  const answer = await app.call({ method: "POST", path: "/v1/auth/login", body: { email, password: "not the password" } });
  expect(answer.status).toBe(401);
  return performance.now() - start;
}

test("the time of a refused sign-in does not tell whether the email has an account: medians within 5 % in an interleaved run", async () => {
  const org = await signUp(app);
  const unknown = "nobody-of-this-name@example.com";
  const differences: number[] = [];
  // A difference that a guesser could use is there in every run; noise of a busy machine is not.
  for (let run = 0; run < runs; run++) {
    const times: { known: number[]; unknown: number[] } = { known: [], unknown: [] };
    for (let n = 0; n < pairs; n++) {
      const isKnownFirst = n % 2 === 0;
      const first = await timed(isKnownFirst ? org.email : unknown);
      const second = await timed(isKnownFirst ? unknown : org.email);
      times.known.push(isKnownFirst ? first : second);
      times.unknown.push(isKnownFirst ? second : first);
    }
    const difference = Math.abs(median(times.known) / median(times.unknown) - 1);
    differences.push(difference);
    if (difference <= 0.05) return;
  }
  expect(Math.min(...differences)).toBeLessThanOrEqual(0.05);
}, 600_000);
