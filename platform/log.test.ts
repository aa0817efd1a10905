import { expect, test } from "vitest";
import { createLogger } from "./log.ts";
import { mintSecret, secretPrefixes } from "./secrets.ts";

test("no credential reaches a log line, whatever field, depth, message or error it came in", () => {
  const lines: string[] = [];
  const log = createLogger("test", { destination: { write: (line) => lines.push(line) } });
  for (const prefix of secretPrefixes) {
    const { secret } = mintSecret(prefix);
    const cause = new Error(`the cause was ${secret}`);
    const err = Object.assign(new Error(`bad ${secret}`, { cause }), { hint: secret });
    log
      .child({ bound: secret })
      .info({ url: `/v1/mcp/${secret}?x=1`, deep: { er: { still: { and: { on: [secret] } } } }, err }, `saw ${secret}`);
    const written = lines.join("");
    expect(written).not.toContain(secret);
    expect(written).toContain(`${prefix}[redacted]`);
  }
  expect(lines[0]).toContain("the cause was");
  log.info({ headers: { authorization: "Basic abc", cookie: "session=abc" }, password: "hunter2hunter2" });
  expect(lines.join("")).not.toMatch(/hunter2|Basic abc|session=abc/);
});
