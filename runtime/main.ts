import { ConfigurationError, readSettings } from "#platform/config.ts";
import { createLogger } from "#platform/log.ts";
import { createMetrics, Gauge } from "#platform/metrics.ts";
import { guestScript } from "./guest-script.ts";
import { clearSocketFile, listenOptions, parseAddress } from "./seam/address.ts";
import { claimKey } from "./seam/assignment.ts";
import { runtimeSettings } from "./settings.ts";
import { createControl } from "./supervisor/control.ts";
import { Supervisor } from "./supervisor/supervisor.ts";

/** A runtime: configuration, guest kit, supervisor with its first child, control listener. Ends after a release, or on SIGTERM by one. */
const termDrainMs = 20_000;

async function start(): Promise<void> {
  const settings = readSettings(runtimeSettings, process.env);
  const log = createLogger("runtime", { level: settings.logLevel });
  const controlAddress = parseAddress(settings.control);
  const supervisor = new Supervisor({
    data: parseAddress(settings.data),
    claimKey: claimKey(settings.claimKey),
    egressAllow: settings.egressAllow,
    memoryMb: settings.memoryMb,
    kit: await guestScript(),
    log,
  });
  // Children live in sessions of their own: whatever ends this process must end them.
  process.on("exit", () => supervisor.killChildren());
  const metrics = createMetrics("runtime");
  registerGauges(metrics, supervisor);
  const leave = (): void => {
    clearSocketFile(controlAddress);
    process.exit(0);
  };
  const control = createControl(supervisor, metrics, leave);
  clearSocketFile(controlAddress);
  control.listen(listenOptions(controlAddress));
  const drain = (): void => void supervisor.release(termDrainMs).finally(leave);
  process.on("SIGTERM", drain);
  process.on("SIGINT", drain);
  await supervisor.warm;
  log.info({ boot_id: supervisor.bootId, data: settings.data, control: settings.control }, "the runtime is warm");
}

function registerGauges(metrics: ReturnType<typeof createMetrics>, supervisor: Supervisor): void {
  const gauge = (name: string, help: string, read: () => number): void => {
    new Gauge({
      name: `kapstone_runtime_${name}`,
      help,
      registers: [metrics],
      collect() {
        this.set(read());
      },
    });
  };
  gauge("runs_in_flight", "Runs inside the isolate or waiting for something", () => supervisor.inFlight.running);
  gauge("runs_queued", "Runs that wait for a place", () => supervisor.inFlight.queued);
  gauge("children_replaced", "Children that were killed or ended since the start", () => supervisor.kills);
  gauge("reports_waiting", "Ended runs the api has not acknowledged yet", () => supervisor.reporter.backlog);
  gauge("resident_bytes", "Memory of supervisor and children", () => supervisor.rssBytes);
}

start().catch((error: unknown) => {
  const message = error instanceof ConfigurationError || error instanceof Error ? error.message : String(error);
  process.stderr.write(`The runtime cannot start: ${message}\n`);
  process.exit(1);
});
