import { readClaimPublicKey } from "#platform/claim-keys.ts";
import { ConfigurationError, readSettings } from "#platform/config.ts";
import { createLogger } from "#platform/log.ts";
import { guestScript } from "./guest-script.ts";
import { clearSocketFile, listenOptions, parseAddress } from "./seam/address.ts";
import { warmAssignments } from "./seam/assignment.ts";
import { runtimeSettings } from "./settings.ts";
import { createControl } from "./supervisor/control.ts";
import { Supervisor } from "./supervisor/supervisor.ts";

/** A runtime: configuration, guest kit, supervisor with its first child, control listener. Ends after a release, or on SIGTERM by one. */
const termDrainMs = 20_000;

async function start(): Promise<void> {
  const settings = readSettings(runtimeSettings, process.env);
  const log = createLogger("runtime", { level: settings.logLevel });
  const controlAddress = parseAddress(settings.control);
  const key = readClaimPublicKey(settings.claimKey);
  const supervisor = new Supervisor({
    data: parseAddress(settings.data),
    claimKey: key,
    egressAllow: settings.egressAllow,
    memoryMb: settings.memoryMb,
    budget: { runs: settings.recycleRuns, growthMb: settings.recycleGrowthMb },
    kit: await guestScript(),
    log,
    onDisowned: () => drain(),
  });
  // Children live in sessions of their own: whatever ends this process must end them.
  process.on("exit", () => supervisor.killChildren());
  const leave = (): void => {
    clearSocketFile(controlAddress);
    process.exit(0);
  };
  const control = createControl(supervisor, leave);
  clearSocketFile(controlAddress);
  control.listen(listenOptions(controlAddress));
  const drain = (): void => void supervisor.release(termDrainMs).finally(leave);
  process.on("SIGTERM", drain);
  process.on("SIGINT", drain);
  warmAssignments(key); // while the child starts
  await supervisor.warm;
  log.info({ boot_id: supervisor.bootId, data: settings.data, control: settings.control }, "the runtime is warm");
}

start().catch((error: unknown) => {
  const message = error instanceof ConfigurationError || error instanceof Error ? error.message : String(error);
  process.stderr.write(`The runtime cannot start: ${message}\n`);
  process.exit(1);
});
