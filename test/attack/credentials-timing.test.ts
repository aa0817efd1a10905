import { afterAll, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { signUp, startServices } from "../contract/auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());

const pairs = 480;
const lookEvery = 60;

/** Middle of a list of numbers. */
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
  // Both of a pair met the same machine, so that their ratio is steadier than either. What a guesser could use stays however many there are; noise does not.
  const ratios: number[] = [];
  let difference = Number.NaN;
  while (ratios.length < pairs) {
    const isKnownFirst = ratios.length % 2 === 0;
    const first = await timed(isKnownFirst ? org.email : unknown);
    const second = await timed(isKnownFirst ? unknown : org.email);
    ratios.push(isKnownFirst ? first / second : second / first);
    difference = Math.abs(median(ratios) - 1);
    if (ratios.length % lookEvery === 0 && difference <= 0.05) break;
  }
  expect(difference).toBeLessThanOrEqual(0.05);
}, 600_000);
