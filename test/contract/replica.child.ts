import { services } from "../../api/app.ts";
import { serveServices } from "./service-app.ts";

/** A replica of the API in a process of its own: says its port on standard output and serves until it is killed. */
const { port } = await serveServices(services, {
  databaseUrl: process.env.REPLICA_DATABASE_URL ?? "",
  deploymentKey: process.env.REPLICA_KEY ?? "",
});
process.stdout.write(`${port}\n`);
process.on("disconnect", () => process.exit(0)); // the test is gone
