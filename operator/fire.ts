/**
 * What a CronJob runs: asks the API to fire what is due, once. Exit 0 when it has. The answer is the same whichever cadence asked; asking twice fires
 * nothing twice. It starts up to every minute, so it loads nothing: two variables need no schema.
 */
const url = process.env.KAPSTONE_INTERNAL_URL;
const token = process.env.KAPSTONE_FIRE_TOKEN;
const deadlineMs = 60_000;

if (!url || !token) {
  process.stderr.write("Schedules were not fired: set KAPSTONE_INTERNAL_URL and KAPSTONE_FIRE_TOKEN.\n");
  process.exit(1);
}
try {
  const response = await fetch(new URL("/internal/fire", url), {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(deadlineMs),
  });
  const answer = await response.text();
  process.stdout.write(`${response.status} ${answer}\n`);
  process.exitCode = response.ok ? 0 : 1;
} catch (error) {
  process.stderr.write(`Schedules were not fired: ${error instanceof Error ? String(error.cause ?? error.message) : String(error)}\n`);
  process.exitCode = 1;
}

export {};
