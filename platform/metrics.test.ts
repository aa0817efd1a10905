import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { createMetrics, createMonitoringServer, Gauge } from "./metrics.ts";

test("a metric that cannot be read fails its request, not the process", async () => {
  const registry = createMetrics("test");
  let isBroken = true;
  new Gauge({
    name: "kapstone_test",
    help: "of a test",
    registers: [registry],
    collect() {
      if (isBroken) throw new Error("cannot be read");
      this.set(7);
    },
  });
  const server = createMonitoringServer(registry, {});
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    expect((await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(10_000) })).status).toBe(500);
    isBroken = false;
    expect(await (await fetch(`${url}/metrics`)).text()).toMatch(/^kapstone_test\{part="test"\} 7$/m);
  } finally {
    server.close();
    server.closeAllConnections();
  }
});
