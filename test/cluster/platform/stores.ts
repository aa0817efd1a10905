import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { build } from "esbuild";
import { type Release, releaseName } from "./release.ts";

const root = new URL("../../../", import.meta.url).pathname;

const listing = (bucket: string): string => `
import { GetObjectCommand, ListObjectsV2Command, S3Client } from "@aws-sdk/client-s3";
const { env } = process;
const s3 = new S3Client({
  endpoint: env.KAPSTONE_S3_ENDPOINT, region: env.KAPSTONE_S3_REGION, forcePathStyle: true,
  credentials: { accessKeyId: env.KAPSTONE_S3_ACCESS_KEY_ID, secretAccessKey: env.KAPSTONE_S3_SECRET_ACCESS_KEY },
});
const Bucket = env.KAPSTONE_S3_BUCKET_PREFIX + ${JSON.stringify(bucket)};
const { Contents = [] } = await s3.send(new ListObjectsV2Command({ Bucket }));
const objects = [];
for (const { Key } of Contents) objects.push({ key: Key, text: await (await s3.send(new GetObjectCommand({ Bucket, Key }))).Body.transformToString() });
console.log(JSON.stringify(objects));
`;

/** What is in a kap's bucket, as the S3 server says, asked from the operator's pod with the release's own key: no one else may reach it. */
export async function listBucket({ namespace }: Release, bucket: string): Promise<{ key: string; text: string }[]> {
  const { outputFiles } = await build({
    stdin: { contents: listing(bucket), resolveDir: root },
    bundle: true,
    platform: "node",
    format: "esm",
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire("file:///");' },
    minify: true,
    write: false,
  });
  const target = `deployment/${releaseName}-operator`;
  const running = promisify(execFile)("kubectl", ["-n", namespace, "exec", "-i", target, "--", "node", "--input-type=module", "-"], {
    timeout: 90_000,
  });
  running.child.stdin?.end(outputFiles[0]?.text);
  return JSON.parse((await running).stdout);
}
