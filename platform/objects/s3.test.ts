import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { s3Objects } from "./s3.ts";

test("readers that take their time, many of them, stop nobody else", async () => {
  const server = createServer((request, response) => {
    response.writeHead(200, { "content-length": request.method === "HEAD" ? 5 : 1_000_000, etag: '"tag"' });
    if (request.method === "HEAD") response.end();
    else response.write("begun");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const objects = s3Objects({
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    region: "us-east-1",
    accessKeyId: "key",
    secretAccessKey: "secret",
    forcePathStyle: true,
    bucketPrefix: "",
  });
  try {
    const slow = await Promise.all(Array.from({ length: 120 }, (_, index) => objects.get("bucket", `object-${index}`)));
    expect((await objects.head("bucket", "another"))?.sizeBytes).toBe(5);
    for (const found of slow) found?.body.on("error", () => undefined).destroy();
  } finally {
    objects.close();
    server.closeAllConnections();
    server.close();
  }
}, 30_000);
