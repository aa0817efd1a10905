import { expect, test } from "vitest";
import { guestScript } from "../guest-script.ts";
import { rehearse } from "./rehearsal.ts";
import { Sandbox } from "./sandbox.ts";

test("the rehearsal is answered as any call is, and leaves the isolate to others", async () => {
  const sandbox = new Sandbox(await guestScript(), 64, () => undefined);
  try {
    for (let n = 0; n < 2; n++) {
      const seen = await rehearse(sandbox);
      expect(seen.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
      expect(seen).toContain('{"pathname":"/","sent":"1","accept":"*/*"}');
      expect(seen).toContain('{"pathname":"/","sent":{"hello":"world"},"accept":"*/*"}');
    }
  } finally {
    sandbox.isolate.dispose();
  }
});
