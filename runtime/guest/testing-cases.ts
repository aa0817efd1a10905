/** Table-driven conformance: snippets that run in the kit and, for comparison, in Node, whose classes are another implementation of the same standards. */
import { expect, test } from "vitest";
import { TestHost, type TestHostOptions } from "./testing-host.ts";

/** A snippet is the body of an async function; what it returns is compared as JSON. Alone, it must give what Node gives; in a pair, the second is the answer. */
export type Cases = Record<string, string | [code: string, expected: unknown]>;

/** What every snippet may use: `caught(f)` gives the name of what f throws. */
const prelude = `
  const caught = async (f) => { try { const r = await f(); return "no error: " + r; } catch (e) { return e.name; } };
  const readText = async (stream) => { let text = ""; const d = new TextDecoder(); for await (const part of stream) text += d.decode(part, { stream: true }); return text + d.decode(); };
  const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
`;

/** Registers one test per snippet, all in one isolate. */
export function conformance(cases: Cases, options: TestHostOptions = {}): void {
  let booted: Promise<TestHost> | null = null;
  const boot = () => {
    const table = Object.entries(cases).map(
      ([name, one]) => `${JSON.stringify(name)}: async () => {${typeof one === "string" ? one : one[0]}\n}`,
    );
    booted ??= TestHost.program(
      `(() => { ${prelude} const cases = {${table.join(",\n")}}; return async (request) => {
        const value = await cases[decodeURIComponent(new URL(request.url).searchParams.get("case"))]();
        return Response.json({ value: value === undefined ? null : value });
      }; })()`,
      options,
    );
    return booted;
  };
  for (const [name, one] of Object.entries(cases)) {
    test(name, async () => {
      const host = await boot();
      const result = await host.request({ url: `https://cases.kaps.example/?case=${encodeURIComponent(encodeURIComponent(name))}` });
      expect(result.detail).toBe("");
      const { value } = JSON.parse(result.body.toString("utf8")) as { value: unknown };
      expect(value).toEqual(typeof one === "string" ? await inNode(one) : one[1]);
    });
  }
}

async function inNode(code: string): Promise<unknown> {
  const AsyncFunction = (async () => {}).constructor as new (code: string) => () => Promise<unknown>;
  const value = await new AsyncFunction(`${prelude}${code}`)();
  return JSON.parse(JSON.stringify({ value: value === undefined ? null : value })).value;
}
