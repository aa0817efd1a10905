/** For the contract test: a process whose put never ends. Takes an adapter and its options as JSON; writes a line when 20 MiB of the body have been taken. */
import { Readable } from "node:stream";
import { fileSystemObjects } from "./files.ts";
import { s3Objects } from "./s3.ts";

const { root, s3, bucket, key } = JSON.parse(process.argv[2] ?? "{}");
const objects = root ? fileSystemObjects(root) : s3Objects(s3);

async function* endless(): AsyncGenerator<Buffer> {
  for (let mebibytes = 0; mebibytes < 20; mebibytes += 1) yield Buffer.alloc(1024 * 1024, "x");
  process.stdout.write("under way\n");
  await new Promise((resolve) => setTimeout(resolve, 600_000));
}

await objects.put(bucket, key, Readable.from(endless()));
