import fc from "fast-check";
import { expect, test } from "vitest";
import { matchingSecret, readSignature, signRequest } from "./signature.ts";

const now = 1_800_000_000_000;
const parts = { method: "POST", target: "/hook?x=1", body: Buffer.from([0, 10, 255, 13]) };

function header(secret: string, timestamp: string): string {
  return `t=${timestamp},v1=${signRequest(secret, { ...parts, timestamp }).toString("hex")}`;
}

test("a signature holds for its secret, method, target, time and exact body bytes only", () => {
  const signature = readSignature(header("kes_right", "1800000000"), now);
  expect(matchingSecret(["kes_wrong", "kes_right"], signature, parts)).toBe(1);
  expect(matchingSecret(["kes_wrong"], signature, parts)).toBe(-1);
  expect(matchingSecret(["kes_right"], signature, { ...parts, method: "PUT" })).toBe(-1);
  expect(matchingSecret(["kes_right"], signature, { ...parts, target: "/hook?x=2" })).toBe(-1);
  expect(matchingSecret(["kes_right"], { ...signature, timestampText: "1800000001" }, parts)).toBe(-1);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 20 }), (body) => {
      fc.pre(!Buffer.from(body).equals(parts.body));
      expect(matchingSecret(["kes_right"], signature, { ...parts, body: Buffer.from(body) })).toBe(-1);
    }),
  );
});

test("300 seconds from the clock is still in time, 301 is stale, either way", () => {
  for (const offset of [-300, 300])
    expect(readSignature(header("s", String(1_800_000_000 + offset)), now).timestamp).toBe(1_800_000_000 + offset);
  for (const offset of [-301, 301]) expect(() => readSignature(header("s", String(1_800_000_000 + offset)), now)).toThrow(/300 seconds/);
});

test("another form is refused: uppercase hex, missing parts, extra parts, spaces inside", () => {
  const good = header("s", "1800000000");
  for (const bad of [
    "",
    "t=1",
    good.toUpperCase(),
    `${good},v2=aa`,
    good.replace(",", ", "),
    good.slice(0, -1),
    good.replace("t=1800000000", "t=1e9"),
  ]) {
    expect(() => readSignature(bad, now), bad).toThrow(/must be t=/);
  }
});
