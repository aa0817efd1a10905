import { spawn } from "node:child_process";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Measure, ms, type Row } from "./measure.ts";
import { cores, freePort, median, onCores } from "./processes.ts";

const rounds = 3;

/** `npm start`, on all cores, with everything installed until it says where to go: on an empty data folder, and again on the same one. */
export const start: Measure = {
  name: "start",
  async run(): Promise<Row[]> {
    const first: number[] = [];
    const second: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const home = await mkdtemp(join(tmpdir(), "kapstone-start-"));
      await chmod(home, 0o755);
      first.push(await startOnce(join(home, "data")));
      second.push(await startOnce(join(home, "data")));
      await rm(home, { recursive: true, force: true });
    }
    return [
      {
        measure: "npm start to ready, first time (empty data folder)",
        value: ms(median(first)),
        peer: "",
        result: ms(median(first)),
        goal: "",
        isMet: true,
      },
      {
        measure: "npm start to ready, second time",
        value: ms(median(second)),
        peer: "",
        result: ms(median(second)),
        goal: "",
        isMet: true,
      },
    ];
  },
};

async function startOnce(dataDir: string): Promise<number> {
  const [port, smtpPort] = [await freePort(), await freePort()];
  const began = performance.now();
  const [command = "", ...args] = onCores(cores.all, [process.execPath, fileURLToPath(new URL("../start.mjs", import.meta.url))]);
  const child = spawn(command, args, {
    env: { ...process.env, KAPSTONE_DATA_DIR: dataDir, KAPSTONE_PORT: String(port), KAPSTONE_SMTP_PORT: String(smtpPort) },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  const tookMs = await new Promise<number>((resolve, reject) => {
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (text.includes("is ready")) resolve(performance.now() - began);
    });
    child.once("exit", (code) => reject(new Error(`npm start ended with ${code}:\n${text}`)));
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGINT");
  await ended;
  return tookMs;
}
