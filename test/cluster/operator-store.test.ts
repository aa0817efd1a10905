import { afterAll, expect, test } from "vitest";
import { s3Objects } from "../../platform/objects/s3.ts";
import { until } from "../harness/wait.ts";
import { openGround } from "./operator-ground.ts";

const ground = await openGround();
const { kubectl } = ground.namespace;
afterAll(() => ground.close());
const { S3_ENDPOINT, S3_REGION = "us-east-1", S3_ACCESS_KEY_ID = "none", S3_SECRET_ACCESS_KEY = "none" } = process.env;
const store = (endpoint: string): Record<string, string> => ({
  KAPSTONE_OBJECTS: "s3",
  KAPSTONE_S3_ENDPOINT: endpoint,
  KAPSTONE_S3_REGION: S3_REGION,
  KAPSTONE_S3_ACCESS_KEY_ID: S3_ACCESS_KEY_ID,
  KAPSTONE_S3_SECRET_ACCESS_KEY: S3_SECRET_ACCESS_KEY,
});

test("a store that cannot be reached shows in the kap's conditions, and the event names the cause", async () => {
  const operator = await ground.startOperator(store("http://127.0.0.1:1"));
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=StoreReady=False", `kap/${kap.slug}`, "--timeout=60s");
  const { status } = await kap.read();
  expect(status?.phase).toBe("Degraded");
  expect(status?.conditions.find(({ type }) => type === "Ready")).toMatchObject({ status: "False", reason: "StoreUnavailable" });
  expect(status?.conditions.find(({ type }) => type === "DatabaseReady")).toMatchObject({ status: "True" });
  await until(async () => /Warning +StoreNotReady .*ECONNREFUSED/.test(await kubectl("describe", "kap", kap.slug)), { timeoutMs: 60_000 });
  expect(await operator.stop()).toBe(0);
});

test.skipIf(!S3_ENDPOINT)("a bucket that is missing is made", async () => {
  const endpoint = S3_ENDPOINT ?? "";
  const options = { endpoint, region: S3_REGION, accessKeyId: S3_ACCESS_KEY_ID, secretAccessKey: S3_SECRET_ACCESS_KEY };
  const objects = s3Objects({ ...options, forcePathStyle: true, bucketPrefix: "kapstone-" });
  const operator = await ground.startOperator(store(endpoint));
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  const { spec } = await kap.read();
  await objects.put(spec.bucket, "file", Buffer.from("there"));
  await objects.deleteBucket(spec.bucket);
  objects.close();
  expect(await operator.stop()).toBe(0);
});
