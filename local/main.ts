import "./end-with-parent.ts";
import { ConfigurationError } from "#platform/config.ts";
import { NewerSchemaError } from "#platform/migrate.ts";
import { startPlatform } from "./platform.ts";
import { StartRefusal } from "./start-refusal.ts";
import { welcome } from "./welcome.ts";

/** `npm start`: the whole platform in one process tree, until Ctrl-C. */
const stopMs = 60_000;
let isStopping = false;

const show = (line: string): void => void process.stdout.write(`${line}\n`);

// Signals may come while the parts start: then the start is finished first, so that it can be undone in order.
let askedToStop: () => void = () => undefined;
const stopAsked = new Promise<void>((resolve) => {
  askedToStop = resolve;
});
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    if (!isStopping) show("\nStopping …");
    isStopping = true;
    askedToStop();
  });
}
/** Ends this process. Who started it is told first, because Node's own clean-up has been seen to hang. */
function end(code: number): void {
  if (process.send && process.connected) process.send({ ends: code }, () => process.exit(code));
  else process.exit(code);
}

// The terminal may be gone before we are; what is shown then is shown to nobody.
process.stdout.on("error", () => undefined);
process.stderr.on("error", () => undefined);

try {
  const platform = await startPlatform({ env: process.env, show });
  if (!isStopping) {
    const { deps } = platform.api;
    const { rows } = await deps.db.raw<{ rows: unknown[] }>("select from orgs limit 1");
    show(
      welcome({
        address: platform.address,
        domain: deps.config.domain,
        port: platform.port,
        smtpPort: platform.smtpPort,
        isNew: rows.length === 0,
      }),
    );
  }
  await stopAsked;
  const late = setTimeout(() => {
    process.stderr.write(`Not stopped within ${stopMs / 1_000} s: ending at once. The log: ${platform.logFile}\n`);
    process.exit(1);
  }, stopMs);
  await platform.close();
  clearTimeout(late);
  show("Stopped.");
  end(0);
} catch (error) {
  if (!(error instanceof StartRefusal || error instanceof ConfigurationError || error instanceof NewerSchemaError)) throw error;
  process.stderr.write(`${error.message}\n`);
  end(1);
}
