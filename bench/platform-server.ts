import { startPlatform } from "../local/platform.ts";

/** A platform for measuring, on the database its environment names. Says its port, ends on SIGTERM. */
const platform = await startPlatform({ env: process.env, show: () => undefined });
console.log(`http://127.0.0.1:${platform.port}`);
process.once("SIGTERM", () => {
  platform.close().then(() => process.exit(0));
});
